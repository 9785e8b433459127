"""A snapshot with changes on top: operations applied in order, each seeing the ones before it.

Staging validates, and yields what step 6 of the protocol writes and what step 7 reads back. Nodes are loaded from
the snapshot when an operation needs them, those that are known beforehand in one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hbasemk.errors import InvalidChangeError, InvalidValueError, LimitError, NodeExistsError, NodeNotFoundError
from hbasemk.format import limits, paths, revisions, values
from hbasemk.format.node import NodeState, decode_property
from hbasemk.format.values import PropertyValue
from hbasemk.kernel.commit.operations import AddNode, CopyNode, Increment, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import CHILDREN_PAGE, Reader

MANY: Final = 32
"""So many new children of one node are looked for in the list of its children, not one by one."""


class StagedNode:
    """One node as the operations so far have left it.

    ``base`` is its state in the snapshot. ``max_poll_age``: its life began here. ``written`` holds the properties written
    (None: removed) and ``children`` the child columns written; ``kids`` every staged node right below. ``repeated`` holds
    the properties that were given the value of the snapshot, and ``withdrawn`` the children that were added and removed
    again: a commit writes nothing there and relies on the snapshot.
    """

    __slots__ = ("base", "children", "exists", "fresh", "kids", "loaded", "path", "repeated", "withdrawn", "written")

    def __init__(self, path: str, base: NodeState | None) -> None:
        self.path = path
        self.base = base
        self.exists = base is not None
        self.fresh = False
        self.loaded = False
        self.written: dict[str, bytes | None] = {}
        self.children: dict[str, bool] = {}
        self.kids: dict[str, StagedNode] = {}
        # Most nodes of a large commit need neither.
        self.repeated: dict[str, None] | None = None
        self.withdrawn: dict[str, None] | None = None

    def encoded(self, name: str) -> bytes | None:
        """The stored bytes of a property as it now is, None when it has none."""
        if name in self.written:
            return self.written[name]
        return self.base.encoded.get(name) if self.base and not self.fresh else None

    def all_encoded(self) -> dict[str, bytes]:
        """All properties as they now are."""
        found = dict(self.base.encoded) if self.base and not self.fresh else {}
        for name, data in self.written.items():
            if data is None:
                found.pop(name, None)
            else:
                found[name] = data
        return found

    def write(self, name: str, data: bytes | None) -> None:
        """Set (None: remove) a property. Setting what the snapshot has writes nothing, and relies on that it still has it."""
        before = self.base.encoded.get(name) if self.base and not self.fresh else None
        if data == before:
            self.written.pop(name, None)
            if self.repeated is None:
                self.repeated = {}
            self.repeated[name] = None
        else:
            self.written[name] = data

    @property
    def dirty(self) -> bool:
        """Whether anything of this node differs from the snapshot."""
        return self.exists != (self.base is not None) or self.fresh or bool(self.written) or bool(self.children)

    @property
    def relies(self) -> bool:
        """Whether a change without effect relies on what the snapshot has of this node."""
        return bool(self.repeated or self.withdrawn) and self.exists and self.base is not None and not self.fresh


class Staging:
    """The overlay of one commit over one snapshot.

    With ``reads`` it notes there what was read, by its callers and by operations whose effect depends on it.
    """

    def __init__(self, reader: Reader, snapshot: View, reads: ReadSet | None = None) -> None:
        self.snapshot = snapshot
        self.reads = reads
        self._reader = reader
        self._nodes: dict[str, StagedNode] = {}
        self._amount = 0

    # --- reading -----------------------------------------------------------------------------------------

    def find(self, path: str) -> StagedNode | None:
        """The node at a path as it now is, None when there is none."""
        self._note(path)
        return self._find(path)

    def _find(self, path: str) -> StagedNode | None:
        node = self._node(path)
        return node if node.exists else None

    def _note(self, path: str) -> None:
        if self.reads is not None:
            self.reads.node(path)

    def _note_list(self, path: str) -> None:
        if self.reads is not None:
            self.reads.children(path)

    def children(self, path: str) -> list[str] | None:
        """The names of a node's children as they now are, in the order of their UTF-8 bytes; None without a node."""
        self._note_list(path)
        node = self._find(path)
        if node is None:
            return None
        names = set() if node.fresh or node.base is None else set(self._reader.children(self.snapshot, path))
        for name, kid in node.kids.items():
            if kid.exists:
                names.add(name)
            else:
                names.discard(name)
        return sorted(names, key=paths.encode)

    def subtree(self, path: str) -> Iterator[StagedNode]:
        """The node and everything below it as they now are, parents before children."""
        for node in self._below(path):
            self._note(node.path)
            self._note_list(node.path)
            yield node

    def _below(self, path: str) -> Iterator[StagedNode]:
        top = self._require(path)
        self._load_subtree(top)
        pending = [top]
        while pending:
            node = pending.pop()
            yield node
            pending += [kid for kid in node.kids.values() if kid.exists]

    def staged(self) -> Iterator[StagedNode]:
        """Every node that differs from the snapshot, or that a change without effect relies on."""
        return (node for node in self._nodes.values() if node.dirty or node.relies)

    def _node(self, path: str) -> StagedNode:
        node = self._nodes.get(path)
        if node is None:
            above = None if path == paths.ROOT else self._nodes.get(paths.parent(path))
            if above is not None and (above.base is None or above.loaded):
                # What is below no node is none, and of a subtree that was loaded all that is there is known.
                return self._put(path, None)
            self.load((path,))
            node = self._nodes[path]
        return node

    def load(self, wanted: Sequence[str]) -> None:
        """Have these nodes at hand: one round trip for each batch of those that are not."""
        missing = [path for path in dict.fromkeys(wanted) if path not in self._nodes]
        for path, state in self._reader.nodes(self.snapshot, missing).items():
            self._put(path, state)

    def _load_for(self, operations: Sequence[Operation]) -> None:
        """Load what the operations are known to need; of many new children of one node, whether they are there."""
        wanted = needed(operations)
        added: dict[str, list[str]] = {}
        for operation in operations:
            if isinstance(operation, AddNode) and operation.path != paths.ROOT:
                added.setdefault(paths.parent(operation.path), []).append(operation.path)
        absent: set[str] = set()
        for parent, children in added.items():
            new = parent != paths.ROOT and parent in added.get(paths.parent(parent), ())
            if len(children) >= MANY and not new:
                absent.update(self._not_there(parent, children))
        self.load([path for path in wanted if path not in absent] if absent else wanted)
        for path in absent:
            self._put(path, None)

    def _not_there(self, parent: str, children: Sequence[str]) -> list[str]:
        """Return those of many paths below ``parent`` that are absent by a list of its children.

        One round trip for each 10,000 paths.
        """
        by_name = {paths.encode(paths.name(path)): path for path in children}
        ordered = sorted(by_name)
        absent: list[str] = []
        for at in range(0, len(ordered), CHILDREN_PAGE):
            names = ordered[at : at + CHILDREN_PAGE]
            found, end = self._reader.existing(self.snapshot, parent, names)
            there = set(found)
            absent += [by_name[name] for name in names if name not in there and (end is None or name < end)]
        return absent

    def _put(self, path: str, state: NodeState | None) -> StagedNode:
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = StagedNode(path, state)
        return node

    def _load_subtree(self, top: StagedNode) -> None:
        if top.loaded or top.base is None:
            return
        for level in self._reader.levels(self.snapshot, top.path):
            for state in level:
                node = self._put(state.path, state)
                self._nodes[paths.parent(state.path)].kids[paths.name(state.path)] = node
                node.loaded = True
        top.loaded = True

    def _require(self, path: str) -> StagedNode:
        node = self._find(path)
        if node is None:
            if self._nodes[path].base is not None:
                raise NodeNotFoundError(
                    f"there is no node at {path} any more: an earlier operation of this commit removed it",
                    path=path,
                    revision=revisions.to_text(self.snapshot.revision),
                )
            raise self._reader.missing(self.snapshot, path)
        return node

    # --- operations --------------------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply operations in order; raises what is wrong with the first that cannot be done.

        The nodes that they are known to need are loaded in one batch.

        The errors are NodeNotFoundError, NodeExistsError, InvalidChangeError, InvalidPathError and
        InvalidValueError. After an error the staging must not be used further.
        """
        self._load_for(operations)
        for operation in operations:
            if isinstance(operation, SetProperty):
                self._set(operation)
            elif isinstance(operation, AddNode):
                self._add(operation)
            elif isinstance(operation, Increment):
                self._increment(operation)
            elif isinstance(operation, RemoveNode):
                self._remove(operation.path)
            elif isinstance(operation, MoveNode):
                self._move(operation)
            else:
                self._copy(operation.source, operation.target)

    def _set(self, operation: SetProperty) -> None:
        node = self._require(operation.path)
        paths.check_name(operation.name)
        self._write(
            node,
            operation.name,
            None if operation.value is None else _encode(operation.path, operation.name, operation.value),
        )

    def _write(self, node: StagedNode, name: str, data: bytes | None) -> None:
        kid = node.kids.get(name)
        if data is not None and kid is not None and kid.exists:
            raise name_conflict(node.path, name)
        node.write(name, data)

    def _add(self, operation: AddNode) -> None:
        node = self._begin(operation.path)
        for name, value in operation.properties.items():
            paths.check_name(name)
            node.written[name] = _encode(operation.path, name, value)

    def _increment(self, operation: Increment) -> None:
        node = self._require(operation.path)
        paths.check_name(operation.name)
        data = node.encoded(operation.name)
        current = 0 if data is None else decode_property(operation.path, operation.name, data)
        if isinstance(current, bool) or not isinstance(current, (int, float)):
            raise InvalidChangeError(
                f"property {operation.name!r} of {operation.path} cannot be incremented: it is {limits.shown(current)}, "
                "no number",
                path=operation.path,
            )
        if isinstance(operation.amount, bool) or not isinstance(operation.amount, (int, float)):
            raise InvalidChangeError(
                f"property {operation.name!r} of {operation.path} cannot be incremented by {limits.shown(operation.amount)}",
                path=operation.path,
            )
        try:
            total = current + operation.amount
        except OverflowError:
            raise InvalidChangeError(
                f"property {operation.name!r} of {operation.path} cannot be incremented by "
                f"{limits.shown(operation.amount)}: the whole "
                "number there is too large for a fraction to be added",
                path=operation.path,
            ) from None
        self._write(node, operation.name, _encode(operation.path, operation.name, total))

    def _begin(self, path: str) -> StagedNode:
        """Begin a node's life: its parent must exist, it must not."""
        if path == paths.ROOT:
            raise NodeExistsError("the root always exists and cannot be added", path=path, revision=None)
        paths.check_new(path)
        self._amount += limits.size(path)
        if self._amount > limits.MAX_PATHS:
            raise LimitError(
                f"the paths of the nodes that one commit adds have more than {limits.MAX_PATHS} bytes together "
                f"({path[:60]!r}… is "
                "one of them). Make several commits of it."
            )
        node = self._node(path)
        if node.exists:
            raise NodeExistsError(
                f"there already is a node at {path} in revision {revisions.to_text(self.snapshot.revision)}",
                path=path,
                revision=revisions.to_text(self.snapshot.revision),
            )
        above = self._require(paths.parent(path))
        name = paths.name(path)
        if above.encoded(name) is not None:
            raise name_conflict(above.path, name)
        above.kids[name] = node
        above.children[name] = True
        node.exists = node.fresh = True
        node.written = {}
        node.children = {}
        return node

    def _remove(self, path: str) -> None:
        if path == paths.ROOT:
            raise InvalidChangeError("the root cannot be removed", path=path)
        paths.check_path(path)
        node = self._require(path)
        for below in list(self._below(path)):
            below.exists = below.fresh = False
            below.written = {}
            below.children = {}
        above = self._require(paths.parent(path))
        above.kids[paths.name(path)] = node
        if node.base is None:
            # Added and removed again: all that remains is that it was not there.
            name = paths.name(path)
            above.children.pop(name, None)
            if above.withdrawn is None:
                above.withdrawn = {}
            above.withdrawn[name] = None
        else:
            above.children[paths.name(path)] = False

    def _move(self, operation: MoveNode) -> None:
        source, target = operation
        if source == paths.ROOT:
            raise InvalidChangeError("the root cannot be moved", path=source)
        if paths.is_at_or_below(target, source):
            raise InvalidChangeError(f"{source} cannot be moved to {target}, which is itself or below it", path=source)
        self._copy(source, target)
        self._remove(source)

    def _copy(self, source: str, target: str) -> None:
        paths.check_path(source)
        paths.check_path(target)
        # What was there before: a copy into the source's own subtree does not copy itself.
        before = [(node.path, node.all_encoded()) for node in self.subtree(source)]
        for path, encoded in before:
            self._begin(paths.check_path(paths.rebase(path, source, target))).written.update(encoded)


def _encode(path: str, name: str, value: PropertyValue) -> bytes:
    """The stored bytes of a value; what is wrong with it is raised with the node and the property."""
    try:
        return values.encode(value)
    except (InvalidValueError, LimitError) as error:
        raise type(error)(
            f"property {limits.shown(name)} of {limits.shown(path)}: {error.message}", path=path, name=name
        ) from None


def name_conflict(path: str, name: str) -> InvalidChangeError:
    """The error for a name that would be a property and a child of one node."""
    return InvalidChangeError(
        f"{name!r} cannot be a property and a child of {path}: a name is one of the two. Remove the other first, or take "
        "another name.",
        path=path,
    )


def needed(operations: Iterable[Operation]) -> list[str]:
    """The paths whose nodes the operations will ask for first; without those below what they add themselves."""
    wanted: dict[str, None] = {}
    added: set[str] = set()
    for operation in operations:
        if isinstance(operation, (MoveNode, CopyNode)):
            wanted[operation.source] = wanted[operation.target] = None
            if operation.target != paths.ROOT:
                wanted[paths.parent(operation.target)] = None
            continue
        path = operation.path
        if isinstance(operation, (AddNode, RemoveNode)) and path != paths.ROOT:
            above = paths.parent(path)
            if above in added:
                added.add(path)
                continue
            wanted[above] = None
        wanted[path] = None
        if isinstance(operation, AddNode):
            added.add(path)
    return [paths.check_path(path) for path in wanted]
