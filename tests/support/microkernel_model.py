"""A minimal MicroKernel: whole trees in memory, and the columns that each change writes and depends on.

It shares only the JSOP reader with the real one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hbasemk import jsop

Tree = dict[str, tuple[int, dict[str, Any]]]
"""Nodes by path: the number of the life, and the properties."""
Column = tuple[str, str, str]

_lives = itertools.count(1)


class Refused(Exception):
    """The change is invalid on its base."""


class Conflict(Exception):
    """A concurrent commit changed a column that this one depends on."""


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def name(path: str) -> str:
    return path.rpartition("/")[2]


def depth(path: str) -> int:
    return path.rstrip("/").count("/")


def below(tree: Tree, path: str) -> list[str]:
    """Return the node and its descendants."""
    return [one for one in tree if one == path or one.startswith(path.rstrip("/") + "/")]


def lives_on(before: Tree, after: Tree, path: str) -> bool:
    """Return whether a node is in both trees, in the same life."""
    return path in before and path in after and before[path][0] == after[path][0]


def apply(base: Tree, operations: list[jsop.Operation], touched: set[Column] | None = None) -> Tree:
    """Return the tree after the operations. ``touched`` receives the properties and children that they name.

    Raises Refused.
    """
    tree = {path: (life, dict(kept)) for path, (life, kept) in base.items()}
    touched = set() if touched is None else touched

    def touch(kind: str, path: str, key: str) -> None:
        if lives_on(base, tree, path):
            touched.add((kind, path, key))

    def begin(path: str, kept: dict[str, Any]) -> None:
        above = parent(path)
        if path in tree or above not in tree or name(path) in tree[above][1]:
            raise Refused(path)
        touch("c", above, name(path))
        tree[path] = (next(_lives), kept)

    def copy(source: str, target: str) -> None:
        if source not in tree:
            raise Refused(source)
        for path in sorted(below(tree, source), key=depth):
            begin(target + path[len(source) :], dict(tree[path][1]))

    def remove(path: str) -> None:
        touch("c", parent(path), name(path))
        for one in below(tree, path):
            del tree[one]

    for operation in operations:
        if isinstance(operation, jsop.AddNode):
            for path, node in operation.node.walk(operation.path):
                begin(path, dict(node.properties))
        elif isinstance(operation, jsop.SetProperty):
            if operation.path not in tree:
                raise Refused(operation.path)
            touch("p", operation.path, operation.name)
            if operation.value is None:
                tree[operation.path][1].pop(operation.name, None)
            elif operation.path.rstrip("/") + "/" + operation.name in tree:
                raise Refused(operation.path)
            else:
                tree[operation.path][1][operation.name] = operation.value
        elif isinstance(operation, jsop.Remove):
            above = parent(operation.path)
            if operation.path != "/" and operation.path in tree:
                remove(operation.path)
            elif operation.path != "/" and above in tree and name(operation.path) in tree[above][1]:
                touch("p", above, name(operation.path))
                del tree[above][1][name(operation.path)]
            else:
                raise Refused(operation.path)
        elif isinstance(operation, jsop.Move):
            if operation.source == "/" or (operation.target + "/").startswith(operation.source + "/"):
                raise Refused(operation.source)
            copy(operation.source, operation.target)
            remove(operation.source)
        elif isinstance(operation, jsop.Copy):
            before = dict(tree)
            copy_of = {path: before[path] for path in below(before, operation.source)}
            if not copy_of:
                raise Refused(operation.source)
            for path in sorted(copy_of, key=depth):
                begin(operation.target + path[len(operation.source.rstrip("/")) :].rstrip("/"), dict(copy_of[path][1]))
        else:
            raise TypeError(operation)
    return tree


def depends_on(operation: jsop.Operation, path: str) -> bool:
    """Return whether an operation reads or writes the subtree that a removal of ``path`` removes."""

    def inside(one: str, other: str) -> bool:
        return (one.rstrip("/") + "/").startswith(other.rstrip("/") + "/")

    if isinstance(operation, jsop.Remove):
        return False
    if isinstance(operation, jsop.SetProperty):
        return inside(operation.path.rstrip("/") + "/" + operation.name, path)
    both = [operation.source, operation.target] if isinstance(operation, jsop.Move | jsop.Copy) else [operation.path]
    return any(inside(one, path) or inside(path, one) for one in both)


@dataclass
class Effect:
    """The difference of two trees: new nodes (None: removed), and the columns that it writes and depends on."""

    nodes: dict[str, tuple[int, dict[str, Any]] | None] = field(default_factory=dict)
    props: dict[str, dict[str, Any | None]] = field(default_factory=dict)
    writes: set[Column] = field(default_factory=set)
    depends_on: set[Column] = field(default_factory=set)


def effect(before: Tree, after: Tree, touched: Iterable[Column] = ()) -> Effect:
    """Return the net effect between two trees, by the protocol's table. It depends on what was ``touched`` without effect."""
    found = Effect()
    for kind, path, key in touched:
        if not lives_on(before, after, path):
            continue
        if kind == "p" and before[path][1].get(key) == after[path][1].get(key):
            found.depends_on |= {("p", path, key), ("d", path, "")}
        elif kind == "c" and not {path.rstrip("/") + "/" + key} & (before.keys() | after.keys()):
            found.depends_on |= {("c", path, key), ("d", path, "")}
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        if old is not None and new is not None and old[0] == new[0]:
            changed = {
                key: new[1].get(key) for key in old[1].keys() | new[1].keys() if old[1].get(key) != new[1].get(key)
            }
            if changed:
                found.props[path] = changed
                columns = {("p", path, key) for key in changed}
                found.writes |= columns | {("l", path, "")}
                found.depends_on |= columns | {("d", path, "")}
            continue
        if old == new:
            continue
        found.nodes[path] = new
        found.writes |= {("d", path, ""), ("l", path, "")}
        if new is not None:
            found.writes |= {("p", path, key) for key in new[1]}
        found.depends_on.add(("l", path, ""))
        above = parent(path)
        kept = before.get(above), after.get(above)
        if kept[0] is not None and kept[1] is not None and kept[0][0] == kept[1][0]:
            found.writes |= {("c", above, name(path)), ("l", above, "")}
            found.depends_on |= {("c", above, name(path)), ("d", above, "")}
    return found


def same(one: Tree, other: Tree) -> bool:
    """Return whether two trees are equal but for the lives of their nodes."""
    return {path: kept for path, (_, kept) in one.items()} == {path: kept for path, (_, kept) in other.items()}


def put_on(tree: Tree, change: Effect) -> Tree:
    """Return a tree with an effect that does not conflict with it."""
    result = dict(tree)
    for path, node in change.nodes.items():
        if node is None:
            result.pop(path, None)
        else:
            result[path] = (node[0], dict(node[1]))
    for path, changed in change.props.items():
        life, kept = result[path]
        kept = {key: value for key, value in {**kept, **changed}.items() if value is not None}
        result[path] = (life, kept)
    return result


@dataclass
class Line:
    """A branch: its base's place in trunk, its trees."""

    base: int
    trees: list[Tree]
    ids: list[str]
    wrote: list[set[Column]]
    """The properties that each revision wrote, including those that kept their value."""
    was_tried: bool = False
    """Whether a merge has failed. A reset may then return a new revision."""

    def effect(self, base: Tree) -> Effect:
        """Return the branch's net effect on its base."""
        return effect(base, self.trees[-1], set().union(*self.wrote))


class Model:
    """Trunk: the tree of each revision, and the columns that it wrote."""

    def __init__(self, head: str) -> None:
        self.ids = [head]
        self.trees: list[Tree] = [{"/": (0, {})}]
        self.wrote: list[set[Column]] = [set()]

    def plan(self, operations: list[jsop.Operation], base: int) -> tuple[list[jsop.Operation], Effect] | None:
        """Return the effect of a commit on a base, or None without effect; raises Refused and Conflict."""
        while True:
            touched: set[Column] = set()
            after = apply(self.trees[base], operations, touched)
            change = effect(self.trees[base], after, touched)
            if not self.conflicts(change, base):
                return None if not change.writes or same(self.trees[base], after) else (operations, change)
            gone = [
                one
                for one in operations
                if isinstance(one, jsop.Remove)
                and one.path in self.trees[base]
                and one.path not in self.trees[-1]
                and not any(depends_on(other, one.path) for other in operations)
            ]
            if not gone:
                raise Conflict
            operations = [one for one in operations if one not in gone]

    def conflicts(self, change: Effect, base: int) -> bool:
        """Return whether trunk changed a column after a base on which an effect depends."""
        return any(wrote & change.depends_on for wrote in self.wrote[base + 1 :])

    def add(self, revision: str, change: Effect) -> None:
        """Append a revision to trunk."""
        self.ids.append(revision)
        self.trees.append(put_on(self.trees[-1], change))
        self.wrote.append(change.writes)
