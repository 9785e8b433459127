"""Polls take commits from the logs of their writers, without a read of their journal rows (decision 63)."""

from __future__ import annotations

import pytest

from hbasemk.errors import FormatError, StoreNotAppliedError
from hbasemk.format import recent_commits, schema
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.collecting import commit
from tests.support.runtime import World, open_instance


class Reader:
    """An instance that polls, and the number of journal rows that it reads."""

    def __init__(self, store: MemoryStore, world: World) -> None:
        self.store = FaultyStore(store)
        self.instance = open_instance(self.store, world, mac=9)
        self.instance.poll()
        self.rows = 0
        self.store.before = self._count

    def _count(self, call: Call) -> None:
        if call.table == schema.JOURNAL:
            self.rows += call.rows

    def value(self, path: str) -> object:
        """Return the property ``p`` of a node at the head."""
        node = self.instance.node(self.instance.head(), path)
        assert node is not None
        return node.properties.get("p")


def commits(writer: Instance, count: int) -> list[int]:
    return [commit(writer, SetProperty("/a", "p", number)) for number in range(count)]


def test_a_poll_reads_the_row_of_the_last_commit_only(store: MemoryStore, world: World) -> None:
    writer = open_instance(store, world, mac=1)
    commit(writer, AddNode("/a", {"p": -1}))
    reader = Reader(store, world)
    assert reader.value("/a") == -1
    made = commits(writer, 5)
    assert reader.instance.poll() == made
    assert reader.rows == 1
    # The node was in the cache, so the changes in the log have dropped it.
    assert reader.value("/a") == 4


def test_an_instance_that_opens_reads_all_rows(store: MemoryStore, world: World) -> None:
    # The tables may be a copy whose logs show commits that its journal lacks.
    writer = open_instance(store, world, mac=1)
    commit(writer, AddNode("/a", {"p": -1}))
    made = commits(writer, 5)
    key = schema.revision_key(made[0])
    store.write(schema.JOURNAL, [Put(key, [NewCell(*schema.COMMITTED, schema.NO)])])
    later = open_instance(store, world, mac=2)
    later.poll()
    assert made[0] in later.journal.pending
    assert not later.journal.knows(made[0])
    store.write(schema.JOURNAL, [Put(key, [NewCell(*schema.COMMITTED, schema.YES)])])
    later.poll()
    assert later.journal.knows(made[0])


def test_a_pending_revision_joins_when_the_log_shows_it_as_committed(store: MemoryStore, world: World) -> None:
    writers = FaultyStore(store)
    writer = open_instance(writers, world, mac=1)
    commit(writer, AddNode("/a", {"p": -1}))
    reader = Reader(store, world)

    def poll_before_the_decision(call: Call) -> None:
        if call.table == schema.NODES and call.method != "read":
            writers.after = None
            assert reader.instance.poll() == []

    writers.after = poll_before_the_decision
    first = commit(writer, SetProperty("/a", "p", 1))
    assert first in reader.instance.journal.pending
    second = commit(writer, SetProperty("/a", "p", 2))
    reader.rows = 0
    assert reader.instance.poll() == [first, second]
    assert reader.rows == 1
    assert reader.value("/a") == 2


def test_a_failed_poll_is_repeated_with_the_same_commits(store: MemoryStore, world: World) -> None:
    writer = open_instance(store, world, mac=1)
    commit(writer, AddNode("/a", {"p": -1}))
    reader = Reader(store, world)
    made = commits(writer, 4)

    def fail(call: Call) -> None:
        if call.table == schema.JOURNAL:
            reader.store.before = None
            raise StoreNotAppliedError("the store is out of reach")

    reader.store.before = fail
    reader.instance.poll()
    assert [one for one in reader.instance.journal if one in made] == made
    assert reader.value("/a") == 3


def test_a_damaged_cell_stops_polls_with_its_place(store: MemoryStore, world: World) -> None:
    writer = open_instance(store, world, mac=1)
    commit(writer, AddNode("/a", {}))
    reader = Reader(store, world)
    made = commits(writer, 2)
    key, bound = schema.log_key(writer.lease.machine), made[-1]
    damaged = recent_commits.encode(made[0], b"\x01[[]]")
    store.write(schema.CLUSTER, [Put(key, [NewCell(*schema.RECENT_COMMITS, damaged, bound)])])
    with pytest.raises(FormatError, match=r"changes of a revision are damaged .*table 'cluster'"):
        reader.instance.poll()
    # The writer's next announcement replaces the cell.
    made.append(commit(writer, SetProperty("/a", "p", 7)))
    assert reader.instance.poll() == made
    assert reader.value("/a") == 7
