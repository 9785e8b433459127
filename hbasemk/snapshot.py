"""Snapshots and their nodes: the tree at one revision, read-only."""

from __future__ import annotations

import datetime
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import chain, repeat
from typing import Final, Literal, NamedTuple, TypeVar, overload

from hbasemk import arguments
from hbasemk.errors import InvalidValueError, PropertyNotFoundError
from hbasemk.format import limits, paths, revisions
from hbasemk.format.limits import shortened
from hbasemk.format.node import NodeState
from hbasemk.format.values import Value
from hbasemk.kernel import time_travel
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View

T = TypeVar("T")

_OTHERS_SNAPSHOT: Final = (
    "the snapshot at {} belongs to another Repository object, or to this one before a fork; each Repository object has its "
    "own order of revisions. Get a snapshot of this one with at(snapshot.revision)."
)


class Node(Mapping[str, Value]):
    """A node in a snapshot: a read-only mapping of property names to values. It is always true, also without properties."""

    __slots__ = ("_snapshot", "_state")

    def __init__(self, snapshot: Snapshot, state: NodeState) -> None:
        self._snapshot = snapshot
        self._state = state

    @property
    def path(self) -> str:
        """The node's path."""
        return self._state.path

    @property
    def name(self) -> str:
        """The last name of the path; empty for the root."""
        return paths.name(self._state.path)

    @property
    def created(self) -> str:
        """The revision that created this node, or created it again."""
        return revisions.to_text(self._state.created)

    @property
    def revision(self) -> str:
        """The revision that last changed the node's properties or its set of children."""
        return revisions.to_text(self._state.revision)

    @property
    def version(self) -> str:
        """A token of the node's properties, for :meth:`Transaction.expect` and ``if_version``: 24 hexadecimal digits.

        It is equal in every process that sees the same properties in the same life of the node. Every commit that sets,
        removes or adjusts a property, or removes the node and adds it again, changes it, even if all values are the same
        afterwards. Children do not change it.
        """
        return self._state.version

    @property
    def children(self) -> list[str]:
        """The names of all children, in the order of their UTF-8 bytes. One round trip for each 10,000."""
        return self._snapshot.children(self._state.path)

    @property
    def child_count(self) -> int:
        """The number of children; see :meth:`Snapshot.child_count`."""
        return self._snapshot._instance.child_count(self._snapshot._view, self._state)

    def child(self, name: str) -> Node:
        """Return the child called ``name``. Raises NodeNotFoundError."""
        return self._snapshot[paths.join(self._state.path, arguments.node_name(name))]

    def __getitem__(self, name: str) -> Value:
        """Return the value of the property ``name``. Raises PropertyNotFoundError."""
        state = self._state
        try:
            value = (state.shareable or state.properties)[name]
        except (KeyError, TypeError):
            arguments.text(name, "name")
            raise PropertyNotFoundError(
                f"the node {shortened(self._state.path)} has no property {limits.shown(name)} in revision "
                f"{self._snapshot.revision}",
                path=self._state.path,
                name=name,
            ) from None
        return list(value) if value.__class__ is list else value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._state.encoded

    def __bool__(self) -> bool:
        """Return True, also for a node without properties."""
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.encoded)

    def keys(self) -> KeysView[str]:
        """Return the names of the properties."""
        return self._state.encoded.keys()

    def values(self) -> ValuesView[Value]:
        """Return the values of the properties."""
        state = self._state
        return (state.shareable or state.copied_lists()).values()

    def items(self) -> ItemsView[str, Value]:
        """Return the names and values of the properties; faster than a copy of the node."""
        state = self._state
        return (state.shareable or state.copied_lists()).items()

    def __len__(self) -> int:
        return len(self._state.encoded)

    def __repr__(self) -> str:
        return (
            f"<Node {self._state.path} {{{', '.join(f'{name!r}: {_shown(value)}' for name, value in self.items())}}}>"
        )


def _shown(value: Value) -> str:
    try:
        return repr(value)
    except ValueError:
        # An integer of more digits than Python converts.
        return limits.shown(value)


class NodeStatus(NamedTuple):
    """What a snapshot has at a path: a node, a deleted node, or nothing.

    ``status`` is ``present``, ``deleted`` or ``absent``: up to the snapshot, there never was a node, or collectors have
    deleted all traces of it. ``revision`` is the one that last changed the node or the set of its children, or the one that
    deleted the node; None for ``absent``.
    """

    status: Literal["present", "deleted", "absent"]
    revision: str | None


class Snapshot(Mapping[str, Node]):
    """The tree at one revision, as a read-only mapping of paths to nodes. It never changes.

    ``path in snapshot`` costs one round trip, and is False for a text that is not a path. Iteration and ``len`` read the
    whole tree.
    """

    __slots__ = ("_instance", "_view")

    def __init__(self, instance: Instance, view: View) -> None:
        self._instance = instance
        self._view = view

    @property
    def revision(self) -> str:
        """The revision's id as text."""
        return revisions.to_text(self._view.revision)

    @property
    def time(self) -> datetime.datetime:
        """The time in the revision's id, in UTC: when its commit began, by its writer's clock or the store's, or later."""
        return time_travel.id_time(self._instance, self._view.revision)

    def __getitem__(self, path: str) -> Node:
        """Return the node at ``path``. Raises NodeNotFoundError, and InvalidPathError for an invalid path."""
        return Node(self, self._instance.require(self._view, arguments.path(path)))

    def __contains__(self, path: object) -> bool:
        return paths.is_path(path) and self._instance.node(self._view, paths.plain(path)) is not None

    @overload
    def get(self, path: str) -> Node | None: ...
    @overload
    def get(self, path: str, default: Node | T) -> Node | T: ...
    def get(self, path: str, default: object = None) -> object:
        """Return the node at ``path``, or ``default`` if no node exists there or the text is not a path."""
        state = self._instance.node(self._view, paths.plain(path)) if paths.is_path(path) else None
        return default if state is None else Node(self, state)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the paths of the whole tree. Reads the whole tree; :meth:`walk` reads a part of it."""
        return (node.path for node in self.walk())

    def __len__(self) -> int:
        """Return the number of nodes. Reads the whole tree."""
        return sum(1 for _ in self.walk())

    def __bool__(self) -> bool:
        return True

    def nodes(self, paths: Sequence[str]) -> dict[str, Node | None]:
        """Return the nodes at ``paths`` by path, None for each that does not exist. One round trip for each 1000."""
        found = self._instance.nodes(self._view, arguments.path_list(paths, "paths"))
        return {path: None if state is None else Node(self, state) for path, state in found.items()}

    def status(self, paths: Sequence[str]) -> dict[str, NodeStatus]:
        """Return by path whether there is a node at each of ``paths``, was one, or never was one.

        One round trip for each 1000.
        """
        found = self._instance.status(self._view, arguments.path_list(paths, "paths"))
        return {path: _status(is_present, revision) for path, (is_present, revision) in found.items()}

    def children(self, path: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of children of the node at ``path``, in the order of their UTF-8 bytes.

        ``after``: only names after this one (None: all). ``limit``: at most this many (None: all). One round trip for each
        10,000; with a small ``limit`` up to 5 more to pass children that were removed before them. Raises NodeNotFoundError.
        """
        if after is not None:
            arguments.text(after, "after")
        if limit is not None:
            arguments.count(limit, "limit")
        names = self._instance.children(self._view, arguments.path(path), after, limit)
        if not names:
            self._instance.require(self._view, path)
        return names

    def child_count(self, path: str) -> int:
        """Return the number of children of the node at ``path``. Raises NodeNotFoundError.

        One round trip for up to 1,000. A wider node's children are read once; from then on each count, by any process,
        takes a few round trips at most, and its cost depends on the changes since the last count.
        """
        return self[path].child_count

    def walk(self, path: str = paths.ROOT, depth: int | None = None) -> Iterator[Node]:
        """Return an iterator over the node at ``path`` and its descendants, level by level, ``depth`` levels down (None: all).

        Each level comes in the order of its paths' bytes, in batches of up to 1000 nodes a round trip. Raises
        NodeNotFoundError.
        """
        path = arguments.path(path)
        if depth is not None:
            arguments.count(depth, "depth")
        return chain.from_iterable(self._batches(path, depth))

    def _batches(self, path: str, depth: int | None) -> Iterator[Iterable[Node]]:
        yield (Node(self, self._instance.require(self._view, path)),)
        for batch in self._instance.levels(self._view, path, depth):
            yield map(Node, repeat(self), batch)

    def __eq__(self, other: object) -> bool:
        """Return whether both are snapshots of the same revision, of one Repository object, that read the same everywhere.

        No round trip, except for snapshots that are older than the revisions that the instance keeps in memory.
        """
        if self is other:
            return True
        if not isinstance(other, Snapshot) or self._instance is not other._instance:
            return False
        return self._instance.are_equal(self._view, other._view)

    def __hash__(self) -> int:
        return hash(self._view.revision)

    def __repr__(self) -> str:
        return f"<Snapshot {self.revision}>"


def _status(is_present: bool, revision: int) -> NodeStatus:
    if is_present:
        return NodeStatus("present", revisions.to_text(revision))
    return NodeStatus("deleted", revisions.to_text(revision)) if revision else NodeStatus("absent", None)


def instance_of_snapshot(snapshot: Snapshot) -> Instance:
    """Return the kernel instance that a snapshot reads through."""
    return snapshot._instance


def view_of(instance: Instance, snapshot: Snapshot, name: str = "snapshot") -> View:
    """Return the view that a snapshot shows.

    Raises InvalidValueError for a snapshot of another instance, and TypeError, which names the argument, for another object.
    """
    if arguments.instance(snapshot, Snapshot, name)._instance is not instance:
        raise InvalidValueError(_OTHERS_SNAPSHOT.format(snapshot.revision))
    return snapshot._view


def base_of(instance: Instance, base: Snapshot | None) -> View:
    """Return the view of ``base``, or of the newest trunk snapshot after a poll, unless the last poll is recent."""
    if base is not None:
        return view_of(instance, base, "base")
    instance.poll_unless_recent()
    return instance.head()
