"""A tree of persistent objects: what the three ZODB peers share.

One ``Persistent`` object a node with its properties in a plain dictionary (one record, so one load shows the whole node), and
an ``OOBTree`` of children that only nodes with children have. BTrees keep names in order, page by key, and merge siblings that
two connections add at once. Historical connections read the past; the storage's own iteration tells what changed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice

import transaction
import ZODB
from BTrees.OOBTree import OOBTree
from persistent import Persistent
from transaction.interfaces import TransientError
from ZODB.Connection import Connection
from ZODB.utils import get_pickle_metadata, p64, u64

from benchmarks.system import Properties, System

CACHED_OBJECTS = 200_000
"""Objects that a connection may keep: enough for every warm scenario, as somebody who knows the size of his tree would set it."""

TREE = "tree"
"""The name of the tree's root object in the database's root mapping."""


class Node(Persistent):
    """A node of the tree."""

    def __init__(self, properties: Properties) -> None:
        self.properties = dict(properties)
        self.children: OOBTree | None = None


class ObjectSystem(System):
    """One ZODB connection that is always inside a transaction, so that reads cost no call for beginning one."""

    def __init__(self, database: ZODB.DB) -> None:
        self.database = database
        # Not bound to the thread, so that several connections of one thread do not share a transaction.
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
            node._p_changed = True  # the dictionary is part of the node's record and cannot tell by itself

        self._commit(change)

    def increment(self, path: str, name: str) -> None:
        def change() -> None:
            node = self._existing(path)
            node.properties[name] = int(node.properties.get(name, 0)) + 1
            node._p_changed = True

        self._commit(change)

    def _commit(self, change: Callable[[], None]) -> None:
        """Do a change and commit it; after a conflict once more on what the other has left, for as long as it takes."""
        while True:
            try:
                change()
                self._manager.commit()
            except TransientError:  # conflicts, and what RelStorage says when it gives up a cache
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
            raise KeyError(f"there is no node {path or '/'}")
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
                # One request for all of them where the storage can do that; others ignore it.
                self._connection.prefetch(found)
                for node in found:
                    count += node.properties is not None
                waiting.extend(found)
        return count

    def refresh(self) -> None:
        self._manager.abort()
        self._begin_at_head()

    def _begin_at_head(self) -> None:
        """Begin a transaction that sees everything that anybody has committed until now."""
        self._manager.begin()

    def forget(self) -> None:
        self._connection.cacheMinimize()

    # The past

    def mark(self) -> bytes:
        # Begin anew: what a connection knows of its own commit it learns at the next beginning.
        self.refresh()
        head: bytes = self._connection._storage.lastTransaction()
        return head

    def read_at(self, mark: object, path: str) -> Properties | None:
        manager = transaction.TransactionManager()
        # The database keeps historical connections with their caches in a pool, by their date.
        then = self.database.open(manager, at=mark)
        try:
            node = find(then.root()[TREE], path)
            return None if node is None else dict(node.properties)
        finally:
            manager.abort()
            then.close()

    def changed(self, mark: object) -> int:
        """Nodes whose record differs, from the transactions since the mark."""
        if not isinstance(mark, bytes):
            raise TypeError(f"not a mark of this system: {mark!r}")
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
            if close is not None:  # FileStorage's holds the file open
                close()
        count = 0
        for oid, data in newest.items():
            before = self._before(oid, since)
            count += before != data
        return count

    def _before(self, oid: bytes, tid: bytes) -> bytes | None:
        """An object's record as it was before a transaction; None if it was not there."""
        try:
            found = self.database.storage.loadBefore(oid, tid)
        except KeyError:
            return None
        return None if found is None else found[0]

    # The end

    @abstractmethod
    def size(self) -> int: ...

    def close(self) -> None:
        self._manager.abort()
        self._connection.close()
        self.database.close()


def find(root: Node, path: str) -> Node | None:
    """The node at a path below a root; None if it is not there."""
    node = root
    for name in path.split("/"):
        if name:
            below = node.children
            found = None if below is None else below.get(name)
            if found is None:
                return None
            node = found
    return node
