"""Commits of JSOP: apply the operations in order to a staging, so that each sees the effects of the earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hbasemk import jsop
from hbasemk.errors import InvalidChangeError, InvalidPathError, NodeNotFoundError
from hbasemk.format import paths, revisions
from hbasemk.format.node import NodeState
from hbasemk.kernel.commit import change_set, noop, operations
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.staging import Staging, name_conflict
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader
from hbasemk.microkernel.json_values import to_kernel
from hbasemk.microkernel.reserved import check_node, check_property


def builder(reader: Reader, requested: Sequence[jsop.Operation]) -> Callable[[View], ChangeSet]:
    """Return a function that builds the operations' change set on a view; without net effect it is empty."""

    def build(view: View) -> ChangeSet:
        staging = Staging(reader, view)
        apply(staging, requested)
        return noop.without_noop(change_set.build(staging))

    return build


def apply(staging: Staging, requested: Sequence[jsop.Operation]) -> None:
    """Apply operations to a staging. Raise the error of the first that fails; the staging must not be committed then."""
    staging.load(_paths_to_load(requested))
    for operation in requested:
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
                f'^"{operation.path}":{{}} only says that something at or below {operation.path} changed; it cannot be '
                "committed. Take the diff without a depth limit",
                path=operation.path,
            )


def _paths_to_load(requested: Iterable[jsop.Operation]) -> list[str]:
    to_load: list[str] = []
    for operation in requested:
        if isinstance(operation, (jsop.Move, jsop.Copy)):
            named: tuple[str, ...] = (operation.source, operation.target)
        elif isinstance(operation, jsop.SetProperty):
            named = (paths.join(operation.path, operation.name),)
        else:
            named = (operation.path,)
        for path in named:
            try:
                to_load.append(paths.check_path(path))
            except InvalidPathError:
                # With a property's name, this may not be a valid node path. Then no such node exists.
                continue
            if path != paths.ROOT:
                to_load.append(paths.parent(path))
    return to_load


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
    # Check it here, not only at the commit: a later operation of the same text may remove the child.
    if operation.value is not None and staging.find(paths.join(operation.path, operation.name)) is not None:
        raise name_conflict(operation.path, operation.name)
    value = None if operation.value is None else to_kernel(operation.value)
    staging.apply([operations.SetProperty(operation.path, operation.name, value)])


def _remove(staging: Staging, path: str) -> None:
    if path == paths.ROOT or staging.find(path) is not None:
        staging.apply([operations.RemoveNode(path)])
        return
    parent_path, name = paths.parent(path), paths.name(path)
    parent = staging.find(parent_path)
    if parent is None or parent.encoded(name) is None:
        revision = revisions.to_text(staging.view.revision)
        raise NodeNotFoundError(
            f"there is neither a node nor a property at {path} in revision {revision}", path=path, revision=revision
        )
    staging.apply([operations.SetProperty(parent_path, name, None)])


# --- removals that trunk has made as well ---------------------------------------------------------------
#
# If a text removes something that trunk has removed since the base, both sides agree, so they need not conflict. A removal
# is dropped only if no other operation of the text depends on it. Otherwise a copy or move of a surrounding tree would
# restore what it removed, or later operations would no longer make sense on the base.


def without_redundant_removals(
    reader: Reader, base: View, head: View, requested: Sequence[jsop.Operation]
) -> list[jsop.Operation]:
    """Drop the removals of nodes and properties that existed at ``base`` and are absent at ``head``."""
    removed = [one.path for one in requested if isinstance(one, jsop.Remove) and one.path != paths.ROOT]
    needed = list(dict.fromkeys([*removed, *(paths.parent(path) for path in removed)]))
    before, now = reader.nodes(base, needed), reader.nodes(head, needed)
    redundant = {
        path
        for path in removed
        if _was_removed(path, before, now) and not any(_depends_on(one, path) for one in requested)
    }
    return [one for one in requested if not (isinstance(one, jsop.Remove) and one.path in redundant)]


def _was_removed(path: str, before: dict[str, NodeState | None], now: dict[str, NodeState | None]) -> bool:
    if before[path] is not None:
        return now[path] is None
    return now[path] is None and _has_property(before, path) and not _has_property(now, path)


def _has_property(states: dict[str, NodeState | None], path: str) -> bool:
    owner = states[paths.parent(path)]
    return owner is not None and paths.name(path) in owner.encoded


def _depends_on(operation: jsop.Operation, path: str) -> bool:
    """Return whether an operation names something at or below a removed path, or adds, copies or moves a tree around it."""
    if isinstance(operation, jsop.Remove):
        return False
    if isinstance(operation, jsop.SetProperty):
        return paths.is_at_or_below(paths.join(operation.path, operation.name), path)
    whole = (operation.source, operation.target) if isinstance(operation, (jsop.Move, jsop.Copy)) else (operation.path,)
    return any(paths.is_at_or_below(one, path) or paths.is_at_or_below(path, one) for one in whole)
