"""The trim level of a store that does not order all writes: collectors publish it, wait, and delete journal rows only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.check import problem as kinds
from hbasemk.errors import CommitUnknownError, FormatError, RevisionCollectedError
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.trim_level import TrimLevel
from hbasemk.kernel import settings, time_travel
from hbasemk.kernel.collection import journal_rows
from hbasemk.kernel.collection.collector import Collector, Report
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import NewCell, Put, Row, Scan
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support import collection_mutants
from tests.support.collecting import HOUR, RETENTION_MS, commit
from tests.support.collection_mutants import Mutant, must_fail
from tests.support.marking_store import MarkingStore
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.trimming import commit_once, recorded, row_of, trim, trim_before_first_read, trim_up_to


@pytest.fixture
def ordered() -> bool:
    return False


# --- collectors ------------------------------------------------------------------------------------------------


def grown(store: MarkingStore, world: World) -> Instance:
    """Return an instance whose next run publishes a trim level."""
    one = open_instance(store, world, mac=1)
    commit(one, AddNode("/a", {"p": 0}))
    for _ in range(2):
        world.advance(2 * HOUR)
        commit(one, SetProperty("/a", "p", int(world.ms)))
        Collector(one).run(RETENTION_MS)
    world.advance(2 * HOUR)
    commit(one, SetProperty("/a", "p", int(world.ms)))
    one.poll()
    return one


def test_rows_stay_until_all_instances_know_the_level(store: MarkingStore, world: World) -> None:
    one = grown(store, world)
    before = recorded(store)
    runs = Collector(one)
    runs.publish(RETENTION_MS)
    level = fence.read_trim_level(one.store)
    assert level.arrival == 0
    assert before[0] < level.revision < one.journal.fence.horizon
    for seconds in (0, fence.GRACE_APART - 1):
        world.advance(seconds)
        one.poll()
        runs.collect(RETENTION_MS, Report())
        assert recorded(store) == before
    world.advance(2)
    report = Report()
    runs.collect(RETENTION_MS, report)
    gone = [revision for revision in before if revision <= level.revision]
    assert report.cells[journal_rows.KIND] == len(gone) > 0
    assert recorded(store) == [revision for revision in before if revision > level.revision]


def test_another_collector_continues_where_one_was_killed(
    store: MarkingStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_rows, "BATCH", 2)
    one = open_instance(store, world, mac=1)
    for number in range(9):
        commit(one, AddNode(f"/{number}", {}))
    for _ in range(2):
        world.advance(2 * HOUR)
        commit(one, SetProperty("/1", "p", int(world.ms)))
        Collector(one).run(RETENTION_MS)
    faulty, deletes = FaultyStore(store), []
    dying = open_instance(faulty, world, mac=2)

    def die(call: Call) -> None:
        if call.method == "delete_rows" and call.table == schema.JOURNAL:
            deletes.append(call)
            if len(deletes) > 2:
                raise KeyboardInterrupt

    faulty.before = die
    first = recorded(store)[0]
    world.advance(2 * HOUR)
    commit(one, SetProperty("/1", "p", int(world.ms)))
    with pytest.raises(KeyboardInterrupt):
        Collector(dying).run(RETENTION_MS)
    starts: list[int] = []
    scan = store.scan

    def record(table: str, wanted: Scan) -> list[Row]:
        if table == schema.JOURNAL:
            starts.append(int.from_bytes((wanted.start or b"")[:8], "big"))
        return scan(table, wanted)

    monkeypatch.setattr(store, "scan", record)
    other = open_instance(store, world, mac=3)
    Collector(other).run(RETENTION_MS)
    # The run reads nothing of what the other one deleted and recorded.
    assert min(starts) > first
    level = fence.read_trim_level(other.store).revision
    assert min(recorded(store)) > level
    # Nor does any later work: HBase would step over the markers.
    starts.clear()
    world.advance(2 * HOUR)
    commit(other, AddNode("/later", {}))
    other.maintain()
    Collector(other).run(RETENTION_MS)
    open_instance(store, world, mac=4).maintain()
    assert len(starts) > 3
    assert min(starts) > level


def test_the_level_is_at_most_the_watermark_that_is_shown(
    store: MarkingStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = grown(store, world)
    shown = settings.read_watermark(one.store)
    low = replace(shown, revision=recorded(store)[1])
    with monkeypatch.context() as patch:
        # As if the clock of the region server had gone back: an older cell hides the watermark.
        patch.setattr(settings, "read_watermark", lambda _: low)
        Collector(one).run(RETENTION_MS)
    assert fence.read_trim_level(one.store).revision == low.revision


def test_rows_stay_if_the_store_does_not_show_the_level(
    store: MarkingStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = grown(store, world)
    before, shown = recorded(store), fence.read_trim_level(one.store)
    check_and_write = one.store.check_and_write

    def hide(table: str, column: Any, expected: Any, put: Put, **options: Any) -> bool:
        # As if the clock of the region server had gone back: an earlier cell hides the new one.
        return column == schema.TRIMMED or check_and_write(table, column, expected, put, **options)

    with monkeypatch.context() as patch:
        patch.setattr(one.store, "check_and_write", hide)
        Collector(one).run(RETENTION_MS)
        world.advance(120)
        one.poll()
        Collector(one).collect(RETENTION_MS, Report())
    assert fence.read_trim_level(one.store) == shown
    assert recorded(store) == before
    Collector(one).run(RETENTION_MS)
    assert recorded(store) != before


def test_polls_report_a_damaged_level(store: MarkingStore, world: World) -> None:
    one = grown(store, world)
    level = fence.read_trim_level(one.store)
    store.write(schema.CLUSTER, [Put(schema.LOGS_TAIL, [NewCell(*schema.TRIMMED, b"short")])])
    with pytest.raises(FormatError, match="trim level"):
        one.poll()
    store.write(schema.CLUSTER, [Put(schema.LOGS_TAIL, [NewCell(*schema.TRIMMED, level.encode())])])
    one.poll()


# --- instances -------------------------------------------------------------------------------------------------


def test_a_pending_revision_whose_row_was_deleted_is_pending_no_more(store: MarkingStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/first", {}))
    revision = one.announcements.next(one.journal.highest_seen, [])
    one.announcements.announce(revision)
    other.poll()
    assert revision in other.journal.pending
    # The writer dies, and an instance aborts its revision.
    third = open_instance(store, world, mac=3)
    world.advance(120)
    third.poll()
    third.maintain()
    commit(third, AddNode("/a", {"p": 0}))
    trim(third, world)
    assert revision not in recorded(store)
    other.poll()
    assert not other.journal.pending
    assert tree(other) == tree(third)
    for instance in (other, third):
        instance.maintain()
        assert revision not in instance.journal.pending


def test_a_long_poll_reads_the_level_again(store: MarkingStore, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(store, world, mac=1), open_instance(faulty, world, mac=2)
    commit(other, AddNode("/a", {"p": 0}))

    def look(call: Call) -> None:
        # The other one is about to decide: its revision waits in this instance.
        if call.method == "check_and_write" and call.table == schema.JOURNAL:
            one.poll()

    faulty.before = look
    commit(other, SetProperty("/a", "p", 1))
    faulty.before = None
    assert one.journal.pending
    slept = trim_before_first_read(one, other, world, monkeypatch)
    one.poll()
    monkeypatch.undo()
    assert slept
    assert one.head().revision == other.head().revision
    assert tree(one) == tree(other)


@pytest.mark.parametrize("compacted", [False, True], ids=["hidden by a marker", "visible after a compaction"])
def test_a_creation_that_arrives_after_its_row_was_deleted_commits_nothing(
    store: MarkingStore, world: World, compacted: bool
) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    begun: list[int] = []

    def hold(call: Call) -> None:
        if begun and call.method.startswith("check_and_write") and call.table == schema.JOURNAL:
            faulty.before = None
            # The announcement arrives, and the creation does not until the row of the dead writer is gone.
            one.announcements.announce(begun[-1])
            other.poll()
            world.advance(120)
            other.poll()
            other.maintain()
            commit(other, SetProperty("/a", "p", 1))
            other.recovery.advance()
            assert begun[-1] in settings.read_watermark(other.store).hidden
            trim(other, world)
            assert begun[-1] not in recorded(store)
            if compacted:
                store.compact()

    faulty.before = hold
    with pytest.raises((RevisionCollectedError, CommitUnknownError)):
        commit_once(one, SetProperty("/a", "p", 2), begun)
    assert faulty.before is None
    fresh = open_instance(store, world, mac=3)
    for instance in (one, other, fresh):
        instance.poll()
        assert tree(instance)["/a"] == {"p": 1}
    assert {problem.severity for problem in IntegrityCheck(fresh).run()} <= {kinds.LEFTOVER}
    trim_up_to(other, world)
    Collector(other).run(RETENTION_MS, full=True)
    assert begun[-1] not in recorded(store)


# --- rows that a request creates again --------------------------------------------------------------------------


def create_again(store: MarkingStore, kept: Row) -> None:
    """Create a row again as its writer created it; it is visible, because a compaction has removed the markers."""
    store.compact()
    pending = [NewCell(*cell[:2], schema.NO if cell[:2] == schema.COMMITTED else cell.value) for cell in kept.cells]
    assert store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, Put(kept.key, pending))


def goes_again(one: Instance, revision: int) -> None:
    """Check that a full run deletes a row that was created again, and its late cells."""
    (again,) = [problem for problem in IntegrityCheck(one).run() if problem.kind == kinds.ROW_AGAIN]
    assert "--full" in again.detail
    for _ in range(2):
        Collector(one).run(RETENTION_MS, full=True)
    assert not row_of(one.store.inner, revision).cells


def test_a_decision_on_a_row_that_was_created_again_is_unknown(store: MarkingStore, world: World) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    begun: list[int] = []

    def hold(call: Call) -> None:
        decides = call.method == "check_and_write" and call.table == schema.JOURNAL
        if begun and decides and row_of(store, begun[-1]).cells:
            faulty.before = None
            kept = row_of(store, begun[-1])
            other.poll()
            world.advance(120)
            other.poll()
            other.maintain()
            commit(other, SetProperty("/a", "p", 2))
            trim(other, world)
            assert begun[-1] not in recorded(store)
            create_again(store, kept)

    faulty.before = hold
    with pytest.raises(CommitUnknownError):
        commit_once(one, SetProperty("/a", "p", 1), begun)
    assert faulty.before is None
    for instance in (one, other, open_instance(store, world, mac=3)):
        instance.poll()
        assert tree(instance)["/a"] == {"p": 2}
    goes_again(other, begun[-1])


def test_what_was_committed_is_not_appended_after_a_new_beginning(
    store: MarkingStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    append, seen = one.journal.append_local, []

    def append_late(revision: int, *arguments: Any) -> bool:
        # The thread was paused after the decision, and another thread of the process polls first.
        commit(other, SetProperty("/a", "q", 5))
        trim(other, world)
        one.poll()
        seen.append((revision, one.head()))
        assert one.journal.sees(one.head(), revision)
        return append(revision, *arguments)

    monkeypatch.setattr(one.journal, "append_local", append_late)
    commit(one, SetProperty("/a", "p", 1))
    ((revision, view),) = seen
    assert one.journal.sees(view, revision)
    assert one.journal.complete_up_to(view) >= one.journal.fence.horizon
    assert tree(one) == tree(other)


def test_a_base_that_was_created_again_is_no_damage(store: MarkingStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    rows: dict[int, Row] = {}
    for _ in range(6):
        world.advance(2 * HOUR)
        revision = commit(other, SetProperty("/", "tick", int(world.ms)))
        rows[revision] = row_of(store, revision)
        Collector(other).run(RETENTION_MS)
    base = JournalRow(row_of(store, recorded(store)[0])).base
    assert base in rows
    assert base not in recorded(store)
    create_again(store, rows[base])
    assert {one.severity for one in IntegrityCheck(open_instance(store, world, mac=3)).run()} <= {kinds.LEFTOVER}
    goes_again(other, base)


def test_the_outcome_of_a_revision_whose_row_was_created_again_is_not_known(store: MarkingStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    revision = commit(one, AddNode("/a", {"p": 0}))
    kept = row_of(store, revision)
    trim(other, world)
    create_again(store, kept)
    with pytest.raises(RevisionCollectedError):
        other.outcome(revision)
    goes_again(other, revision)


def test_the_search_by_time_ignores_rows_that_were_created_again(store: MarkingStore, world: World) -> None:
    retention_ms = 120_000
    one = open_instance(store, world, mac=1)
    rows: dict[int, Row] = {}
    moments: dict[int, int] = {}
    for turn in range(72):
        world.advance(10)
        revision = commit(one, SetProperty("/", "tick", int(world.ms)))
        rows[revision] = row_of(store, revision)
        moments[revision] = int(world.ms) + 500
        if turn >= 60 and turn % 4 == 3:
            Collector(one).run(retention_ms)
    horizon = one.journal.fence.refresh()
    gone = [revision for revision in rows if revision not in recorded(store)]
    assert time_travel.view_before(one, moments[horizon]).revision == horizon
    create_again(store, rows[gone[-1]])
    assert time_travel.view_before(one, moments[horizon]).revision == horizon
    goes_again(one, gone[-1])


def test_a_full_run_deletes_the_row_of_a_branch_that_was_created_again(store: MarkingStore, world: World) -> None:
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    root = one.begin_branch(one.head())
    kept = row_of(store, root)
    one.sweep_branches(0)
    trim_up_to(other, world)
    assert not row_of(store, root).cells
    create_again(store, kept)
    for _ in range(3):
        world.advance(24 * HOUR)
        other.poll()
        other.maintain()
    Collector(other).run(RETENTION_MS, full=True)
    assert not row_of(store, root).cells


def test_a_level_above_the_watermark_is_damage(store: MarkingStore, world: World) -> None:
    one = grown(store, world)
    level = TrimLevel(0, revisions.MAX_REVISION)
    before = fence.read_trim_level(one.store)
    assert fence.publish_trim_level(one.store, before, level)
    with pytest.raises(FormatError, match="above the watermark"):
        one.poll()
    assert fence.publish_trim_level(one.store, level, before)
    one.poll()


# --- mutants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutant", "test", "arguments"),
    [
        (collection_mutants.rows_go_at_once, test_rows_stay_until_all_instances_know_the_level, ()),
        (
            collection_mutants.rows_go_above_the_watermark,
            test_the_level_is_at_most_the_watermark_that_is_shown,
            (None,),
        ),
        (collection_mutants.long_polls_trusted, test_a_long_poll_reads_the_level_again, (None,)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_broken_rule_is_found(
    mutant: Mutant, test: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_fail(mutant, test, arguments, monkeypatch, ordered=False)
