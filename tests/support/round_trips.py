"""A repository whose calls of the store are counted."""

from __future__ import annotations

from hbasemk import Repository
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore

CREATE = ("check_and_write", "journal")
WRITE = ("write", "nodes")
WRITE_IF = ("write_if", "nodes")
READ = ("read", "nodes")
POLL = ("scan", "cluster")
ANNOUNCE = ("check_and_write", "cluster")
"""Parallel to the creation of the journal row."""


class ParallelMemory(MemoryStore):
    """Memory that reports parallel calls, like HBase."""

    @property
    def supports_parallel_calls(self) -> bool:
        return True


class Counted:
    """A repository and its counting store."""

    def __init__(self, inner: MemoryStore) -> None:
        self.store = CountingStore(inner)
        self.repository = Repository(self.store, poll_interval=0)
        with self.repository.transaction() as tx:
            tx.add("/a", {"n": 0})
            for number in range(20):
                tx.add(f"/a/{number}", {"n": number})
                tx.add(f"/a/{number}/x")
        self.store.take()


def fresh(counted: Counted) -> Repository:
    """Open another instance with an empty cache; opening is not counted."""
    other = Repository(counted.store, poll_interval=0, owns_store=False)
    counted.store.take()
    return other
