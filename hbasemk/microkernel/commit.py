"""JSOP operations applied to a staging, in order, each seeing the ones before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hbasemk import jsop
from hbasemk.errors import InvalidChangeError, InvalidPathError, NodeNotFoundError
from hbasemk.format import paths, revisions
from hbasemk.kernel.commit import change_set, noop, operations
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.staging import Staging, name_conflict
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader
from hbasemk.microkernel.json_values import to_kernel
from hbasemk.microkernel.reserved import check_node, check_property


def builder(reader: Reader, told: Sequence[jsop.Operation]) -> Callable[[View], ChangeSet]:
    """A function that turns the operations into a change set on the snapshot it is given; one without effect is empty."""

    def build(snapshot: View) -> ChangeSet:
        staging = Staging(reader, snapshot)
        apply(staging, told)
        return noop.without_noop(change_set.build(staging))

    return build


def apply(staging: Staging, told: Sequence[jsop.Operation]) -> None:
    """Apply operations; raises what is wrong with the first that cannot be done, after which nothing may be committed."""
    staging.load(_needed(told))
    for operation in told:
        if isinstance(operation, jsop.AddNode):
            _add(staging, operation)
        elif isinstance(operation, jsop.SetProperty):
            _set(staging, operation)
        elif isinstance(operation, jsop.Remove):
            _remove(staging, operation.path)
        elif isinstance(operation, jsop.Move):
            check_node(operation.target)
            staging.apply([operations.MoveNode(operation.source, operation.target)])
        elif isinstance(operation, jsop.Copy):
            check_node(operation.target)
            staging.apply([operations.CopyNode(operation.source, operation.target)])
        else:
            raise InvalidChangeError(
                f'^"{operation.path}":{{}} only tells that something below {operation.path} changed; it cannot be applied',
                path=operation.path,
            )


def _needed(told: Iterable[jsop.Operation]) -> list[str]:
    wanted: list[str] = []
    for operation in told:
        if isinstance(operation, (jsop.Move, jsop.Copy)):
            named: tuple[str, ...] = (operation.source, operation.target)
        elif isinstance(operation, jsop.SetProperty):
            named = (paths.join(operation.path, operation.name),)
        else:
            named = (operation.path,)
        for path in named:
            try:
                wanted.append(paths.check_path(path))
            except InvalidPathError:
                # A property's name may make a path that no node can have; then there is no such node.
                continue
            if path != paths.ROOT:
                wanted.append(paths.parent(path))
    return wanted


def _add(staging: Staging, operation: jsop.AddNode) -> None:
    added = []
    for path, node in operation.node.walk(operation.path):
        check_node(path)
        for name in node.properties:
            check_property(name, path)
        added.append(operations.AddNode(path, {name: to_kernel(value) for name, value in node.properties.items()}))
    staging.apply(added)


def _set(staging: Staging, operation: jsop.SetProperty) -> None:
    check_property(operation.name, operation.path)
    # Here and not only when it is committed: a later operation of the same text may remove the child.
    if operation.value is not None and staging.find(paths.join(operation.path, operation.name)) is not None:
        raise name_conflict(operation.path, operation.name)
    value = None if operation.value is None else to_kernel(operation.value)
    staging.apply([operations.SetProperty(operation.path, operation.name, value)])


def _remove(staging: Staging, path: str) -> None:
    if path == paths.ROOT or staging.find(path) is not None:
        staging.apply([operations.RemoveNode(path)])
        return
    above, name = paths.parent(path), paths.name(path)
    parent = staging.find(above)
    if parent is None or parent.encoded(name) is None:
        at = revisions.to_text(staging.snapshot.revision)
        raise NodeNotFoundError(
            f"there is neither a node nor a property at {path} in revision {at}", path=path, revision=at
        )
    staging.apply([operations.SetProperty(above, name, None)])
