"""A minimal model of transactions: whole trees in memory, and the columns that each commit writes and depends on.

It shares only the types of values with the real code. The columns are those of the table in section 4 of ``docs/protocol.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, TypeAlias

from tests.support.microkernel_model import Conflict, Refused, name, parent
from tests.support.staged_model import Node, Staged, Tree
from tests.support.typed_values import LARGEST, ZERO, Value, all_typed, check_size, exact, number, typed

Column: TypeAlias = tuple[str, str, str]
"""A kind (``p`` property, ``s`` its slots, ``c`` child, ``d`` life, ``l`` last revision), a path and a name."""
Operation: TypeAlias = tuple[Any, ...]
"""The name of a method of :class:`~hbasemk.Transaction`, and its arguments."""
READS: Final = frozenset({"exists", "get", "properties", "children", "subtree", "load"})


def key(text: str) -> bytes:
    """Return the bytes that order names."""
    return text.encode("utf-8", "surrogatepass")


def _is_long(value: Value) -> bool:
    return value[0] == "int" and abs(value[1]) >= LARGEST


def join(path: str, child: str) -> str:
    return f"{path.rstrip('/')}/{child}"


def is_within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


@dataclass
class Change:
    """What a commit writes and depends on, and the properties that it wrote, by path."""

    writes: set[Column] = field(default_factory=set)
    depends_on: set[Column] = field(default_factory=set)
    creates: set[Column] = field(default_factory=set)
    """Properties that adjusts create; two commits may create the same one."""
    reads: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    changed: dict[str, tuple[str, set[str]]] = field(default_factory=dict)

    def hit(self, other: Change) -> bool:
        """Return whether another commit, which this one has not seen, changed what this one depends on."""
        return bool(
            other.writes & (self.depends_on | self.creates)
            or other.creates & self.depends_on
            or any(kind in "psd" and path in self.reads for kind, path, _ in other.writes | other.creates)
            or any(kind in "cd" and path in self.lists for kind, path, _ in other.writes)
        )


class ModelTransaction:
    """Operations on a tree. ``deleted`` holds the paths of nodes that existed before."""

    def __init__(self, tree: Tree, deleted: Iterable[str], *, serializable: bool) -> None:
        self._tree, self._deleted, self._serializable = tree, frozenset(deleted), serializable
        self._nodes: dict[str, Staged] = {}
        self._known: set[str] = set()
        """Nodes that an operation has staged as children."""
        self._reads: set[str] = set()
        self._lists: set[str] = set()
        self._expected: set[str] = set()

    def run(self, operations: Iterable[Operation]) -> list[Any]:
        """Apply operations in order, and return the results of the reads. Raises Refused with the name of the error."""
        results = []
        for kind, *arguments in operations:
            found = getattr(self, f"_{kind}")(*arguments)
            if kind in READS:
                results.append(found)
        return results

    def _node(self, path: str) -> Staged:
        return self._nodes.setdefault(path, Staged(self._tree.get(path)))

    def _require(self, path: str) -> Staged:
        node = self._node(path)
        if not node.exists:
            raise Refused("NodeDeletedError" if node.base is None and path in self._deleted else "NodeNotFoundError")
        return node

    def _children_of(self, path: str) -> list[str]:
        found = {one for one in (*self._tree, *self._nodes) if one != "/" and parent(one) == path}
        return sorted((one for one in found if self._node(one).exists), key=key)

    def _below(self, path: str) -> list[str]:
        if path in self._tree:
            self._known |= {one for one in self._tree if one != path and is_within(one, path)}
        found = [path]
        for one in found:
            found += self._children_of(one)
        return found

    def _has_child(self, path: str, name: str) -> bool:
        return join(path, name) in self._known and self._node(join(path, name)).exists

    # --- operations --------------------------------------------------------------------------------------

    def _write(self, path: str, name: str, value: Value | None) -> None:
        if value is not None and self._has_child(path, name):
            raise Refused("InvalidChangeError")
        self._node(path).write(name, value)

    def _set(self, path: str, name: str, value: Any) -> None:
        self._require(path)
        check_size(value)
        self._write(path, name, typed(value))

    def _unset(self, path: str, name: str) -> None:
        self._require(path)
        self._write(path, name, None)

    def _increment(self, path: str, name: str, by: int | float) -> None:
        node = self._require(path)
        before = node.value(name) or ZERO
        result = before
        if by or before[0] != "json":
            current = number(before)
            try:
                total = None if current is None else current + by
            except OverflowError:
                total = None
            if total is None:
                raise Refused("InvalidChangeError")
            check_size(total)
            result = typed(total)
        self._write(path, name, result)
        node.exact.add(name)

    def _adjust(self, path: str, name: str, by: int | float) -> None:
        node = self._require(path)
        before = node.value(name)
        if before is not None and exact(before) is None:
            raise Refused("InvalidChangeError")
        check_size(by)
        if before is None and self._has_child(path, name):
            raise Refused("InvalidChangeError")
        if by:
            if before is None and (node.is_new or name in node.written):
                node.write(name, ZERO)
            total = node.adjusted.pop(name, Fraction(0)) + Fraction(by)
            if total or node.value(name) is None:
                node.adjusted[name] = total
            after = node.value(name) or ZERO
            if _is_long(after) and not (_is_long(before or ZERO) and abs(after[1]) < abs((before or ZERO)[1])):
                raise Refused("LimitError")
        if self._serializable and name not in node.written and name not in node.adjusted:
            node.repeated.add(name)

    def _add(self, path: str, properties: Mapping[str, Any]) -> None:
        self._begin(path).written.update(all_typed(properties))

    def _begin(self, path: str) -> Staged:
        if path == "/" or self._node(path).exists:
            raise Refused("NodeExistsError")
        above = self._require(parent(path))
        if above.value(name(path)) is not None:
            raise Refused("InvalidChangeError")
        above.children[name(path)] = True
        self._known.add(path)
        node = self._node(path)
        node.exists = node.is_new = True
        return node

    def _remove(self, path: str) -> None:
        if path == "/":
            raise Refused("InvalidChangeError")
        node = self._require(path)
        for one in self._below(path):
            self._node(one).end()
        above = self._require(parent(path))
        self._known.add(path)
        if node.base is None:
            above.children.pop(name(path), None)
            above.withdrawn.add(name(path))
        else:
            above.children[name(path)] = False

    def _move(self, source: str, target: str) -> None:
        if source == "/" or is_within(target, source):
            raise Refused("InvalidChangeError")
        self._copy(source, target)
        self._remove(source)

    def _copy(self, source: str, target: str) -> None:
        self._require(source)
        before = {}
        for one in self._subtree(source):
            before[one] = Staged(None)
            before[one].take(self._node(one))
        for one, node in before.items():
            self._begin(target + one[len(source.rstrip("/")) :].rstrip("/")).take(node)

    def _expect(self, path: str, version: tuple[int, int] | str | None) -> None:
        """``version`` is a life and a revision, None for no node, or a text for a version that no node has."""
        base = self._tree.get(path)
        if version != (None if base is None else (base.life, base.version)):
            raise Refused("VersionMismatchError")
        self._expected.add(path)

    # --- reads -------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Staged | None:
        self._reads.add(path)
        node = self._node(path)
        return node if node.exists else None

    def _exists(self, path: str) -> bool:
        return self._find(path) is not None

    def _get(self, path: str, name: str) -> Value | None:
        node = self._find(path)
        return None if node is None else node.value(name)

    def _properties(self, path: str) -> dict[str, Value]:
        self._reads.add(path)
        return self._require(path).values()

    def _children(self, path: str) -> list[str]:
        self._lists.add(path)
        self._require(path)
        return [name(one) for one in self._children_of(path)]

    def _subtree(self, path: str) -> dict[str, dict[str, Value]]:
        if self._find(path) is None:
            return {}
        found = self._below(path)
        self._reads.update(found)
        self._lists.update(found)
        return {one: self._node(one).values() for one in found}

    def _load(self, paths: Iterable[str]) -> dict[str, dict[str, Value] | None]:
        return {path: None if (node := self._find(path)) is None else node.values() for path in paths}

    # --- the commit --------------------------------------------------------------------------------------

    def change(self) -> Change:
        """Return what the commit writes and depends on, by the protocol's table."""
        found = Change(reads=set(self._expected))
        if self._serializable:
            found.reads |= self._reads
            found.lists |= self._lists
        for path, node in self._nodes.items():
            if node.base is None and not node.exists:
                continue
            if node.is_new:
                found.changed[path] = "added", set(node.written)
                found.writes |= {("d", path, ""), ("l", path, "")} | {("p", path, one) for one in node.written}
                found.writes |= {("c", path, one) for one in node.children}
                found.depends_on |= {("l", path, "")} if node.base is not None else set()
            elif not node.exists:
                found.changed[path] = "removed", set()
                found.writes |= {("d", path, ""), ("l", path, "")}
                found.depends_on.add(("l", path, ""))
            elif node.is_changed or node.repeated or node.withdrawn:
                self._add_kept(found, path, node)
        return found

    def _add_kept(self, found: Change, path: str, node: Staged) -> None:
        created = node.created
        through_slots = {one for one in node.adjusted if one not in node.written}
        if node.is_changed:
            found.changed[path] = "changed", {*node.written, *created}
            found.writes.add(("l", path, ""))
        written = {("p", path, one) for one in node.written}
        listed = {("c", path, one) for one in node.children}
        found.writes |= written | listed | {("s", path, one) for one in through_slots}
        found.creates |= {("p", path, one) for one in created}
        found.depends_on |= written | listed | {("d", path, "")}
        found.depends_on |= {("p", path, one) for one in node.repeated if one not in node.written}
        for one in node.withdrawn - node.children.keys():
            found.depends_on |= {("c", path, one), ("p", path, one)}
        for one in (*(one for one, value in node.written.items() if value is not None), *created):
            found.depends_on |= {("c", path, one)} if one not in node.children else set()
        for one, is_present in node.children.items():
            found.depends_on |= {("p", path, one)} if is_present and one not in node.written else set()
        names = {*node.exact, *node.written, *node.repeated} if self._serializable else node.exact
        found.depends_on |= {("s", path, one) for one in names}
        if self._serializable:
            found.depends_on |= {("p", path, one) for one in through_slots - set(created)}

    def has_name_conflict(self) -> bool:
        """Return whether a property that is set has the name of a child."""
        return any(
            join(path, one) in self._tree
            for path, node in self._nodes.items()
            if node.exists and not node.is_new and node.base is not None
            for one in (*(one for one, value in node.written.items() if value is not None), *node.created)
            if one not in node.children
        )

    def put_on(self, head: Tree, revision: int) -> Tree:
        """Return the tree after the commit, at the head."""
        tree = dict(head)
        for path, node in self._nodes.items():
            if node.exists and (node.is_new or node.written or node.adjusted):
                tree[path] = node.after(None if node.is_new else head[path], revision)
            elif node.base is not None and not node.exists:
                del tree[path]
        return tree


class TransactionModel:
    """Trunk: the tree of each revision, and the commits. Revisions are numbers from 0."""

    def __init__(self) -> None:
        self.trees: list[Tree] = [{"/": Node(0)}]
        self.changes: list[Change] = [Change()]
        self.deleted: list[dict[str, int]] = [{}]
        """The revisions that deleted the paths without a node."""

    @property
    def head(self) -> int:
        return len(self.trees) - 1

    def commit(self, base: int, operations: Iterable[Operation], *, serializable: bool) -> tuple[int, list[Any]]:
        """Return the revision (the base without effect) and the results of the reads.

        Raises Refused, and Conflict, which says whether a property also has the name of a child.
        """
        made = ModelTransaction(self.trees[base], self.deleted[base], serializable=serializable)
        results = made.run(operations)
        change = made.change()
        if any(change.hit(other) for other in self.changes[base + 1 :]):
            raise Conflict(made.has_name_conflict())
        if made.has_name_conflict():
            raise Refused("InvalidChangeError")
        if not change.changed:
            return base, results
        revision = self.head + 1
        before, after = self.trees[-1], made.put_on(self.trees[-1], revision)
        self.trees.append(after)
        self.changes.append(change)
        gone = {**self.deleted[-1], **dict.fromkeys(before.keys() - after.keys(), revision)}
        self.deleted.append({path: at for path, at in gone.items() if path not in after})
        return revision, results

    def touching(self, path: str, until: int) -> Iterator[int]:
        """Yield the revisions from ``until`` down that changed something in a subtree."""
        return (one for one in range(until, 0, -1) if any(is_within(at, path) for at in self.changes[one].changed))
