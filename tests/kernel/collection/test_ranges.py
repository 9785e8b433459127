"""What a collector sends to the store: ranges of versions; and the horizon, where polls learn it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from hbasemk.format import paths, schema
from hbasemk.format.checkpoint import list_column
from hbasemk.kernel import checkpoints
from hbasemk.kernel.collection import node_cells
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import ALL_VERSIONS, DeleteBelow, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, commit
from tests.support.runtime import World, open_instance
from tests.support.simulation import collection_mutants
from tests.support.simulation.crashes.sites import tree


def collect(instance: Instance) -> Any:
    return Collector(instance).run(RETENTION_MS)


def ranges_deleted(instance: Instance, path: str, patch: pytest.MonkeyPatch) -> list[DeleteBelow]:
    """Return a list to which each later deletion of ranges in the node's row is added."""
    found: list[DeleteBelow] = []
    delete_below = instance.store.delete_below

    def record(table: str, deletes: Iterable[DeleteBelow]) -> None:
        deletes = list(deletes)
        found.extend(delete for delete in deletes if delete.row == paths.key(path))
        delete_below(table, deletes)

    patch.setattr(instance.store, "delete_below", record)
    return found


@BOTH_ORDERS
def test_many_versions_of_a_column_are_deleted_as_one_range(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    for number in range(1, 30):
        commit(one, SetProperty("/a", "p", number))
    world.advance(2 * HOUR)
    deleted = ranges_deleted(one, "/a", monkeypatch)
    assert collect(one).cells["superseded versions"] >= 2 * 28
    columns = [cell[:2] for delete in deleted for cell in delete.cells]
    assert len(set(columns)) == len(columns) == 2


@BOTH_ORDERS
@pytest.mark.parametrize("columns", [2, 1000])
def test_an_ended_life_with_many_children_is_deleted_as_one_range(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr(node_cells, "COLUMNS", columns)
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0, "q": 0}), *(AddNode(f"/a/k{n}", {}) for n in range(9)))
    commit(one, RemoveNode("/a"))
    commit(one, AddNode("/a", {"p": 1}), AddNode("/a/k1", {}))
    world.advance(2 * HOUR)
    deleted = ranges_deleted(one, "/a", monkeypatch)
    collect(one)
    assert schema.CHILDREN in {family for delete in deleted for family, _ in delete.families}
    fresh = open_instance(store, world, mac=2)
    assert tree(fresh) == {"/": {}, "/a": {"p": 1}, "/a/k1": {}}
    assert len(store.read(schema.NODES, [Get(paths.key("/a"), versions=ALL_VERSIONS)])[0].cells) == 4


@pytest.mark.damages("a range deletes the life that has begun")
def test_a_range_that_contains_the_life_is_found(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection_mutants.family_ranges_that_contain_the_life(monkeypatch)
    # Random schedules did not find it in some hundreds.
    with pytest.raises(AssertionError):
        test_an_ended_life_with_many_children_is_deleted_as_one_range(store, world, monkeypatch, 1000)


@pytest.mark.damages("the list of a checkpoint")
@BOTH_ORDERS
def test_a_damaged_list_of_a_checkpoint_holds_the_horizon_back(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    kept = checkpoints.keep_for(one, one.head(), 24 * RETENTION_MS)
    commit(one, SetProperty("/a", "p", 1))
    commit(one, SetProperty("/a", "p", 2))
    damaged = Put(schema.SETTINGS_ROW, [NewCell(*list_column(kept.revision), bytes(30))])
    store.write(schema.CLUSTER, [damaged])
    world.advance(2 * HOUR)
    report = collect(one)
    assert report.horizon <= kept.revision


@BOTH_ORDERS
def test_other_writers_wait_only_for_a_small_batch(store: MemoryStore, world: World, ordered: bool) -> None:
    counting = CountingStore(store)
    one = open_instance(counting, world)
    commit(one, *(AddNode(f"/n{n}", {"p": 0}) for n in range(120)))
    commit(one, *(SetProperty(f"/n{n}", "p", 1) for n in range(120)))
    world.advance(2 * HOUR)
    counting.calls.clear()
    assert collect(one).cells["superseded versions"] >= 240
    most = max(call.rows for call in counting.calls if call.method == "delete_below")
    assert most == (node_cells.FEW_ROWS if ordered else node_cells.ROWS)


def test_an_unordered_store_keeps_the_horizon_where_each_poll_begins(world: World) -> None:
    store = CountingStore(MemoryStore(world.clock))
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    commit(one, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    commit(one, SetProperty("/a", "p", 2))
    other.poll()
    collect(one)
    store.calls.clear()
    other.poll()
    # The second call verifies the ids up to the horizon, once.
    assert [call.method for call in store.calls] == ["scan", "scan"]
    assert other.horizon == one.horizon > 0
    store.calls.clear()
    other.poll()
    other.node(other.head(), "/a")
    assert [call.method for call in store.calls] == ["scan", "read"]


def poll_that_missed_a_revision(world: World) -> tuple[Instance, list[int]]:
    """Let an instance learn a horizon above a revision whose log is gone, and see one that was built on it; return both ids."""
    store = MemoryStore(world.clock)
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    other.poll()
    missed = commit(one, SetProperty("/a", "p", 1))
    # The log of a writer goes with its lease.
    one.recovery.advance()
    store.delete_rows(schema.CLUSTER, [schema.log_key(one.lease.machine)])
    world.advance(2 * HOUR)
    assert collect(one).horizon == missed
    return other, [missed, commit(open_instance(store, world, mac=3), SetProperty("/a", "q", 1))]


def test_a_poll_that_learns_a_horizon_finds_what_polls_missed_below_it(world: World) -> None:
    other, expected = poll_that_missed_a_revision(world)
    assert other.poll() == expected
    assert other.require(other.head(), "/a").properties == {"p": 1, "q": 1}


def test_a_horizon_verified_without_a_scan_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # Random schedules found it in one of some hundreds.
    collection_mutants.horizon_verified_without_a_scan(monkeypatch)
    other, expected = poll_that_missed_a_revision(world)
    assert other.poll() == expected[1:]


def test_missed_revisions_that_join_after_their_effects_are_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection_mutants.missed_revisions_join_last(monkeypatch)
    other, expected = poll_that_missed_a_revision(world)
    assert other.poll() == expected[::-1]
