"""Collectors delete rows of the journal; instances that need one of them notice it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.errors import RevisionCollectedError, UnknownRevisionError
from hbasemk.format import changes, revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel import checkpoints, diff, log, time_travel
from hbasemk.kernel.collection import journal_rows
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.feed import Feed, extent_of
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.rows import whole_rows
from hbasemk.kernel.reading import child_count, reader
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Get, Row, Store
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support import collection_mutants
from tests.support.collecting import HOUR, RETENTION_MS, commit
from tests.support.collection_mutants import Mutant, must_fail
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.trimming import commit_with_id, recorded, trim, trim_before_first_read, trim_up_to, written_after


@pytest.fixture
def store(trimmed_store: Store) -> Store:
    return trimmed_store


def test_unneeded_rows_are_deleted_with_the_numbers_of_their_writes(store: Store, world: World) -> None:
    one = open_instance(store, world, mac=1)
    first = commit(one, AddNode("/a", {"p": 0}))
    commit(one, RemoveNode("/a"))
    old = commit(one, AddNode("/a", {"p": 1}))
    assert not store.supports_transactions or written_after(store) == 1
    world.advance(2 * HOUR)
    commit(one, AddNode("/b", {}))
    Collector(one).run(RETENTION_MS)
    # The marks of deletions stay for one more retention, and the rows name them.
    assert first in recorded(store)
    world.advance(2 * HOUR)
    last = commit(one, AddNode("/c", {}))
    counted = Collector(one).estimate(RETENTION_MS).cells[journal_rows.KIND]
    report = Collector(one).run(RETENTION_MS)
    assert report.cells[journal_rows.KIND] == counted
    trim(one, world)
    kept = recorded(store)
    assert not {first, old, last} & set(kept)
    horizon = fence.read_horizon(one.store).revision
    # The row of the horizon and the later ones stay: readable views need them.
    assert min(kept) <= horizon in kept
    assert not store.supports_transactions or written_after(store) > 1
    fresh = open_instance(store, world, mac=9)
    assert tree(fresh) == tree(one)
    assert [entry.revision for entry in log.log(fresh)][-1] == revisions.to_text(horizon)
    for instance in (one, fresh):
        with pytest.raises(RevisionCollectedError):
            instance.at(old)
        with pytest.raises(
            RevisionCollectedError, match="no longer recorded.*Read the present state, or begin a new watch"
        ):
            instance.outcome(old)
        with pytest.raises(RevisionCollectedError):
            time_travel.view_before(instance, 1 + instance.settings.epoch_ms + revisions.ms_of(old))
        with pytest.raises(UnknownRevisionError):
            instance.at(instance.head().revision - 1)
    # Without an order of writes, a run deletes the rows that an earlier run has used.
    assert store.supports_transactions or Collector(one).run(RETENTION_MS).cells.keys() == {journal_rows.KIND}
    assert not Collector(one).run(RETENTION_MS).cells
    assert not list(IntegrityCheck(fresh).run())


def test_the_row_of_the_horizon_stays(store: Store, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {}))
    trim(one, world)
    assert fence.read_horizon(one.store).revision in recorded(store)


def test_before_anything_is_deleted_no_revision_counts_as_deleted(store: Store, world: World) -> None:
    one = open_instance(store, world)
    revision = commit(one, AddNode("/a", {}))
    for absent in (0, 1, revision - (1 << 24)):
        assert not one.journal.is_trimmed(absent)
        assert one.outcome(absent) is Outcome.ABSENT


def asleep(store: Store, world: World) -> tuple[Instance, Instance, Any, Feed]:
    """Return an instance that slept until rows that it has not read were deleted, another one, its old head, and its feed."""
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}), AddNode("/b", {"p": 0}), AddNode("/c", {}))
    before = one.head()
    feed = Feed(extent_of(one, before))
    feed.advance(one)
    for path in ("/", "/a", "/b", "/c"):
        one.node(before, path)
        one.children(before, path)
    one.child_count(before, one.require(before, "/"))
    one.subtree_hashes(before, one.require(before, "/"), [])
    commit(other, SetProperty("/a", "p", 1), RemoveNode("/c"), AddNode("/b/d", {}))
    trim(other, world)
    return one, other, before, feed


def test_a_sleeper_begins_again_and_misses_nothing(store: Store, world: World) -> None:
    one, other, before, feed = asleep(store, world)
    token = one.subtree_token(before, "/a")
    one.poll()
    head = one.head()
    assert tree(one) == tree(other)
    assert one.children(head, "/") == ["a", "b"]
    assert one.children(head, "/b") == ["d"]
    assert one.child_count(head, one.require(head, "/")) == 2
    assert one.subtree_hashes(head, one.require(head, "/"), []) == other.subtree_hashes(
        other.head(), other.require(other.head(), "/"), []
    )
    assert one.subtree_token(head, "/a") != token
    # Its old snapshot stays the same set of revisions, and is too old.
    assert one.journal.contents(before).floor < head.revision
    with pytest.raises(RevisionCollectedError):
        one.nodes(before, ["/a", "/x"])
    # A watch has missed revisions.
    with pytest.raises(RevisionCollectedError):
        feed.advance(one)
    # It goes on as any instance.
    revision = commit(one, SetProperty("/a", "p", 2))
    other.poll()
    assert other.head().revision == revision == one.head().revision
    assert tree(one) == tree(other)
    later = Feed(extent_of(one, head))
    assert later.advance(one).revisions == [revision]


def test_an_instance_that_has_read_everything_does_not_begin_again(store: Store, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    view = one.head()
    for _ in range(5):
        world.advance(2 * HOUR)
        commit(other, SetProperty("/", "tick", int(world.ms)))
        one.poll()
        Collector(other).run(RETENTION_MS)
    assert fence.read_trim_level(one.store).revision > view.revision
    one.poll()
    assert one.journal.view_of(view.revision) == view
    assert len(list(one.journal)) == 6


def test_a_sleeper_that_finds_only_deleted_rows_begins_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where an early write of a row that stays keeps all later numbers.
    monkeypatch.setattr(journal_rows, "_writes_up_to", lambda store, after, limit: after)
    one, other, _, _ = asleep(store, world)
    assert fence.read_trim_level(one.store).arrival == 0
    one.poll()
    assert tree(one) == tree(other)
    assert one.children(one.head(), "/") == ["a", "b"]


def test_a_poll_begins_again_if_a_row_is_deleted_between_its_two_reads(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only large changes take a second read.
    monkeypatch.setattr(changes, "FIRST_CHUNK", 10)
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    commit(other, SetProperty("/a", "p", 1), AddNode("/b", {}))
    slept = trim_before_first_read(one, other, world, monkeypatch)
    one.poll()
    assert slept
    assert tree(one) == tree(other)


def test_an_instance_that_opens_while_rows_are_deleted_begins_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_instance(store, world, mac=2)
    commit(other, AddNode("/a", {"p": 0}))
    faulty, slept = FaultyStore(store), []

    def sleep_first(call: Call) -> None:
        polls = call.method == "arrivals" or (call.method == "scan" and call.table == schema.CLUSTER)
        if polls and not slept:
            slept.append(True)
            commit(other, RemoveNode("/a"), AddNode("/b", {}))
            trim(other, world)

    faulty.before = sleep_first
    one = open_instance(faulty, world, mac=1)
    assert slept
    assert tree(one) == tree(other)


def test_a_sleeper_learns_of_checkpoints_made_meanwhile(ordered_store: Store, world: World) -> None:
    # Ids may be so far behind that the row goes while the checkpoint holds the horizon.
    store = ordered_store
    settings = Settings(max_clock_skew_ms=int(4 * HOUR) * 1000, lease_ms=int(100 * HOUR) * 1000)
    one, other = open_instance(store, world, settings, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    assert one.checkpoint_cells.view_of(one.head().revision) is None
    low = other.clock.next(other.journal.highest_seen)
    world.advance(3 * HOUR)
    high = commit(one, AddNode("/high", {}))
    late = commit_with_id(other, low, AddNode("/low", {}))
    assert late < high
    one.poll()
    view = one.head()
    assert view.revision == late
    one.recovery.advance()
    other.poll()
    other.recovery.advance()
    before = tree(other)
    made = checkpoints.keep_for(other, other.head(), 10**12)
    assert made.revision == late
    trim_up_to(other, world)
    assert late not in recorded(store)
    one.poll()
    for instance in (one, other, open_instance(store, world, mac=3)):
        assert tree(instance, instance.at(late)) == before


# --- readers of the journal ------------------------------------------------------------------------------------


def test_a_large_row_deleted_between_two_reads_of_its_parts_is_not_damage(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {}))
    names = (hashlib.sha512(str(number).encode()).hexdigest() for number in range(2000))
    many = [SetProperty("/a", name, 1) for name in names]
    large = commit(other, *many)
    (row,) = store.read(schema.JOURNAL, [Get(schema.revision_key(large))])
    assert sum(changes.is_chunk(cell.qualifier) for cell in row.cells) > 1
    read = one.store.read

    def sleep_between(table: str, gets: Sequence[Get]) -> list[Row]:
        found = read(table, gets)
        if table == schema.JOURNAL and found and found[0].key == schema.revision_key(large):
            monkeypatch.undo()
            trim(other, world)
        return found

    monkeypatch.setattr(one.store, "read", sleep_between)
    with pytest.raises(RevisionCollectedError):
        list(log.entries(one, [large]))
    monkeypatch.undo()
    # A poll begins again instead.
    one.poll()
    assert tree(one) == tree(other)


def test_a_count_survives_the_deletion_of_a_large_row_between_two_reads_of_its_parts(
    ordered_store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ordered_store
    monkeypatch.setattr(changes, "FIRST_CHUNK", 10)
    for module in (reader, child_count):
        monkeypatch.setattr(module, "WIDE", 2)
    monkeypatch.setattr(child_count, "PER_REVISION", 1)
    other = open_instance(store, world, mac=2)
    commit(other, AddNode("/a", {}), *(AddNode(f"/a/{number}", {}) for number in range(9)))
    other.poll()
    assert other.child_count(other.head(), other.require(other.head(), "/a")) == 9
    removed = commit(other, RemoveNode("/a/1"))
    world.advance(8 * HOUR)
    commit(other, AddNode("/b", {}))
    one = open_instance(store, world, mac=1)
    head = one.head()
    read = whole_rows
    slept: list[bool] = []

    def sleep_between(store: Any, rows: Any) -> Any:
        for row in list(rows):
            if not slept:
                slept.append(True)
                for _ in range(4):
                    world.advance(2 * HOUR)
                    Collector(other).run(RETENTION_MS)
                assert removed not in recorded(store)
            yield from read(store, [row])

    monkeypatch.setattr(child_count, "whole_rows", sleep_between)
    assert one.child_count(head, one.require(head, "/a")) == 8
    assert slept


def test_a_diff_from_a_snapshot_with_deleted_rows_is_refused(store: Store, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    before = one.head()
    first = commit(one, SetProperty("/a", "p", 1))
    after = one.head()
    for _ in range(4):
        world.advance(2 * HOUR)
        commit(other, AddNode(f"/x{int(world.ms)}", {}))
        # It keeps the positions, because it has read everything in time.
        one.poll()
        Collector(other).run(RETENTION_MS)
    assert first not in recorded(store)
    assert one.journal.knows(first)
    for old in (before, after):
        with pytest.raises(RevisionCollectedError):
            list(diff.diff(one, old, one.head()))
        with pytest.raises(RevisionCollectedError):
            list(diff.diff(one, before, old) if old is after else diff.diff(one, one.head(), old))
    with pytest.raises(RevisionCollectedError):
        list(log.trunk_steps(one, first, one.head(), "/"))
    with pytest.raises(RevisionCollectedError):
        list(log.entries(one, [first]))


def test_a_collector_that_slept_while_another_trimmed_does_no_harm(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    commit(one, SetProperty("/a", "p", 1))
    for sleeps_in in ("write_if", "delete_rows", "forget_arrivals"):
        world.advance(2 * HOUR)
        commit(one, SetProperty("/a", "p", int(world.ms)))
        call, slept = getattr(one.store, sleeps_in), []

        def sleep_first(*arguments: Any, call: Any = call, slept: Any = slept, **options: Any) -> Any:
            if not slept:
                slept.append(True)
                trim(other, world)
            return call(*arguments, **options)

        monkeypatch.setattr(one.store, sleeps_in, sleep_first)
        Collector(one).run(RETENTION_MS)
        monkeypatch.undo()
        level = fence.read_trim_level(one.store)
        assert level.revision < fence.read_horizon(one.store).revision
        one.poll()
        assert tree(one) == tree(other) == tree(open_instance(store, world, mac=3))
    Collector(one).run(RETENTION_MS)
    assert min(recorded(store)) <= fence.read_horizon(one.store).revision in recorded(store)
    assert not list(IntegrityCheck(one).run())


# --- mutants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutant", "test", "arguments"),
    [
        (collection_mutants.sleepers_go_on, test_a_sleeper_begins_again_and_misses_nothing, ()),
        (
            collection_mutants.rows_that_are_gone_overlooked,
            test_a_sleeper_that_finds_only_deleted_rows_begins_again,
            (None,),
        ),
        (collection_mutants.caches_survive_a_new_beginning, test_a_sleeper_begins_again_and_misses_nothing, ()),
        (
            collection_mutants.numbers_start_at_the_watermark,
            test_an_instance_that_opens_while_rows_are_deleted_begins_again,
            (None,),
        ),
        (
            collection_mutants.journal_readers_not_checked,
            test_a_diff_from_a_snapshot_with_deleted_rows_is_refused,
            (),
        ),
        (
            collection_mutants.rows_go_before_their_use,
            test_unneeded_rows_are_deleted_with_the_numbers_of_their_writes,
            (),
        ),
        (
            collection_mutants.the_row_of_the_horizon_goes,
            test_the_row_of_the_horizon_stays,
            (),
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_rule_is_found(
    mutant: Mutant, test: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_fail(mutant, test, arguments, monkeypatch)


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (collection_mutants.sleepers_go_on, test_a_sleeper_begins_again_and_misses_nothing),
        (collection_mutants.caches_survive_a_new_beginning, test_a_sleeper_begins_again_and_misses_nothing),
        (
            collection_mutants.rows_go_before_their_use,
            test_unneeded_rows_are_deleted_with_the_numbers_of_their_writes,
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_rule_is_found_without_an_order_of_writes(
    mutant: Mutant, test: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_fail(mutant, test, (), monkeypatch, ordered=False)
