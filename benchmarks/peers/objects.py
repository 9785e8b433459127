"""A tree of persistent objects, the common part of the three ZODB peers.

Each node is one ``Persistent`` object with its properties in a plain dictionary, so one load returns the whole node. A node with
children also has an ``OOBTree`` of them. BTrees sort names, allow pages by key, and merge siblings that two connections add
concurrently. Historical connections read old states, and the storage's iterator lists changes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice

import transaction
import ZODB
from BTrees.Length import Length
from BTrees.OOBTree import OOBTree
from persistent import Persistent
from transaction.interfaces import TransientError
from ZODB.Connection import Connection
from ZODB.utils import get_pickle_metadata, p64, u64

from benchmarks.system import Properties, System

CACHED_OBJECTS = 200_000
"""Objects in a connection's cache: enough for every warm scenario, as a user who knows the size of the tree would set it."""

TREE = "tree"
"""The key of the tree's root object in the database's root mapping."""


class Node(Persistent):
    """A node of the tree."""

    def __init__(self, properties: Properties) -> None:
        self.properties = dict(properties)
        self.children: OOBTree | None = None
        self.counters: dict[str, Length] = {}


class ObjectSystem(System):
    """One ZODB connection that is always inside a transaction, so that reads need no call to begin one."""

    def __init__(self, database: ZODB.DB) -> None:
        self.database = database
        # Not bound to the thread: otherwise all connections of a thread would share a transaction.
        self._manager = transaction.TransactionManager(explicit=True)
        self._manager.begin()
        self._connection: Connection = database.open(self._manager)

    @classmethod
    def _create_tree(cls, database: ZODB.DB) -> None:
        """Store the root node in an empty database."""
        with database.transaction("the root node") as connection:
            connection.root()[TREE] = Node({})

    # Writing

    def add(self, nodes: Sequence[tuple[str, Properties]]) -> None:
        def change() -> None:
            parent_path, parent = "/", self._root()
            for path, properties in nodes:
                above, _, name = path.rpartition("/")
                if (above or "/") != parent_path:
                    parent_path, parent = above or "/", self._existing(above)
                if parent.children is None:
                    parent.children = OOBTree()
                if not parent.children.insert(name, Node(properties)):
                    raise ValueError(f"{path} exists already")

        self._commit(change)

    def set(self, path: str, name: str, value: int | str) -> None:
        def change() -> None:
            node = self._existing(path)
            node.properties[name] = value
            node._p_changed = True  # ZODB does not notice changes of a plain dictionary

        self._commit(change)

    def increment(self, path: str, name: str) -> None:
        def change() -> None:
            node = self._existing(path)
            node.properties[name] = int(node.properties.get(name, 0)) + 1
            node._p_changed = True

        self._commit(change)

    def adjust(self, path: str, name: str, by: int) -> None:
        def change() -> None:
            node = self._existing(path)
            counter = node.counters.get(name)
            if counter is None:
                node.counters = {**node.counters, name: Length(by)}
            else:
                # ZODB merges the changes of two connections.
                counter.change(by)

        self._commit(change)

    def counter(self, path: str, name: str) -> int:
        return int(self._existing(path).counters[name]())

    def _commit(self, change: Callable[[], None]) -> None:
        """Make a change and commit it. After a conflict, retry on the newest state, without a limit."""
        while True:
            try:
                change()
                self._manager.commit()
            except TransientError:  # conflicts, and RelStorage's error when it drops a cache
                self._manager.abort()
                self.retries += 1
                self._begin_at_head()
            except BaseException:
                self._manager.abort()
                self._manager.begin()
                raise
            else:
                self._manager.begin()
                return

    # Reading

    def _root(self) -> Node:
        root: Node = self._connection.root()[TREE]
        return root

    def _existing(self, path: str) -> Node:
        found = find(self._root(), path)
        if found is None:
            raise KeyError(f"node {path or '/'} does not exist")
        return found

    def read(self, path: str) -> Properties | None:
        node = find(self._root(), path)
        return None if node is None else node.properties

    def children(self, path: str, after: str | None, limit: int) -> list[str]:
        below = self._existing(path).children
        if below is None:
            return []
        return list(islice(below.keys(min=after, excludemin=after is not None), limit))

    def subtree(self, path: str) -> int:
        count = 0
        waiting = [self._existing(path)]
        while waiting:
            below = waiting.pop().children
            if below is not None:
                found = list(below.values())
                # One request for all of them if the storage supports that; other storages ignore it.
                self._connection.prefetch(found)
                for node in found:
                    count += node.properties is not None
                waiting.extend(found)
        return count

    def refresh(self) -> None:
        self._manager.abort()
        self._begin_at_head()

    def _begin_at_head(self) -> None:
        """Begin a transaction that sees all commits until now."""
        self._manager.begin()

    def clear_caches(self) -> None:
        self._connection.cacheMinimize()

    # History

    def mark(self) -> bytes:
        # A connection learns the id of its own commit when it begins the next transaction.
        self.refresh()
        head: bytes = self._connection._storage.lastTransaction()
        return head

    def read_at(self, mark: object, path: str) -> Properties | None:
        manager = transaction.TransactionManager()
        # The database pools historical connections with their caches by date.
        historical = self.database.open(manager, at=mark)
        try:
            node = find(historical.root()[TREE], path)
            return None if node is None else dict(node.properties)
        finally:
            manager.abort()
            historical.close()

    def changed(self, mark: object) -> int:
        """Count nodes whose record differs, using the transactions since the mark."""
        if not isinstance(mark, bytes):
            raise TypeError(f"mark must be the result of mark(), got {mark!r}")
        self.refresh()
        storage = self.database.storage
        since = p64(u64(mark) + 1)
        newest: dict[bytes, bytes] = {}
        transactions = storage.iterator(since)
        try:
            for committed in transactions:
                for record in committed:
                    if record.data and get_pickle_metadata(record.data) == (Node.__module__, Node.__qualname__):
                        newest[record.oid] = record.data
        finally:
            close = getattr(transactions, "close", None)
            if close is not None:  # FileStorage's iterator keeps the file open
                close()
        count = 0
        for oid, data in newest.items():
            before = self._before(oid, since)
            count += before != data
        return count

    def _before(self, oid: bytes, tid: bytes) -> bytes | None:
        """Return an object's record before a transaction, or None if it did not exist."""
        try:
            found = self.database.storage.loadBefore(oid, tid)
        except KeyError:
            return None
        return None if found is None else found[0]

    # Closing

    @abstractmethod
    def size(self) -> int: ...

    def close(self) -> None:
        self._manager.abort()
        self._connection.close()
        self.database.close()


def find(root: Node, path: str) -> Node | None:
    """Return the node at a path below a root, or None if it does not exist."""
    node = root
    for name in path.split("/"):
        if name:
            below = node.children
            found = None if below is None else below.get(name)
            if found is None:
                return None
            node = found
    return node
