"""Reads beside a collector: snapshots that are too old are refused, and all others read as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.errors import (
    RevisionCollectedError,
)
from hbasemk.format import revisions, schema
from hbasemk.kernel import checkpoints, log, time_travel
from hbasemk.kernel.collection import collector, retention
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.reading import child_count, reader
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, collect, commit, set_grace
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.uncached import without_cache

pytestmark = BOTH_ORDERS


@pytest.fixture
def old(store: MemoryStore, world: World) -> tuple[Instance, Any]:
    """An instance, and its snapshot of a state that is then changed and collected by another one."""
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": "old"}), *(AddNode(f"/a/k{n}", {}) for n in range(3)))
    before = one.head()
    commit(other, SetProperty("/a", "p", "new"), RemoveNode("/a/k1"))
    commit(other, RemoveNode("/a/k2"), AddNode("/z", {}))
    world.advance(2 * HOUR)
    collect(other)
    return one, before


READS: dict[str, Callable[[Instance, Any], Any]] = {
    "node": lambda one, view: one.node(view, "/a/k1"),
    "nodes": lambda one, view: one.nodes(view, ["/a", "/z"]),
    "page of children": lambda one, view: one.children(view, "/a", None, 2),
    "level": lambda one, view: list(one.levels(view, "/")),
    "missing node": lambda one, view: one.require(view, "/nothing"),
    "status": lambda one, view: one.status(view, ["/a/k1", "/z"]),
    "snapshot of a revision": lambda one, view: one.at(view.revision),
    "log": lambda one, view: list(log.log(one, "/a", view.revision)),
    "branch": lambda one, view: one.begin_branch(view),
    "commit": lambda one, view: one.commit_on(view, OperationList([SetProperty("/a", "x", 1)]), ""),
    "commit of a new node": lambda one, view: one.commit_on(view, OperationList([AddNode("/n", {})]), ""),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("polled", [False, True])
def test_snapshots_that_are_too_old_are_refused(old: tuple[Instance, Any], read: str, polled: bool) -> None:
    one, before = old
    if polled:
        one.poll()
    with without_cache(one), pytest.raises(RevisionCollectedError) as raised:
        READS[read](one, before)
    assert raised.value.revision == revisions.to_text(before.revision)
    assert raised.value.oldest == revisions.to_text(one.journal.fence.horizon)
    assert raised.value.oldest in str(raised.value)


def test_a_level_of_which_nothing_is_left_is_refused(store: MemoryStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {}), AddNode("/a/b", {}))
    before = one.head()
    commit(other, RemoveNode("/a/b"))
    world.advance(2 * HOUR)
    collect(other)
    with without_cache(one):
        walk = one.levels(before, "/a")
        with pytest.raises(RevisionCollectedError):
            list(walk)


def test_the_head_is_readable_without_a_poll_if_nothing_has_happened_since(store: MemoryStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(other, AddNode("/a", {"p": "old"}))
    commit(other, SetProperty("/a", "p", "new"))
    one.poll()
    world.advance(2 * HOUR)
    collect(other)
    assert one.node(one.head(), "/a").properties == {"p": "new"}  # type: ignore[union-attr]


def test_a_checkpoint_of_a_collected_snapshot_is_refused(old: tuple[Instance, Any]) -> None:
    one, before = old
    with pytest.raises(RevisionCollectedError):
        checkpoints.keep_for(one, before, RETENTION_MS)


def test_the_log_ends_at_the_oldest_readable_revision(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}), AddNode("/b", {}))
    horizon = commit(one, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    later = commit(one, SetProperty("/a", "p", 2))
    commit(one, SetProperty("/b", "p", 2))
    collect(one)
    assert [entry.revision for entry in log.log(one, "/a")] == [revisions.to_text(later), revisions.to_text(horizon)]
    assert [entry.revision for entry in log.log(one)][-1] == revisions.to_text(horizon)
    assert [entry.revision for entry in log.log(one, "/b")] == [entry.revision for entry in log.log(one)][:1]


def test_a_memo_of_a_count_below_the_horizon_is_not_used(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reader, child_count):
        monkeypatch.setattr(module, "WIDE", 2)
    monkeypatch.setattr(child_count, "FROM_JOURNAL", 0)
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {}), *(AddNode(f"/a/k{n}", {}) for n in range(5)))
    one.poll()
    assert one.child_count(one.head(), one.require(one.head(), "/a")) == 5
    commit(other, RemoveNode("/a/k1"))
    commit(other, RemoveNode("/a/k2"))
    commit(other, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    collect(other)
    one.poll()
    for instance in (one, open_instance(store, world, mac=3)):
        assert instance.child_count(instance.head(), instance.require(instance.head(), "/a")) == 3


def test_an_instance_that_slept_past_the_retention_reads_the_head_and_refuses_its_own(
    old: tuple[Instance, Any], world: World
) -> None:
    one, before = old
    world.advance(30 * 24 * HOUR)
    with without_cache(one):
        with pytest.raises(RevisionCollectedError):
            one.children(before, "/a")
        one.poll()
        assert one.children(one.head(), "/a") == ["k0"]


def test_a_node_removed_and_added_again_around_the_horizon_reads_right_on_both_sides(
    store: MemoryStore, world: World
) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}), AddNode("/a/b", {}))
    removed = commit(one, RemoveNode("/a"))
    world.advance(2 * HOUR)
    again = commit(one, AddNode("/a", {"q": 1}))
    report = collect(one)
    assert report.horizon == removed
    fresh = open_instance(store, world, mac=3)
    assert tree(fresh, fresh.at(removed)) == {"/": {}}
    assert tree(fresh, fresh.at(again)) == {"/": {}, "/a": {"q": 1}}


def test_a_snapshot_by_time_is_readable_down_to_the_horizon(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    world.advance(60)
    before = int(world.ms)
    world.advance(60)
    commit(one, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    collect(one)
    for instance in (one, open_instance(store, world, mac=3)):
        view = time_travel.view_before(instance, int(world.ms))
        assert tree(instance, view) == {"/": {}, "/a": {"p": 1}}
        with pytest.raises(RevisionCollectedError):
            time_travel.view_before(instance, before)


def test_a_snapshot_by_time_stays_the_same_until_it_is_collected(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit takes longer than the retention, so the row that shows its late decision is below the horizon."""
    set_grace(monkeypatch, grace=1, trust=0.5, searched_ms=collector.SEARCHED_MS)
    faulty = FaultyStore(store)
    slow, one = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    commit(slow, AddNode("/a", {"p": 0}))
    commit(one, AddNode("/b", {"p": 0}))
    world.advance(600)
    commit(one, SetProperty("/b", "p", 1))
    moments: list[int] = []

    def wait_until(ms: float) -> None:
        while world.ms < ms:
            world.advance(2)
            for instance in (slow, one):
                instance.poll()
                instance.maintain()

    def commit_others(call: Call) -> None:
        decides = call.method == "write_if" or call == Call("check_and_write", schema.JOURNAL, 1)
        if decides and not moments:
            moments.append(0)
            for seconds in (2, 70):
                wait_until(began + 1000 * seconds)
                commit(one, SetProperty("/b", "p", seconds))
            wait_until(began + 80_000)
            moments[0] = int(world.ms)
            wait_until(began + 100_000)

    began = world.ms
    faulty.before = commit_others
    late = commit(slow, SetProperty("/a", "p", 1))
    (moment,) = moments
    one.poll()
    expected = time_travel.view_before(one, moment)
    assert not one.sees(expected, late)
    outcomes: list[str] = []
    for number in range(40):
        try:
            view = time_travel.view_before(one, moment)
            assert view.revision == expected.revision
            assert not one.sees(view, late)
            outcomes.append("found")
        except RevisionCollectedError:
            outcomes.append("collected")
        world.advance(10)
        commit(one, SetProperty("/b", "p", number))
        one.maintain()
        collector.Collector(one).run(retention.SHORTEST_MS)
    assert list(dict.fromkeys(outcomes)) == ["found", "collected"]
