"""Mutants: the kernel broken on purpose, one line at a time. Some schedule must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from hbasemk.errors import HbasemkError
from hbasemk.format import changes, node, schema
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.branches import branches
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.commit import change_set, deadline
from hbasemk.kernel.commit.attempt import Attempts
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.committer import Committer
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.operations import Expect
from hbasemk.kernel.commit.preparation import Preparation
from hbasemk.kernel.commit.read_back import ReadBack
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.commit.staging import Staging
from hbasemk.kernel.commit.writing import Writing
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal import recovery
from hbasemk.kernel.journal.arrival_poller import ArrivalPoller
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.kernel.journal.scan_poller import ScanPoller
from hbasemk.kernel.reading import reader, walk
from hbasemk.kernel.reading.cache import NodeCache
from hbasemk.kernel.reading.visible_cells import VisibleCells
from hbasemk.store import abc
from hbasemk.store.abc import Arrivals, Cell, Column, NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.simulation.schedules import Broken, Schedule

MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = []


def mutant(function: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Register a mutant."""
    MUTANTS.append(function)
    return function


def must_be_found(name: str, make: Callable[[int], Schedule], seeds: Iterable[int]) -> None:
    """Run the schedules of the seeds until an invariant is broken, and fail if none is.

    A process that ends with a built-in Python error breaks none: a mutant that no longer fits the kernel does the same.
    """
    tried = 0
    other: Exception | None = None
    for seed in seeds:
        tried += 1
        schedule = make(seed)
        try:
            schedule.run()
        except Broken as error:
            if not _merely_ended(schedule, error):
                print(f"{name} was found by schedule {seed}, number {tried} of the search: {str(error)[:100]}")
                return
            other = error
        except Exception as error:
            other = error
    pytest.fail(f"{name} was not found in {tried} schedules" + (f"; the last error was {other!r}" if other else ""))


def _merely_ended(schedule: Schedule, error: Broken) -> bool:
    simulator = schedule.simulator
    ends = [one.error for one in (*simulator.actors, *simulator.threads)]
    cause = error.__cause__
    return any(end is cause for end in ends if end is not None) and not isinstance(cause, (Broken, HbasemkError))


# --- the read-back and conflicts ------------------------------------------------------------------------------


@mutant
def no_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadBack, "validate", lambda *_: None)


@mutant
def bound_too_high(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "low_bound_for", lambda self, _: self.highest_seen + 1)


@mutant
def put_for_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    def decide(self: Outcomes, revision: int, _: object, then: Column, *__: object, **___: object) -> bool:
        self._store.write(schema.JOURNAL, [Put(schema.revision_key(revision), [NewCell(*then, schema.YES)])])
        return True

    patch.setattr(Outcomes, "decide", decide)


@mutant
def aborting_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outcomes, "abort_other", lambda *_: Outcome.ABORTED)


@mutant
def ids_below_seen_revisions(patch: pytest.MonkeyPatch) -> None:
    original = IdClock._candidate
    patch.setattr(IdClock, "_candidate", lambda self, _, branch: original(self, 0, branch))


@mutant
def cache_not_invalidated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeCache, "arrived", lambda *_: None)


def read_back_without(patch: pytest.MonkeyPatch, is_left_out: Callable[[Column], bool]) -> None:
    """Let commits not depend on the columns for which ``is_left_out`` is true."""
    original = change_set._plan

    def plan(node: Any) -> Any:
        row, change = original(node)
        for column in filter(is_left_out, list(row.depends_on)):
            del row.depends_on[column]
        return row, change

    patch.setattr(change_set, "_plan", plan)


@mutant
def deleted_not_read_back(patch: pytest.MonkeyPatch) -> None:
    read_back_without(patch, lambda column: column == schema.DELETED)


@mutant
def last_revision_not_read_back(patch: pytest.MonkeyPatch) -> None:
    read_back_without(patch, lambda column: column == schema.LAST_REVISION)


@mutant
def pending_taken_for_aborted(patch: pytest.MonkeyPatch) -> None:
    original = Outcomes.of_many

    def of_many(self: Outcomes, ids: Any) -> Any:
        found = original(self, ids)
        return {one: Outcome.ABORTED if how is Outcome.PENDING else how for one, how in found.items()}

    patch.setattr(Outcomes, "of_many", of_many)


@mutant
def roll_back_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = Outcomes._sweep
    patch.setattr(Outcomes, "_sweep", lambda self, revision, _, by: original(self, revision, (), by))


@mutant
def poll_bound_too_high(patch: pytest.MonkeyPatch) -> None:
    original = ScanPoller.finish

    def finish(self: ScanPoller, news: Any, pending: Any, floor: int) -> None:
        original(self, news, pending, floor)
        self.low_bound = max(self.low_bound, news.highest)

    patch.setattr(ScanPoller, "finish", finish)


@mutant
def own_commit_joins_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArrivalPoller, "follows", lambda *_: True)


@mutant
def arrivals_joined_by_id(patch: pytest.MonkeyPatch) -> None:
    original = ArrivalPoller.read

    def read(self: ArrivalPoller, *arguments: Any) -> Any:
        news = original(self, *arguments)
        news.committed.sort()
        return news

    patch.setattr(ArrivalPoller, "read", read)


@mutant
def cursor_past_what_was_read(patch: pytest.MonkeyPatch) -> None:
    original = ArrivalPoller.finish

    def finish(self: ArrivalPoller, news: Any, pending: Any, floor: int) -> None:
        news.last += 1
        original(self, news, pending, floor)

    patch.setattr(ArrivalPoller, "finish", finish)


@mutant
def first_write_taken_for_the_arrival(patch: pytest.MonkeyPatch) -> None:
    original = MemoryStore.arrivals

    def arrivals(self: MemoryStore, table: str, after: int, limit: int, columns: Any) -> Arrivals:
        found = original(self, table, after, limit, columns)
        return found._replace(rows=sorted(found.rows, key=lambda row: row.key))

    patch.setattr(MemoryStore, "arrivals", arrivals)


@mutant
def decided_twice(patch: pytest.MonkeyPatch) -> None:
    original = deadline.RepeatCheck.__call__
    patch.setattr(deadline.RepeatCheck, "__call__", lambda self, row: original(self, row._replace(cells=())))


@mutant
def new_instances_read_from_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ArrivalPoller, "number_before", lambda self, _: self.cursor)


@mutant
def one_transaction_without_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadBack, "precondition", lambda *_: ([], lambda _: True))


@mutant
def read_back_before_writing(patch: pytest.MonkeyPatch) -> None:
    look = ReadBack.validate
    patch.setattr(Writing, "_write_cells", lambda *_: None)

    def look_then_write(self: ReadBack, revision: int, snapshot: Any, plan: ChangeSet) -> Any:
        loss = look(self, revision, snapshot, plan)
        self._store.write(schema.NODES, plan.puts(revision), durable=False)
        return loss

    patch.setattr(ReadBack, "validate", look_then_write)


def resolve_only(patch: pytest.MonkeyPatch, is_kept: Callable[[int, int], bool]) -> None:
    """Let commits ignore the revisions in conflict for which ``is_kept(other, own)`` is false."""
    resolve = ReadBack._resolve

    def some(self: ReadBack, revision: int, met: Any) -> Any:
        return resolve(self, revision, {other: seen for other, seen in met.items() if is_kept(other, revision)})

    patch.setattr(ReadBack, "_resolve", some)


@mutant
def higher_pending_ignored(patch: pytest.MonkeyPatch) -> None:
    # Lower revisions win; higher ones find the conflict themselves.
    resolve_only(patch, lambda other, revision: other < revision)


@mutant
def lower_ignored(patch: pytest.MonkeyPatch) -> None:
    resolve_only(patch, lambda other, revision: other > revision)


@mutant
def bound_without_later_arrivals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "low_bound_for", lambda self, _: self.poller.low_bound)


@mutant
def child_not_read_back(patch: pytest.MonkeyPatch) -> None:
    read_back_without(patch, lambda column: column[0] == schema.CHILDREN)


def child_lists_not_read_back(patch: pytest.MonkeyPatch) -> None:
    """For the interleavings: transactions of histories also read each listed child, and the schedules list nothing."""
    patch.setattr(ReadSet, "children", lambda *_: None)


def changes_without_effect_rely_on_nothing(patch: pytest.MonkeyPatch) -> None:
    """For the histories and the interleavings: the schedules repeat no value."""
    patch.setattr(StagedNode, "depends_on_base", property(lambda _: False))
    patch.setattr(change_set, "_columns_without_effect", lambda _: {})


def expectations_not_depended_on(patch: pytest.MonkeyPatch) -> None:
    """For the histories and the interleavings: the schedules expect nothing."""
    patch.setattr(ChangeSet, "depends_on", lambda self: self.reads or ReadSet())


def expected_absence_not_depended_on(patch: pytest.MonkeyPatch) -> None:
    """For the histories and the interleavings: the schedules expect nothing."""
    original = ChangeSet.depends_on

    def depends_on(self: ChangeSet) -> ReadSet:
        present = {path: version for path, version in self.expected.items() if version is not None}
        return original(replace(self, expected=present))

    patch.setattr(ChangeSet, "depends_on", depends_on)


def versions_of_the_head_expected(patch: pytest.MonkeyPatch) -> None:
    """For a branch, and for the error of a commit on an old base: elsewhere the read-back finds the same."""
    original = Staging._expect

    def expect(self: Staging, operation: Expect) -> None:
        mine = self.view
        self.view = self._reader._cells._journal.head
        state = self._reader.node(self.view, operation.path)
        self._nodes[operation.path] = StagedNode(operation.path, state)
        original(self, operation)
        self.view = mine
        del self._nodes[operation.path]

    patch.setattr(Staging, "_expect", expect)


def names_not_kept_apart(patch: pytest.MonkeyPatch) -> None:
    """For the interleavings: no workload of the schedules names a property like a child."""
    patch.setattr(change_set, "_keep_names_apart", lambda node, plan: None)


@mutant
def only_the_newest_version_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hbasemk.kernel.commit.read_back._versions_of", lambda _: 1)
    patch.setattr("hbasemk.kernel.commit.read_back.ALL_VERSIONS", 1)


# --- deciding ------------------------------------------------------------------------------------------------


@mutant
def recovery_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    def recover(self: Outcomes, revision: int) -> Outcome:
        self._store.write(schema.JOURNAL, [Put(schema.revision_key(revision), [NewCell(*schema.ABORT, schema.YES)])])
        self.sweep_again(revision)
        return Outcome.ABORTED

    patch.setattr(Outcomes, "recover", recover)


@mutant
def recovery_disabled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "is_over", lambda *_: False)


@mutant
def roll_back_of_committed_revisions(patch: pytest.MonkeyPatch) -> None:
    def abort(self: Outcomes, revision: int) -> Outcome:
        self.decide(revision, schema.COMMITTED, schema.ABORT)
        return Outcome.ABORTED

    patch.setattr(Outcomes, "abort", abort)


@mutant
def cells_before_the_journal_row(patch: pytest.MonkeyPatch) -> None:
    create = Preparation.create

    def late(self: Preparation, draft: Draft) -> None:
        declared = changes.decode(
            Cell(cell.family, cell.qualifier, draft.revision, cell.value) for cell in draft.encoded
        )
        self._store.write(
            schema.NODES,
            [
                Put(
                    delete.row,
                    [NewCell(cell.family, cell.qualifier, b"\x02\x01", draft.revision) for cell in delete.cells],
                )
                for delete in changes.deletes(declared, draft.revision)
            ],
        )
        create(self, draft)

    patch.setattr(Preparation, "create", late)


@mutant
def lost_reply_to_the_decision_read_as_a_refusal(patch: pytest.MonkeyPatch) -> None:
    original = Attempts._turned_out_committed

    def turned_out(self: Attempts, draft: Draft, touched: Any, *, clean: bool) -> bool:
        if clean:
            return original(self, draft, touched, clean=clean)
        self._outcomes._sweep(draft.revision, draft.touched, schema.SWEPT_IN_DOUBT)
        return False

    patch.setattr(Attempts, "_turned_out_committed", turned_out)
    patch.setattr("hbasemk.kernel.retry.RetryBudget.wait", lambda self: False)


@mutant
def own_creation_read_as_a_foreign_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Preparation, "_is_ours", lambda *_: False)


# --- snapshots and reads -------------------------------------------------------------------------------------


@mutant
def poll_upwards(patch: pytest.MonkeyPatch) -> None:
    def upwards(store: Any, table: str, scan: Any) -> Any:
        return abc.scan_all(store, table, scan._replace(start=scan.stop + b"\0", stop=None, reverse=False))

    patch.setattr("hbasemk.kernel.journal.scan_poller.scan_all", upwards)


@mutant
def arrivals_out_of_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hbasemk.kernel.journal.journal.sorted", lambda found: list(found), raising=False)


@mutant
def everything_below_the_head_is_visible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "sees", lambda _, snapshot, version: version <= snapshot.upper)


@mutant
def invisible_versions_hide_older_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VisibleCells, "_read_deeper", lambda *_: None)


@mutant
def an_earlier_life_shows(patch: pytest.MonkeyPatch) -> None:
    original = node.from_cells

    def from_cells(path: str, cells: Any) -> Any:
        found = list(cells)
        lives = [cell for cell in found if cell.qualifier == schema.DELETED[1]]
        return original(path, [*(cell._replace(timestamp=1) for cell in lives), *(c for c in found if c not in lives)])

    for module in (reader, walk):
        patch.setattr(module, "from_cells", from_cells)


@mutant
def own_states_cached_despite_arrivals_between(patch: pytest.MonkeyPatch) -> None:
    arrived = NodeCache.arrived

    def keep(self: NodeCache, arrival: Any) -> None:
        arrived(self, arrival._replace(built_on=arrival.position))

    patch.setattr(NodeCache, "arrived", keep)


def cache_sees(patch: pytest.MonkeyPatch, altered: Callable[[RowChange], RowChange]) -> None:
    """Let the cache see other changes than those that arrive."""
    arrived = NodeCache.arrived

    def see(self: NodeCache, arrival: Any) -> None:
        arrived(self, arrival._replace(changes=[altered(change) for change in arrival.changes]))

    patch.setattr(NodeCache, "arrived", see)


@mutant
def a_child_list_kept_although_a_child_was_added(patch: pytest.MonkeyPatch) -> None:
    cache_sees(patch, lambda one: one._replace(children_added=()) if one.kind == CHANGED else one)


@mutant
def a_child_list_kept_although_a_child_was_removed(patch: pytest.MonkeyPatch) -> None:
    cache_sees(patch, lambda one: one._replace(children_removed=()) if one.kind == CHANGED else one)


@mutant
def a_child_list_kept_although_its_node_was_replaced(patch: pytest.MonkeyPatch) -> None:
    # The arrival of a new node lists its children as added, too.
    cache_sees(patch, lambda one: one._replace(kind=CHANGED, children_added=(), children_removed=()))


@mutant
def reads_at_an_old_position_cached_as_current(patch: pytest.MonkeyPatch) -> None:
    put_all = NodeCache.put_all

    def put(self: NodeCache, view: Any, found: Any) -> int:
        touched, self._touched = self._touched, {}
        try:
            return put_all(self, view, found)
        finally:
            self._touched = touched

    patch.setattr(NodeCache, "put_all", put)


@mutant
def a_state_of_one_view_cached_for_all_old_views(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hbasemk.kernel.reading.cache._key_in_view", lambda path, view: (view.extent is None, path))


# --- branches ------------------------------------------------------------------------------------------------


@mutant
def merge_without_validation_against_later_commits(patch: pytest.MonkeyPatch) -> None:
    original = Committer.on_base

    def on_base(self: Committer, view: Any, *details: Any, **named: Any) -> int:
        if branches.REBASE in (*details, named.get("advice")):
            view = self._journal.head
        return original(self, view, *details, **named)

    patch.setattr(Committer, "on_base", on_base)


def branch_heads_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """For two processes on one branch, which the schedules do not have."""

    def move(self: BranchHeads, root: int, _: bytes, then: bytes, *__: object, **___: object) -> bool:
        self._store.write(schema.JOURNAL, [Put(schema.revision_key(root), [NewCell(*schema.BRANCH_HEAD, then)])])
        return True

    patch.setattr(BranchHeads, "move", move)


# --- the watermark and the leases ----------------------------------------------------------------------------


@mutant
def watermark_past_possible_late_revisions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "decided_bound", property(lambda self: self.highest_seen + 1))


@mutant
def watermark_past_unswept_revisions(patch: pytest.MonkeyPatch) -> None:
    def scan_all(store: Any, table: str, scan: Any) -> Any:
        rows = abc.scan_all(store, table, scan)
        # The scan for late rows has no start; it still finds them.
        return rows if scan.start is None else (row for row in rows if not unswept(row))

    def unswept(row: Any) -> bool:
        return JournalRow(row).aborted and JournalRow(row).swept is None

    patch.setattr(recovery, "scan_all", scan_all)


@mutant
def late_creation_accepted_as_timely(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IdClock, "is_late", lambda *_: False)


@mutant
def leases_that_overlap(patch: pytest.MonkeyPatch) -> None:
    take = Lease._take

    def greedy(self: Lease, machine: int, found: Any, holder: str) -> bool:
        return self._write(machine, found, take.__globals__["LeaseRecord"](0, 2**38, bytes(16), holder))

    patch.setattr(Lease, "_take", greedy)
    patch.setattr(Lease, "_is_over", lambda *_: True)
