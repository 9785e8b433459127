"""Rows of the journal go in stores that order all writes; an instance that needs one of them learns that it is gone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.check import problem as kinds
from hbasemk.errors import CommitUnknownError, RevisionCollectedError, UnknownRevisionError
from hbasemk.format import changes, journal_row, paths, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel import checkpoints, diff, log, time_travel
from hbasemk.kernel.collection import journal_rows
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.one_transaction import OneTransaction
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.feed import Feed, extent_of
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import ALL_VERSIONS, Get, NewCell, Put, Row, Scan, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite.store import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support import collection_mutants
from tests.support.collecting import HOUR, RETENTION_MS, commit
from tests.support.collection_mutants import Mutant, must_fail
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree


@pytest.fixture(params=["memory", "sqlite"])
def store(world: World, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore(world.clock, transactions=True)
    return SqliteStore(str(tmp_path / "content.db"), clock=world.clock)


def recorded(store: Store) -> list[int]:
    """Return the trunk revisions that have a journal row."""
    rows = journal_row.decode(store.scan(schema.JOURNAL, Scan(None, None, 1000)))
    return [row.revision for row in rows if not row.is_branch]


def trim(one: Instance, world: World) -> int:
    """Let time pass until all rows that exist now are gone, except the newest; return the revision that they are below."""
    one.poll()
    last = one.head().revision
    for _ in range(4):
        world.advance(2 * HOUR)
        commit(one, SetProperty("/", "tick", int(world.ms)))
        Collector(one).run(RETENTION_MS)
    assert fence.read_trim_level(one.store).revision >= last
    return last


def written_after(store: Store) -> int:
    """Return the number of the first write that the store still knows."""
    return store.arrivals(schema.JOURNAL, 0, 1, ()).last


def test_rows_that_nobody_needs_go_with_the_numbers_of_their_writes(store: Store, world: World) -> None:
    one = open_instance(store, world, mac=1)
    first = commit(one, AddNode("/a", {"p": 0}))
    commit(one, RemoveNode("/a"))
    old = commit(one, AddNode("/a", {"p": 1}))
    assert written_after(store) == 1
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
    assert written_after(store) > 1
    fresh = open_instance(store, world, mac=9)
    assert tree(fresh) == tree(one)
    assert [entry.revision for entry in log.log(fresh)][-1] == revisions.to_text(horizon)
    for instance in (one, fresh):
        with pytest.raises(RevisionCollectedError):
            instance.at(old)
        with pytest.raises(RevisionCollectedError, match="no longer recorded"):
            instance.outcome(old)
        with pytest.raises(RevisionCollectedError):
            time_travel.view_before(instance, 1 + instance.settings.epoch_ms + revisions.ms_of(old))
        with pytest.raises(UnknownRevisionError):
            instance.at(instance.head().revision - 1)
    assert not Collector(one).run(RETENTION_MS).cells
    assert not list(IntegrityCheck(fresh).run())


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


def test_a_sleeper_that_finds_only_that_rows_are_gone_begins_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where an early write of a row that stays keeps all later numbers.
    monkeypatch.setattr(journal_rows, "_writes_up_to", lambda store, after, limit: after)
    one, other, _, _ = asleep(store, world)
    assert fence.read_trim_level(one.store).arrival == 0
    one.poll()
    assert tree(one) == tree(other)
    assert one.children(one.head(), "/") == ["a", "b"]


def test_a_row_that_goes_between_a_poll_s_two_reads_lets_it_begin_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    commit(other, SetProperty("/a", "p", 1), AddNode("/b", {}))
    read, slept = one.store.read, []

    def sleep_first(table: str, gets: Sequence[Get]) -> list[Row]:
        if table == schema.JOURNAL and not slept:
            slept.append(True)
            trim(other, world)
        return read(table, gets)

    monkeypatch.setattr(one.store, "read", sleep_first)
    one.poll()
    assert slept
    assert tree(one) == tree(other)


def test_an_instance_that_opens_while_rows_go_begins_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_instance(store, world, mac=2)
    commit(other, AddNode("/a", {"p": 0}))
    faulty, slept = FaultyStore(store), []

    def sleep_first(call: Call) -> None:
        if call.method == "arrivals" and not slept:
            slept.append(True)
            commit(other, RemoveNode("/a"), AddNode("/b", {}))
            trim(other, world)

    faulty.before = sleep_first
    one = open_instance(faulty, world, mac=1)
    assert slept
    assert tree(one) == tree(other)


def test_a_sleeper_learns_of_checkpoints_made_meanwhile(store: Store, world: World) -> None:
    # Ids may be so far behind that the row goes while the checkpoint holds the horizon.
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


def commit_with_id(one: Instance, revision: int, operation: Any) -> int:
    """Commit with an id that was made before."""
    make = one.clock.next
    one.clock.next = lambda *_, **__: revision  # type: ignore[method-assign]
    try:
        return commit(one, operation)
    finally:
        one.clock.next = make  # type: ignore[method-assign]


def trim_up_to(one: Instance, world: World) -> None:
    """Trim as far as branches and checkpoints allow."""
    for _ in range(4):
        world.advance(2 * HOUR)
        commit(one, SetProperty("/", "tick", int(world.ms)))
        Collector(one).run(RETENTION_MS)


# --- writers that slept --------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_one", [True, False], ids=["one transaction", "step by step"])
def test_a_writer_whose_decision_was_trimmed_does_not_guess(
    store: Store, world: World, in_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    if not in_one:
        monkeypatch.setattr(OneTransaction, "fits", lambda *_: False)
    begun: list[int] = []

    def sleep_after(call: Call) -> None:
        decides = call.method == "write_if" and (in_one or JournalRow(row_of(store, begun[-1])).committed)
        if begun and decides:
            faulty.after = None
            other.poll()
            trim(other, world)
            raise lost_reply(call)

    faulty.after = sleep_after
    with pytest.raises(CommitUnknownError) as raised:
        one.commit(
            lambda _: OperationList([SetProperty("/a", "p", 1)]),
            "",
            retry_timeout=9,
            max_poll_age=0,
            begun=begun.append,
        )
    assert raised.value.revision == revisions.to_text(begun[-1])
    assert len(begun) == 1
    # It keeps no work for later, and the commit stays.
    one.outcomes.resolve_pending()
    assert not one.outcomes.deferred
    with pytest.raises(RevisionCollectedError):
        one.outcome(begun[-1])
    one.poll()
    assert tree(one) == tree(other) == tree(open_instance(store, world, mac=3))
    assert tree(one)["/a"] == {"p": 1}


def row_of(store: Store, revision: int) -> Row:
    return store.read(schema.JOURNAL, [Get(schema.revision_key(revision))])[0]


def test_a_writer_that_was_aborted_while_it_slept_leaves_nothing(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    monkeypatch.setattr(OneTransaction, "fits", lambda *_: False)
    begun: list[int] = []

    def sleep_before(call: Call) -> None:
        if call.method == "write" and call.table == schema.NODES:
            faulty.before = None
            other.poll()
            world.advance(60)
            other.maintain()
            other.recovery.advance()
            trim(other, world)
            assert begun[-1] not in recorded(store)

    faulty.before = sleep_before
    with pytest.raises(RevisionCollectedError):
        one.commit(
            lambda _: OperationList([SetProperty("/a", "p", 1)]),
            "",
            retry_timeout=9,
            max_poll_age=0,
            begun=begun.append,
        )
    # It had not asked for a decision, so its cells cannot be of a committed revision.
    assert begun[-1] not in versions(store, "/a", b"\x01p")
    assert not one.outcomes.deferred
    assert tree(one)["/a"] == {"p": 0}


def versions(store: Store, path: str, qualifier: bytes) -> list[int]:
    (row,) = store.read(schema.NODES, [Get(paths.key(path), versions=ALL_VERSIONS)])
    return [cell.timestamp for cell in row.cells if cell.qualifier == qualifier]


def test_an_unresolved_revision_whose_row_is_gone_is_forgotten(store: Store, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    revision = commit(one, AddNode("/a", {"p": 0}))
    one.outcomes.defer(revision, [RowChange("/a", changes.ADDED, ("p",))])
    trim(other, world)
    one.outcomes.resolve_pending()
    assert not one.outcomes.deferred
    assert tree(one)["/a"] == {"p": 0}
    with pytest.raises(RevisionCollectedError):
        one.outcomes.abort_missing(revision)
    assert revision not in recorded(store)


def test_a_commit_does_not_take_a_trimmed_conflict_for_a_revision_that_never_was(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    base = one.head()
    commit(other, SetProperty("/a", "p", 1))
    of_many, slept = one.outcomes.of_many, []

    def sleep_first(wanted: Sequence[int]) -> Any:
        if not slept:
            slept.append(True)
            trim(other, world)
        return of_many(wanted)

    monkeypatch.setattr(one.outcomes, "of_many", sleep_first)
    with pytest.raises(RevisionCollectedError):
        one.commit_on(base, OperationList([SetProperty("/a", "p", 2)]), "")
    assert slept
    assert tree(one)["/a"] == {"p": 1}


# --- requests that are repeated, and late cells ----------------------------------------------------------------


def test_a_row_that_a_repeated_request_creates_again_takes_no_cells_with_it(store: Store, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    revision = commit(one, AddNode("/a", {"p": 0}))
    one.lease.release(one.clock.issued_ms)
    kept = row_of(store, revision)
    trim(other, world)
    before = tree(other)
    pending = [NewCell(*cell[:2], schema.NO if cell[:2] == schema.COMMITTED else cell.value) for cell in kept.cells]
    store.write(schema.JOURNAL, [Put(kept.key, pending)])
    fresh = open_instance(store, world, mac=3)
    for instance in (one, other, fresh):
        instance.poll()
        assert not instance.journal.pending
        instance.maintain()
        instance.recovery.recover_late()
        instance.outcomes.recover(revision)
        with pytest.raises(RevisionCollectedError):
            instance.outcomes.abort_own(revision, [RowChange("/a", changes.ADDED, ("p",))])
        assert tree(instance) == before
    assert {one.severity for one in IntegrityCheck(fresh).run()} <= {kinds.LEFTOVER}
    trim(other, world)
    assert revision not in recorded(store)
    assert tree(fresh)["/a"] == {"p": 0}


def aborted(one: Instance, other: Instance, store: Store, world: World) -> int:
    """Return a revision that another instance swept in doubt, and the watermark hides."""
    revision = one.clock.next(one.journal.highest_seen)
    commit(other, AddNode("/b", {}))
    other.outcomes.abort_missing(revision)
    store.write(
        schema.JOURNAL,
        [Put(schema.revision_key(revision), changes.encode([RowChange("/a", changes.CHANGED, ("p",))]))],
    )
    world.advance(60)
    other.outcomes.recover(revision)
    commit(other, AddNode("/c", {}))
    other.recovery.advance()
    return revision


@pytest.mark.parametrize("row_is_gone", [False, True], ids=["before its row goes", "after its row has gone"])
def test_late_cells_of_a_hidden_revision_go(store: Store, world: World, row_is_gone: bool) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    revision = aborted(one, other, store, world)
    late = Put(paths.key("/a"), [NewCell(schema.DATA, b"\x01p", b"\x01", revision)])
    world.advance(2 * HOUR)
    commit(other, AddNode("/d", {}))
    Collector(other).run(RETENTION_MS)
    assert revision in recorded(store)
    if row_is_gone:
        trim(other, world)
        store.write(schema.NODES, [late])
        fresh = open_instance(store, world, mac=3)
        assert tree(fresh)["/a"] == {"p": 0}
        assert not list(IntegrityCheck(fresh).run())
        assert Collector(other).estimate(RETENTION_MS, full=True).cells["cells of aborted revisions"] == 1
        Collector(other).run(RETENTION_MS, full=True)
    else:
        # The horizon has passed the revision already: the rows go with the late cells.
        store.write(schema.NODES, [late])
        trim(other, world)
    assert revision not in recorded(store)
    assert revision not in versions(store, "/a", b"\x01p")
    assert not list(IntegrityCheck(other).run())


# --- readers of the journal ------------------------------------------------------------------------------------


def test_a_large_row_that_goes_between_two_reads_of_its_parts_is_no_damage(
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


def test_a_diff_from_a_snapshot_whose_rows_are_gone_is_refused(store: Store, world: World) -> None:
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
            test_a_sleeper_that_finds_only_that_rows_are_gone_begins_again,
            (None,),
        ),
        (collection_mutants.caches_survive_a_new_beginning, test_a_sleeper_begins_again_and_misses_nothing, ()),
        (
            collection_mutants.numbers_start_at_the_watermark,
            test_an_instance_that_opens_while_rows_go_begins_again,
            (None,),
        ),
        (
            collection_mutants.absent_rows_never_were,
            test_a_writer_whose_decision_was_trimmed_does_not_guess,
            (True, None),
        ),
        (
            collection_mutants.absent_rows_never_were,
            test_a_writer_whose_decision_was_trimmed_does_not_guess,
            (False, None),
        ),
        (
            collection_mutants.absent_rows_never_were,
            test_a_commit_does_not_take_a_trimmed_conflict_for_a_revision_that_never_was,
            (None,),
        ),
        (
            collection_mutants.absent_rows_never_were,
            test_a_row_that_a_repeated_request_creates_again_takes_no_cells_with_it,
            (),
        ),
        (
            collection_mutants.journal_readers_not_checked,
            test_a_diff_from_a_snapshot_whose_rows_are_gone_is_refused,
            (),
        ),
        (
            collection_mutants.rows_go_before_their_use,
            test_rows_that_nobody_needs_go_with_the_numbers_of_their_writes,
            (),
        ),
        (
            collection_mutants.the_row_of_the_horizon_goes,
            test_a_sleeper_begins_again_and_misses_nothing,
            (),
        ),
        (collection_mutants.late_cells_of_gone_rows_stay, test_late_cells_of_a_hidden_revision_go, (True,)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_rule_is_found(
    mutant: Mutant, test: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_fail(mutant, test, arguments, monkeypatch)
