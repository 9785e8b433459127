"""The collector: what it deletes, what it keeps, and when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hbasemk.errors import (
    ClockSkewError,
    InvalidValueError,
    NodeDeletedError,
    NodeNotFoundError,
)
from hbasemk.format import revisions, schema
from hbasemk.kernel.collection import background as background_collection
from hbasemk.kernel.collection import collector, retention
from hbasemk.kernel.collection.background import BackgroundCollection
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.collection.status import collection_status
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.settings import DEFAULT_RETENTION_MS
from hbasemk.store.abc import Get, Row
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, cells, collect, commit
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree

pytestmark = BOTH_ORDERS


def test_superseded_versions_are_deleted_and_the_newest_stay(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0, "q": "x"}))
    for number in range(1, 6):
        world.advance(1)
        last = commit(one, SetProperty("/a", "p", number))
    world.advance(2 * HOUR)
    report = collect(one)
    assert revisions.to_text(report.horizon) == revisions.to_text(last)
    # Five times the property and lastRevision of the node, and lastRevision of the root once.
    assert sum(report.cells.values()) == 11
    assert [at for qualifier, at in cells(store, "/a") if qualifier == b"\x01p"] == [last]
    assert one.node(one.at(last), "/a").properties == {"p": 5, "q": "x"}  # type: ignore[union-attr]
    assert not collect(one).cells


def test_cells_of_a_deleted_node_are_deleted_and_its_deletion_is_remembered_for_a_time(
    store: MemoryStore, world: World
) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}), AddNode("/a/b", {}), AddNode("/a/c", {}))
    removed = commit(one, RemoveNode("/a"))
    commit(one, AddNode("/x", {}))
    world.advance(1.5 * HOUR)
    commit(one, AddNode("/y", {}))
    collect(one)
    assert cells(store, "/a") == [(schema.DELETED[1], removed)]
    assert cells(store, "/a/b") == [(schema.DELETED[1], removed)]
    with pytest.raises(NodeDeletedError):
        open_instance(store, world).require(one.head(), "/a")
    world.advance(2 * HOUR)
    collect(one)
    assert not cells(store, "/a")
    other = open_instance(store, world)
    with pytest.raises(NodeNotFoundError) as raised:
        other.require(other.head(), "/a")
    assert not isinstance(raised.value, NodeDeletedError)
    # It does not say that there never was a node.
    horizon = revisions.to_text(other.journal.fence.horizon)
    assert str(raised.value).endswith(f", and none is recorded since revision {horizon}")
    assert other.children(other.head(), "/") == ["x", "y"]


def test_an_ended_life_is_deleted_where_a_node_was_added_again(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"old": 0}), AddNode("/a/b", {}))
    commit(one, RemoveNode("/a"))
    again = commit(one, AddNode("/a", {"new": 1}))
    world.advance(2 * HOUR)
    collect(one)
    assert {at for _, at in cells(store, "/a")} == {again}
    assert not [at for _, at in cells(store, "/a/b") if at >= again]


def test_nothing_is_deleted_before_all_readers_know(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world, mac=1)
    commit(one, AddNode("/a", {"p": 0}))
    commit(one, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    run = Collector(one).run
    assert not run(RETENTION_MS, wait=False).cells
    world.advance(60)
    assert run(RETENTION_MS, wait=False).cells


def test_a_run_does_not_wait_for_horizons_that_others_publish_meanwhile(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    for number in range(100):
        world.advance(2)
        commit(one, SetProperty("/a", "p", number))
    one.recovery.advance()
    sleep = one.runtime.sleep
    published: list[int] = []

    def publish(seconds: float) -> None:
        sleep(seconds)
        if len(published) < 20:
            Collector(other).publish(retention.SHORTEST_MS)
            published.append(other.journal.fence.horizon)
            one.poll()

    monkeypatch.setattr(one.runtime, "sleep", publish)
    report = Collector(one).run(retention.SHORTEST_MS)
    assert len(published) == 4
    assert report.cells["superseded versions"]
    assert report.horizon < published[0] < published[-1]


def test_the_background_collects_in_small_steps(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    for number in range(5):
        commit(one, SetProperty("/a", "p", number + 1))
    background = BackgroundCollection(one.runtime)
    world.advance(8 * 24 * HOUR)
    one.poll()
    one.maintain()
    commit(one, SetProperty("/a", "q", 1))
    for _ in range(100):
        world.advance(60)
        one.poll()
        one.maintain()
        background.step(one)
    assert background.report.cells["superseded versions"] >= 10


def test_the_background_waits_for_readers_and_rests_between_steps(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    for number in range(40):
        commit(one, SetProperty("/a", "p", number + 1))
    world.advance(8 * 24 * HOUR)
    one.poll()
    one.maintain()
    commit(one, SetProperty("/a", "q", 1))
    monkeypatch.setattr(collector, "WINDOW", 1)
    monkeypatch.setattr(collector, "HOT_CHANGES", 0)
    read = store.read

    def slow_read(table: str, gets: Sequence[Get]) -> list[Row]:
        world.advance(1)
        return read(table, gets)

    background = BackgroundCollection(one.runtime)
    world.advance(background_collection.EVERY)
    one.maintain()
    background.step(one)
    grace = collector.Collector(one).grace
    world.advance(grace - 0.01)
    one.maintain()
    background.step(one)
    assert not background.report.revisions
    world.advance(0.02)
    one.maintain()
    monkeypatch.setattr(store, "read", slow_read)
    # The same run deletes up to the horizon that it has published.
    begun = world.ms
    background.step(one)
    duration, done = (world.ms - begun) / 1000, background.report.revisions
    assert duration > 0
    assert 0 < done < 40
    world.advance(background_collection.REST * duration - 0.01)
    background.step(one)
    assert background.report.revisions == done
    world.advance(0.02)
    background.step(one)
    assert background.report.revisions > done
    # Later than the next run: it no longer rests.
    world.advance(background_collection.EVERY)
    one.maintain()
    for _ in range(3):
        done = background.report.revisions
        background.step(one)
        assert background.report.revisions > done


def test_one_of_two_processes_begins_a_run(store: MemoryStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {}))
    commit(other, AddNode("/b", {}))
    first, second = BackgroundCollection(one.runtime), BackgroundCollection(other.runtime)
    for _ in range(100):
        world.advance(7)
        one.maintain()
        other.maintain()
    assert first._claim(one)
    assert not second._claim(other)


def test_an_estimate_counts_and_writes_nothing(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}), AddNode("/a/b", {}))
    for number in range(5):
        commit(one, SetProperty("/a", "p", number + 1))
    commit(one, RemoveNode("/a/b"))
    world.advance(2 * HOUR)
    before = cells(store, "/a"), cells(store, "/a/b")
    estimated = Collector(one).estimate(RETENTION_MS)
    assert (cells(store, "/a"), cells(store, "/a/b")) == before
    assert not one.journal.fence.refresh()
    assert estimated.cells == collect(one).cells


@pytest.mark.parametrize("ms", [0, -1, 59_999, 10**15])
def test_a_retention_out_of_range_is_refused(store: MemoryStore, world: World, ms: int) -> None:
    one = open_instance(store, world)
    with pytest.raises(InvalidValueError, match="retention must be"):
        retention.write(one, ms)
    assert retention.read(one) == DEFAULT_RETENTION_MS


def test_a_retention_can_be_changed(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    for ms in (60_000, None, 10**10):
        retention.write(one, ms)
        assert retention.read(one) == ms


def test_clocks_that_differ_too_much_collect_nothing(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world, skew_ms=6000)
    with pytest.raises(ClockSkewError, match="nothing was collected"):
        collect(one)


def test_a_collector_that_slept_for_a_day_beside_another_does_no_harm(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}), AddNode("/a/b", {"q": 0}))
    commit(one, RemoveNode("/a/b"), SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    delete, slept = one.store.delete_below, []

    def sleep_first(*arguments: Any, **options: Any) -> None:
        if not slept:
            slept.append(True)
            world.advance(24 * HOUR)
            commit(other, AddNode("/a/b", {"q": 1}), SetProperty("/a", "p", 2))
            world.advance(24 * HOUR)
            commit(other, RemoveNode("/a/b"))
            commit(other, AddNode("/a/b", {"q": 2}))
            world.advance(24 * HOUR)
            collect(other)
        delete(*arguments, **options)

    monkeypatch.setattr(one.store, "delete_below", sleep_first)
    collect(one)
    assert slept
    fresh = open_instance(store, world, mac=3)
    assert tree(fresh) == {"/": {}, "/a": {"p": 2}, "/a/b": {"q": 2}}


def test_the_status_shows_how_far_collection_is_behind_and_since_when(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    retention.write(one, RETENTION_MS)
    branch = one.begin_branch(one.head())
    world.advance(HOUR)
    last = commit(one, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    one.poll()
    one.recovery.advance()
    status = collection_status(one)
    assert (status.hold is not None and status.hold.revision, status.problem) == (branch, None)
    assert abs(status.behind_ms - HOUR * 1000) < 1000
    one.abandon_branch(branch)
    world.advance(2 * HOUR)
    one.sweep_branches(None)
    assert collect(one).horizon == last
    status = collection_status(one)
    assert (status.hold, status.behind_ms, status.collected) == (None, 0, last)
    wrong = open_instance(store, world, mac=5, skew_ms=6000)
    assert "nothing was collected" in str(collection_status(wrong).problem)
