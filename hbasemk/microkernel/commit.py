"""JSOP as a source of kernel operations; each operation sees the effects of the earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from hbasemk import jsop
from hbasemk.errors import HbasemkError, InvalidChangeError, InvalidPathError, NodeNotFoundError
from hbasemk.format import limits, paths
from hbasemk.format.limits import shortened
from hbasemk.format.node import NodeState
from hbasemk.kernel.commit import change_set, noop
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.change_source import Prediction, predict_operations
from hbasemk.kernel.commit.operations import AddNode, CopyNode, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.commit.staging import Staging, name_conflict
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader
from hbasemk.microkernel.json_values import to_kernel
from hbasemk.microkernel.reserved import check_node, check_property


class JsopChanges:
    """The changes of a JSOP text; without net effect the change set writes nothing."""

    def __init__(self, requested: Sequence[jsop.Operation]) -> None:
        self._requested = requested

    def predict(self, limit: int, /) -> Prediction | None:
        """Return what the text touches, unless it contains an operation other than adding nodes and setting properties."""
        if not all(isinstance(one, (jsop.AddNode, jsop.SetProperty)) for one in self._requested):
            return None
        try:
            # A property can only be set if no child has its name.
            operations = list(islice(_operations(self._requested, lambda _: None, NodeNotFoundError), limit + 1))
            prediction = predict_operations(operations, limit)
        except HbasemkError:
            # Staging raises the error, unless an earlier operation fails on the view.
            return None
        return prediction and prediction._replace(reads=_paths_to_load(self._requested))

    def stage(self, reader: Reader, view: View, absent: Collection[str] = (), /) -> ChangeSet:
        """Apply the text to the view. Raises the error of the first operation that fails."""
        staging = Staging(reader, view, absent=absent)
        staging.load(_paths_to_load(self._requested))
        staging.apply_each(_operations(self._requested, staging.find, staging.missing))
        return noop.without_noop(change_set.build(staging))


def _operations(
    requested: Iterable[jsop.Operation],
    find: Callable[[str], StagedNode | None],
    missing: Callable[[str], NodeNotFoundError],
) -> Iterator[Operation]:
    """Yield the operations of the kernel for JSOP operations.

    ``find`` returns a node with the effects of the operations so far, ``missing`` the error that says why there is none.
    """
    for one in requested:
        if isinstance(one, jsop.AddNode):
            for path, node in one.node.walk(one.path):
                check_node(path)
                for name in node.properties:
                    check_property(name, path)
                yield AddNode(path, {name: to_kernel(value) for name, value in node.properties.items()})
        elif isinstance(one, jsop.SetProperty):
            if one.value is not None:
                check_property(one.name, one.path)
            # Check it here, not only at the commit: a later operation of the same text may remove the child.
            if one.value is not None and _find(paths.join(one.path, one.name), find) is not None:
                raise name_conflict(one.path, one.name)
            yield SetProperty(one.path, one.name, None if one.value is None else to_kernel(one.value))
        elif isinstance(one, jsop.Remove):
            yield _removal(one.path, find, missing)
        elif isinstance(one, jsop.Move):
            check_node(one.target)
            yield MoveNode(one.source, one.target)
        elif isinstance(one, jsop.Copy):
            check_node(one.target)
            yield CopyNode(one.source, one.target)
        else:
            raise InvalidChangeError(
                f'^"{shortened(one.path)}":{{}} only says that something at or below it changed; it cannot be committed. '
                "Take the diff without a depth limit",
                path=one.path,
            )


def _removal(
    path: str, find: Callable[[str], StagedNode | None], missing: Callable[[str], NodeNotFoundError]
) -> Operation:
    if path == paths.ROOT or _find(path, find) is not None:
        return RemoveNode(path)
    parent_path, name = paths.parent(path), paths.name(path)
    parent = find(parent_path)
    if parent is None or parent.encoded(name) is None:
        if parent is not None and not paths.is_path(path):
            raise NodeNotFoundError(f"there is no property at {limits.shown(path)} to remove", path=path, revision=None)
        error = missing(path if paths.is_path(path) else parent_path)
        error.message = f"there is neither a node nor a property at {shortened(path)} to remove: {error.message}"
        raise error
    return SetProperty(parent_path, name, None)


def _find(path: str, find: Callable[[str], StagedNode | None]) -> StagedNode | None:
    """Return the node at the path of a node or property; None also if only a property can have it, because it is too long."""
    return find(path) if paths.is_path(path) else None


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


# --- removals that trunk has made as well ---------------------------------------------------------------
#
# If a text removes something that trunk has removed since the base, both sides agree, so they need not conflict. A removal
# is dropped only if no other operation of the text depends on it. Otherwise a copy or move of a surrounding tree would
# restore what it removed, or later operations would no longer make sense on the base.


def without_redundant_removals(
    instance: Instance, base: View, requested: Sequence[jsop.Operation]
) -> list[jsop.Operation]:
    """Drop the removals of nodes and properties that existed at ``base`` and are absent at the head."""
    removed = [one.path for one in requested if isinstance(one, jsop.Remove) and one.path != paths.ROOT]
    possible = [path for path in removed if paths.is_path(path)]
    needed = list(dict.fromkeys([*possible, *(paths.parent(path) for path in removed)]))
    before, now = instance.nodes(base, needed), instance.nodes(instance.head(), needed)
    trees, set_properties = _named_besides_removals(requested)
    other_paths = set(paths.with_ancestors(trees | set_properties))
    redundant = {
        path
        for path in removed
        if path not in other_paths
        and trees.isdisjoint(paths.with_ancestors([path]))
        and _was_removed(path, before, now)
    }
    return [one for one in requested if not (isinstance(one, jsop.Remove) and one.path in redundant)]


def _was_removed(path: str, before: dict[str, NodeState | None], now: dict[str, NodeState | None]) -> bool:
    if before.get(path) is not None:
        return now[path] is None
    return now.get(path) is None and _has_property(before, path) and not _has_property(now, path)


def _has_property(states: dict[str, NodeState | None], path: str) -> bool:
    owner = states[paths.parent(path)]
    return owner is not None and paths.name(path) in owner.encoded


def _named_besides_removals(requested: Iterable[jsop.Operation]) -> tuple[set[str], set[str]]:
    """Return the trees that operations add, copy or move, with the targets, and the paths of the properties that they set."""
    trees: set[str] = set()
    set_properties: set[str] = set()
    for one in requested:
        if isinstance(one, jsop.SetProperty):
            set_properties.add(paths.join(one.path, one.name))
        elif isinstance(one, (jsop.Move, jsop.Copy)):
            trees.update((one.source, one.target))
        elif not isinstance(one, jsop.Remove):
            trees.add(one.path)
    return trees, set_properties
