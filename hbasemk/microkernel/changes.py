"""JSOP operations applied to a staging, in order, each seeing the ones before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hbasemk import jsop
from hbasemk.errors import InvalidChangeError, InvalidPathError, NodeNotFoundError
from hbasemk.kernel import changeset, effect, operations, paths, revision
from hbasemk.kernel.changeset import ChangeSet
from hbasemk.kernel.reader import Reader
from hbasemk.kernel.snapshot import Snapshot
from hbasemk.kernel.staging import Staging, both
from hbasemk.microkernel.names import check_node, check_property
from hbasemk.microkernel.values import to_kernel


def builder(reader: Reader, told: Sequence[jsop.Operation]) -> Callable[[Snapshot], ChangeSet]:
    """A function that turns the operations into a change set on the snapshot it is given; one without effect is empty."""

    def build(snapshot: Snapshot) -> ChangeSet:
        staging = Staging(reader, snapshot)
        apply(staging, told)
        return effect.only(changeset.build(staging))

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
        raise both(operation.path, operation.name)
    value = None if operation.value is None else to_kernel(operation.value)
    staging.apply([operations.SetProperty(operation.path, operation.name, value)])


def _remove(staging: Staging, path: str) -> None:
    if path == paths.ROOT or staging.find(path) is not None:
        staging.apply([operations.RemoveNode(path)])
        return
    above, name = paths.parent(path), paths.name(path)
    parent = staging.find(above)
    if parent is None or parent.encoded(name) is None:
        at = revision.to_text(staging.snapshot.revision)
        raise NodeNotFoundError(
            f"there is neither a node nor a property at {path} in revision {at}", path=path, revision=at
        )
    staging.apply([operations.SetProperty(above, name, None)])
