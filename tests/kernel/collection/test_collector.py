"""The collector: what goes, what stays readable, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.errors import (
    ClockSkewError,
    InvalidValueError,
    NodeDeletedError,
    NodeNotFoundError,
    RevisionCollectedError,
)
from hbasemk.format import paths, revisions, schema
from hbasemk.kernel import checkpoints, log, time_travel
from hbasemk.kernel.collection import retention
from hbasemk.kernel.collection.background import BackgroundCollection
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.collection.status import collection_status
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading import child_count, reader
from hbasemk.kernel.settings import DEFAULT_RETENTION_MS
from hbasemk.store.abc import ALL_VERSIONS, Get
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, commit
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.uncached import without_cache

pytestmark = BOTH_ORDERS


def collect(instance: Instance, **options: Any) -> Any:
    return Collector(instance).run(RETENTION_MS, **options)


def cells(store: MemoryStore, path: str) -> list[tuple[bytes, int]]:
    (row,) = store.read(schema.NODES, [Get(paths.key(path), versions=ALL_VERSIONS)])
    return [(cell.qualifier, cell.timestamp) for cell in row.cells]


def text(revision: int) -> str:
    return revisions.to_text(revision)


def test_superseded_versions_go_and_the_newest_stay(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0, "q": "x"}))
    for number in range(1, 6):
        world.advance(1)
        last = commit(one, SetProperty("/a", "p", number))
    world.advance(2 * HOUR)
    report = collect(one)
    assert text(report.horizon) == text(last)
    # Five times the property and lastRevision of the node, and lastRevision of the root once.
    assert sum(report.cells.values()) == 11
    assert [at for qualifier, at in cells(store, "/a") if qualifier == b"\x01p"] == [last]
    assert one.node(one.at(last), "/a").properties == {"p": 5, "q": "x"}  # type: ignore[union-attr]
    assert not collect(one).cells


def test_a_node_that_was_deleted_goes_with_its_children_and_its_deletion_is_remembered_for_a_time(
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
    assert other.children(other.head(), "/") == ["x", "y"]


def test_an_ended_life_goes_where_a_node_was_added_again(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"old": 0}), AddNode("/a/b", {}))
    commit(one, RemoveNode("/a"))
    again = commit(one, AddNode("/a", {"new": 1}))
    world.advance(2 * HOUR)
    collect(one)
    assert {at for _, at in cells(store, "/a")} == {again}
    assert not [at for _, at in cells(store, "/a/b") if at >= again]


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


Superseded = tuple[Instance, Instance, View]


@pytest.fixture
def superseded(store: MemoryStore, world: World) -> Superseded:
    """Two instances, and the first one's snapshot of a state that the second has changed."""
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    base = one.head()
    commit(other, SetProperty("/a", "p", 1))
    commit(other, SetProperty("/a", "p", 2))
    return one, other, base


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
def test_what_is_too_old_is_refused(old: tuple[Instance, Any], read: str, polled: bool) -> None:
    one, before = old
    if polled:
        one.poll()
    with without_cache(one), pytest.raises(RevisionCollectedError) as raised:
        READS[read](one, before)
    assert raised.value.revision == text(before.revision)
    assert raised.value.oldest == text(one.journal.fence.horizon)
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


def test_nothing_is_deleted_before_all_readers_know(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world, mac=1)
    commit(one, AddNode("/a", {"p": 0}))
    commit(one, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    run = Collector(one).run
    assert not run(RETENTION_MS, wait=False).cells
    world.advance(60)
    assert run(RETENTION_MS, wait=False).cells


def test_a_branch_keeps_its_snapshot_until_it_is_swept(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": "old"}))
    branch = one.begin_branch(one.head())
    commit(one, SetProperty("/a", "p", "new"))
    world.advance(2 * HOUR)
    collect(one)
    fresh = open_instance(store, world, mac=7)
    assert fresh.node(fresh.branch(branch).view, "/a").properties == {"p": "old"}  # type: ignore[union-attr]
    one.abandon_branch(branch)
    world.advance(2 * HOUR)
    one.sweep_branches(None)
    collect(one)
    assert len([at for qualifier, at in cells(store, "/a") if qualifier == b"\x01p"]) == 1


def test_a_checkpoint_holds_the_horizon_back(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": "old"}))
    kept = one.head()
    checkpoints.keep_for(one, kept, 24 * RETENTION_MS)
    commit(one, SetProperty("/a", "p", "new"))
    world.advance(2 * HOUR)
    collect(one)
    retention.write(one, RETENTION_MS)
    fresh = open_instance(store, world, mac=7)
    assert fresh.node(fresh.at(kept.revision), "/a").properties == {"p": "old"}  # type: ignore[union-attr]
    assert str(collection_status(fresh).hold) == f"checkpoint {text(kept.revision)}"
    world.advance(30 * HOUR)
    one.checkpoint_cells.remove_expired()
    collect(one)
    with pytest.raises(RevisionCollectedError):
        fresh.at(kept.revision)


def test_a_checkpoint_of_a_collected_snapshot_is_refused(old: tuple[Instance, Any]) -> None:
    one, before = old
    with pytest.raises(RevisionCollectedError):
        checkpoints.keep_for(one, before, RETENTION_MS)


def test_a_checkpoint_that_the_horizon_passes_while_it_is_made_is_removed_and_refused(
    superseded: Superseded, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, base = superseded
    change = one.checkpoint_cells.change

    def collected_first(*arguments: Any) -> None:
        if not one.journal.fence.horizon and not other.journal.fence.horizon:
            world.advance(2 * HOUR)
            collect(other)
        change(*arguments)

    monkeypatch.setattr(one.checkpoint_cells, "change", collected_first)
    with pytest.raises(RevisionCollectedError):
        checkpoints.keep_for(one, base, RETENTION_MS)
    assert not checkpoints.all_of(other)


def test_the_log_ends_at_the_oldest_readable_revision(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}), AddNode("/b", {}))
    horizon = commit(one, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    later = commit(one, SetProperty("/a", "p", 2))
    commit(one, SetProperty("/b", "p", 2))
    collect(one)
    assert [entry.revision for entry in log.log(one, "/a")] == [text(later), text(horizon)]
    assert [entry.revision for entry in log.log(one)][-1] == text(horizon)
    assert [entry.revision for entry in log.log(one, "/b")] == [entry.revision for entry in log.log(one)][:1]


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


def test_one_of_two_processes_begins_a_run(store: MemoryStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {}))
    commit(other, AddNode("/b", {}))
    first, second = BackgroundCollection(one.runtime), BackgroundCollection(other.runtime)
    world.advance(700)
    for instance in (one, other):
        instance.maintain()
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


def test_a_branch_that_the_horizon_passes_while_it_begins_is_ended_and_refused(
    superseded: Superseded, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, base = superseded
    make_id = one.clock.next

    def collected_first(*arguments: Any, **options: Any) -> int:
        world.advance(2 * HOUR)
        collect(other)
        return make_id(*arguments, **options)

    monkeypatch.setattr(one.clock, "next", collected_first)
    with pytest.raises(RevisionCollectedError):
        one.begin_branch(base)
    world.advance(2 * HOUR)
    assert len(other.sweep_branches(None)) == 1


def test_an_announced_horizon_is_withdrawn_for_a_branch_that_it_would_pass(superseded: Superseded) -> None:
    one, other, base = superseded
    last = other.head().revision
    found = fence.read_horizon(other.store)
    announced = found._replace(announced=last, nonce=fence.new_nonce(other.runtime))
    assert fence.replace(other.store, found, announced)
    branch = one.begin_branch(base)
    assert fence.read_horizon(other.store).announced == 0
    assert not fence.replace(other.store, announced, announced._replace(revision=last))
    assert one.node(one.branch(branch).view, "/a").properties == {"p": 0}  # type: ignore[union-attr]


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
