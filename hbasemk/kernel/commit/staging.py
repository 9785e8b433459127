"""An overlay of changes over a view: operations are applied in order, and each sees the earlier ones.

Staging validates operations and yields the staged nodes, from which the change set is built. It loads nodes from the
view when an operation needs them; nodes that are known to be needed are loaded in one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hbasemk.errors import InvalidChangeError, LimitError, NodeExistsError, NodeNotFoundError
from hbasemk.format import limits, paths, revisions
from hbasemk.format.exact import Exact
from hbasemk.format.limits import shortened
from hbasemk.format.node import NodeState, encode_property
from hbasemk.kernel.batches import batched
from hbasemk.kernel.commit import numbers
from hbasemk.kernel.commit.operations import (
    AddEncoded,
    AddNode,
    Adjust,
    AdjustExact,
    Expect,
    Increment,
    MoveNode,
    Operation,
    RemoveNode,
    Require,
    SetEncoded,
    SetProperty,
    needed_by,
)
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import CHILDREN_PAGE, Reader

MANY: Final = 32
"""From this number of new children of one node on, a range read of its children shows which exist."""


class Staging:
    """The changes of one commit over one view.

    If ``reads`` is given, it records there the reads of callers and of operations whose effect depends on a read.
    ``expected`` holds the versions that operations required, by path. The nodes at the paths in ``absent`` are taken for
    absent, without a read.
    """

    def __init__(self, reader: Reader, view: View, reads: ReadSet | None = None, absent: Iterable[str] = ()) -> None:
        self.view = view
        self.reads = reads
        self.expected: dict[str, str | None] = {}
        self._reader = reader
        self._nodes: dict[str, StagedNode] = {path: StagedNode(path, None) for path in absent}
        self._path_bytes = 0

    # --- reading -----------------------------------------------------------------------------------------

    def find(self, path: str) -> StagedNode | None:
        """Return the node at a path with the changes so far, or None if it does not exist."""
        self._record_node(path)
        return self._find(path)

    def child(self, path: str, name: str) -> StagedNode | None:
        """Return a child as :meth:`find`; None also if a node cannot have its path, because it is too long."""
        child = paths.join(path, name)
        return self.find(child) if paths.is_path(child) else None

    def _find(self, path: str) -> StagedNode | None:
        node = self._node(path)
        return node if node.exists else None

    def _record_node(self, path: str) -> None:
        if self.reads is not None:
            self.reads.node(path)

    def _record_list(self, path: str) -> None:
        if self.reads is not None:
            self.reads.children(path)

    def children(self, path: str, after: str | None = None, limit: int | None = None) -> list[str] | None:
        """Return at most ``limit`` names of a node's children after ``after``, in the order of their UTF-8 bytes.

        None if the node does not exist. Reads one more name for each child after ``after`` that was removed.
        """
        self._record_list(path)
        node = self._find(path)
        if node is None:
            return None
        staged = {name: child for name, child in node.staged_children.items() if after is None or name > after}
        removed = {name for name, child in staged.items() if not child.exists}
        names: set[str] = set()
        if node.base is not None and not node.is_new:
            most = None if limit is None else limit + len(removed)
            names.update(self._reader.children(self.view, path, after, most))
        return sorted((names | staged.keys()) - removed, key=paths.encode)[:limit]

    def subtree(self, path: str) -> Iterator[StagedNode]:
        """Yield the node and its descendants with the changes so far, parents first."""
        for node in self._below(path):
            self._record_node(node.path)
            self._record_list(node.path)
            yield node

    def _below(self, path: str) -> Iterator[StagedNode]:
        top = self._require(path)
        self._load_subtree(top)
        pending = [top]
        while pending:
            node = pending.pop()
            yield node
            pending += [child for child in node.staged_children.values() if child.exists]

    def nodes(self) -> Iterable[StagedNode]:
        """Return all nodes that were loaded or changed."""
        return self._nodes.values()

    def _node(self, path: str) -> StagedNode:
        node = self._nodes.get(path)
        if node is None:
            if self._is_below_known(path):
                return self._put(path, None)
            self.load((path,))
            node = self._nodes[path]
        return node

    def _is_below_known(self, path: str) -> bool:
        """Return whether a node that is not loaded cannot exist in the view.

        A missing node has no descendants, and a loaded subtree is known completely.
        """
        parent = None if path == paths.ROOT else self._nodes.get(paths.parent(path))
        return parent is not None and parent.has_known_children

    def not_loaded(self, needed: Iterable[str]) -> list[str]:
        """Return which of these nodes are not loaded yet."""
        return [path for path in dict.fromkeys(needed) if path not in self._nodes]

    def load(self, needed: Iterable[str]) -> None:
        """Load these nodes, unless they are loaded already. One round trip per batch; none below a node known to be absent."""
        unknown = []
        for path in dict.fromkeys(needed):
            if path in self._nodes:
                continue
            if self._is_below_known(path):
                self._put(path, None)
            else:
                unknown.append(path)
        for path, state in self._reader.nodes(self.view, unknown).items():
            self._put(path, state)

    def _load_for(self, operations: Sequence[Operation]) -> None:
        """Load the nodes that the operations are known to need; of many new children, only whether they exist."""
        needed, added = needed_by(operations)
        # A dict keeps them in the order of their keys, in which a store on a B-tree inserts them faster.
        absent: dict[str, StagedNode] = {}
        for parent, children in added.items():
            if len(children) >= MANY:
                unknown = self.not_loaded(children)
                if unknown and not self._is_below_known(unknown[0]):
                    absent.update((path, StagedNode(path, None)) for path in self._absent_children(parent, unknown))
        self.load([path for path in needed if path not in absent] if absent else needed)
        self._nodes.update(absent)

    def _absent_children(self, parent: str, children: Sequence[str]) -> list[str]:
        """Return which of these children of ``parent`` are absent, by range reads of its child columns.

        One round trip for each 10,000 paths.
        """
        by_name = {paths.encode(paths.name(path)): path for path in children}
        absent: list[str] = []
        for names in batched(sorted(by_name), CHILDREN_PAGE):
            found, end = self._reader.existing(self.view, parent, names)
            present = set(found)
            absent += [by_name[name] for name in names if name not in present and (end is None or name < end)]
        return absent

    def _put(self, path: str, state: NodeState | None) -> StagedNode:
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = StagedNode(path, state)
        return node

    def _load_subtree(self, top: StagedNode, target: str | None = None) -> None:
        """Load the nodes below a node. Raises LimitError if a commit cannot add so many below ``target``."""
        if top.loaded or top.base is None:
            return
        longer = 0 if target is None else limits.size(target) - limits.size(top.path)
        added = self._path_bytes
        whole = [top]
        for level in self._reader.levels(self.view, top.path):
            if target is not None:
                found = [state.path for state in level if state.path not in self._nodes]
                added += sum(map(limits.size, found)) + longer * len(found)
                if added > limits.MAX_PATHS:
                    raise _too_many(target)
            for state in level:
                node = self._put(state.path, state)
                self._nodes[paths.parent(state.path)].stage_child(paths.name(state.path), node)
                whole.append(node)
        # Only now: if a read fails, the program may catch the error and go on, and the levels below are unknown.
        for node in whole:
            node.loaded = True

    def _require(self, path: str) -> StagedNode:
        node = self._node(path)
        if not node.exists:
            raise self.missing(path)
        return node

    def missing(self, path: str) -> NodeNotFoundError:
        """Return the error that says why there is no node at a path. One round trip if the view has none."""
        if self._node(path).base is None:
            return self._reader.missing(self.view, path)
        return NodeNotFoundError(
            f"node {shortened(path)} does not exist: an earlier operation of this commit removed it",
            path=path,
            revision=revisions.to_text(self.view.revision),
        )

    # --- operations --------------------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply operations in order.

        The nodes that they are known to need are loaded in one batch. Raises NodeNotFoundError, NodeExistsError,
        InvalidChangeError, InvalidPathError, InvalidValueError or VersionMismatchError for the first operation that fails.
        The staging must not be used after an error.
        """
        self._load_for(operations)
        self.apply_each(operations)

    def apply_each(self, operations: Iterable[Operation]) -> None:
        """Apply operations one by one, for an iterable that reads the effects of the earlier ones.

        Loads each node at the operation that needs it, unless :meth:`load` has loaded it. Raises as :meth:`apply`.
        """
        for operation in operations:
            if isinstance(operation, SetProperty):
                self._set(operation)
            elif isinstance(operation, AddNode):
                self._add(operation)
            elif isinstance(operation, AddEncoded):
                self._begin(operation.path).written = dict(operation.properties)
            elif isinstance(operation, Increment):
                self._increment(operation)
            elif isinstance(operation, Adjust):
                self._adjust(operation)
            elif isinstance(operation, RemoveNode):
                self._remove(operation.path)
            elif isinstance(operation, MoveNode):
                self._move(operation)
            elif isinstance(operation, Expect):
                self._expect(operation)
            elif isinstance(operation, Require):
                self._record_node(operation.path)
                self._require(operation.path)
            elif isinstance(operation, SetEncoded):
                self._write(self._require(operation.path), operation.name, operation.data)
            elif isinstance(operation, AdjustExact):
                self._adjust_exactly(self._require(operation.path), operation.name, operation.by, creates=True)
            else:
                self._copy(operation.source, operation.target)

    def _expect(self, operation: Expect) -> None:
        path, version = operation
        base = self._node(path).base
        if version != (None if base is None else base.version):
            raise self._reader.version_mismatch(self.view, path, version, base)
        self.expected[path] = version

    def _set(self, operation: SetProperty) -> None:
        node = self._require(operation.path)
        paths.check_name(operation.name)
        self._write(
            node,
            operation.name,
            None if operation.value is None else encode_property(operation.path, operation.name, operation.value),
        )

    def _write(self, node: StagedNode, name: str, data: bytes | None) -> None:
        child = node.staged_children.get(name)
        if data is not None and child is not None and child.exists:
            raise name_conflict(node.path, name)
        node.write(name, data)

    def _add(self, operation: AddNode) -> None:
        node = self._begin(paths.check_new(operation.path))
        for name, value in operation.properties.items():
            paths.check_name(name)
            node.written[name] = encode_property(operation.path, name, value)

    def _increment(self, operation: Increment) -> None:
        path, name, amount = operation
        node = self._require(path)
        paths.check_name(name)
        self._write(node, name, numbers.incremented(path, name, node.encoded(name), amount))
        if node.exact is None:
            node.exact = {}
        node.exact[name] = None

    def _adjust(self, operation: Adjust) -> None:
        path, name, by = operation
        node = self._require(path)
        paths.check_name(name)
        data = node.encoded(name)
        amount = numbers.adjustment(path, name, data, by)
        self._adjust_exactly(node, name, amount)
        if amount and numbers.may_be_long(data, amount):
            numbers.check_sum(path, name, data, node.encoded(name))
        if self.reads is not None and name not in node.written and name not in (node.adjusted or ()):
            # The outcome of a serializable transaction depends on there being no other type, even if its adjusts add up to 0.
            node.repeat(name)

    def _adjust_exactly(self, node: StagedNode, name: str, amount: Exact, *, creates: bool = False) -> None:
        child = node.staged_children.get(name)
        if child is not None and child.exists and node.encoded(name) is None:
            raise name_conflict(node.path, name)
        if amount or (creates and node.encoded(name) is None):
            node.adjust(name, amount, creates=True)
            if name in node.written:
                node.drop_restored(name)

    def _begin(self, path: str) -> StagedNode:
        """Begin the life of a node at a path of :func:`paths.check_new`; its parent must exist and the node must not."""
        if path == paths.ROOT:
            raise NodeExistsError(
                "the root / always exists and cannot be added; choose a path below it", path=path, revision=None
            )
        self._path_bytes += limits.size(path)
        if self._path_bytes > limits.MAX_PATHS:
            raise _too_many(path)
        nodes = self._nodes
        above, _, name = path.rpartition("/")
        parent = nodes.get(above or paths.ROOT)
        node = nodes.get(path)
        if node is None:
            if parent is not None and parent.has_known_children:
                node = nodes[path] = StagedNode(path, None)
            else:
                node = self._node(path)
        if node.exists:
            raise NodeExistsError(
                f"node {shortened(path)} already exists in revision {revisions.to_text(self.view.revision)}",
                path=path,
                revision=revisions.to_text(self.view.revision),
            )
        if parent is None or not parent.exists:
            parent = self._require(above or paths.ROOT)
        if parent.encoded(name) is not None:
            raise name_conflict(parent.path, name)
        parent.add_child(name, node)
        # A node that does not exist has no writes that a new life must drop.
        node.exists = node.is_new = True
        return node

    def _remove(self, path: str) -> None:
        if path == paths.ROOT:
            raise InvalidChangeError("the root / cannot be removed; remove the nodes below it", path=path)
        paths.check_path(path)
        node = self._require(path)
        for below in list(self._below(path)):
            below.end_life()
        parent = self._require(paths.parent(path))
        parent.remove_child(paths.name(path), node)

    def _move(self, operation: MoveNode) -> None:
        source, target = operation
        if source == paths.ROOT:
            raise InvalidChangeError("the root / cannot be moved; move the nodes below it", path=source)
        if paths.is_at_or_below(target, source):
            raise InvalidChangeError(
                f"{shortened(source)} cannot be moved to {shortened(target)}: the target must not be the node itself or "
                "below it",
                path=source,
            )
        self._copy(source, target)
        self._remove(source)

    def _copy(self, source: str, target: str) -> None:
        paths.check_path(source)
        paths.check_path(target)
        # Read the subtree first: a copy into the source's own subtree must not copy itself.
        self._load_subtree(self._require(source), target)
        nodes = list(self.subtree(source))
        self._check_room(target, (paths.rebase(node.path, source, target) for node in nodes))
        before = []
        for node in nodes:
            adjusted = node.all_adjusted()
            before.append((node.path, node.all_encoded(adjusted), adjusted))
        for path, encoded, adjusted in before:
            self._begin(paths.check_new(paths.rebase(path, source, target))).take_properties(encoded, adjusted)

    def _check_room(self, target: str, added: Iterable[str]) -> None:
        """Raise LimitError if a commit cannot add nodes at these paths, before it builds any: a copy may double the tree."""
        if self._path_bytes + sum(map(limits.size, added)) > limits.MAX_PATHS:
            raise _too_many(target)


def _too_many(path: str) -> LimitError:
    return LimitError(
        f"the paths of the nodes that one commit adds have more than {limits.MAX_PATHS} bytes in total "
        f"(one is {limits.shown(path)}). Split the change into several commits."
    )


def name_conflict(path: str, name: str) -> InvalidChangeError:
    """Return the error for a name that would be both a property and a child of one node."""
    return InvalidChangeError(
        f"{limits.shown(name)} cannot be both a property and a child of {shortened(path)}. Remove the other one "
        "first, or use another name.",
        path=path,
    )
