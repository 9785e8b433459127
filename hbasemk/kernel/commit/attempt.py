"""One attempt to commit: steps 3 to 11 with one view, and the roll-back of a revision that lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Final, NamedTuple

from hbasemk.errors import (
    ClockSkewError,
    ClosedError,
    CommitUnknownError,
    InvalidRevisionError,
    RevisionCollectedError,
    SchemaVersionError,
    StoreError,
    StoreNotAppliedError,
)
from hbasemk.format import revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.branch_end import BranchEnd
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.context import CommitContext, Committing
from hbasemk.kernel.commit.deadline import MayExist, Overtaken, TooSlow
from hbasemk.kernel.commit.draft import UNKNOWN_ARRIVAL, Draft
from hbasemk.kernel.commit.one_transaction import OneTransaction
from hbasemk.kernel.commit.preparation import Preparation
from hbasemk.kernel.commit.read_back import Conflict, Marks, ReadBack
from hbasemk.kernel.commit.sole_rows import parts
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.commit.staging import name_conflict
from hbasemk.kernel.commit.statistics import CommitStatistics
from hbasemk.kernel.commit.turns import Turns
from hbasemk.kernel.commit.writing import Writing
from hbasemk.kernel.garbage import collected_rarely
from hbasemk.kernel.reading.cache import MOST_STATES
from hbasemk.store.abc import Cell

TRIES_IN_TIME: Final = 5
"""How often an attempt creates a journal row before the store counts as too slow."""
MARGIN_MS: Final = 20
"""How far above the mark of a sole writer the next id is, the first time. It is twice as far each further time."""
END_EVERY: Final = 0.005
"""Seconds between two looks at whether the attempts of other threads have ended."""
TRIES_OF_SLOTS: Final = 16
"""How often a commit tries if other writers use the same slots; it chooses others for all that are taken each time."""

_own: ContextVar[tuple[object, ...]] = ContextVar("hbasemk_own_attempts", default=())
"""The attempts that the caller is inside of, of any instance; and ended ones, if an interrupt prevented the reset."""


class LostAttempt(NamedTuple):
    """An attempt that lost: the revision that was aborted (0: the commit changes nothing), and the conflict."""

    revision: int
    conflict: Conflict

    @property
    def may_be_undecided(self) -> bool:
        """Whether the winner may be undecided: the read-back found it so, or the winner aborted this revision after it."""
        return self.conflict.pending or (self.revision != 0 and self.revision == self.conflict.other)


class Attempts(Committing):
    """The attempts of one instance to commit. Thread-safe."""

    def __init__(self, context: CommitContext, turns: Turns) -> None:
        super().__init__(context)
        self._turns = turns
        self._preparation = Preparation(context)
        self._read_back = ReadBack(context)
        self._one_transaction = OneTransaction(context, self._read_back)
        self._writing = Writing(context)
        self._running: set[object] = set()
        self._has_ended = False
        self.statistics = CommitStatistics()

    def end(self, seconds: float) -> None:
        """Begin no more attempts, and wait for those of other threads, for at most ``seconds``.

        It does not wait for an attempt of the caller, such as one that a signal handler has interrupted. A revision that was
        left pending when the lease is released would keep other processes waiting.
        """
        self._has_ended = True
        until = self._runtime.monotonic() + seconds
        own = sum(one in self._running for one in _own.get())
        while len(self._running) > own and self._runtime.monotonic() < until and not self._runtime.closed:
            self._runtime.sleep(END_EVERY)

    @collected_rarely
    def run(self, draft: Draft) -> int | LostAttempt:
        """Commit the draft; try again with a new id if its journal row was created too late, or its slots are taken.

        Returns the new revision, or the view's if nothing changes. Raises ClosedError after :meth:`end`.
        """
        this = object()
        token = _own.set((*_own.get(), this))
        try:
            # Before the look at the flag, so that the end waits for every attempt that goes on. To add is atomic.
            self._running.add(this)
            if self._has_ended:
                raise ClosedError("the repository has been closed; nothing was committed")
            return self._run(draft)
        finally:
            # First: no interrupt comes before it.
            self._running.discard(this)
            _own.reset(token)

    def _run(self, draft: Draft) -> int | LostAttempt:
        self._outcomes.resolve_pending(reports_damage=False)
        result: int | LostAttempt = 0
        try:
            for _ in range(TRIES_OF_SLOTS):
                result = self._run_in_time(draft)
                if isinstance(result, int):
                    break
                conflict = result.conflict
                if not self._slots.is_collision(draft, conflict.path, conflict.column, conflict.slots):
                    break
        finally:
            if draft.slots:
                self._slots.release(draft, committed=isinstance(result, int) and result == draft.revision != 0)
        if not isinstance(result, int):
            self.statistics.conflicts += 1
        return result

    def show_waiting(self, draft: Draft) -> None:
        """Show other processes that this one waits after a lost attempt, unless the attempt's journal row shows it."""
        shown = draft.created is not None or not draft.revision
        if shown or not self._store.supports_transactions or not self._turns.must_show():
            return
        with suppress(TooSlow):
            self._outcomes.quietly(lambda: self._preparation.record_loss(draft))

    def _run_in_time(self, draft: Draft) -> int | LostAttempt:
        for tries in range(TRIES_IN_TIME):
            try:
                return self._try(draft)
            except TooSlow as error:
                # The revision has been aborted, or was never created.
                draft.revision = 0
                if isinstance(error, MayExist):
                    continue
                self.statistics.too_slow += 1
                if isinstance(error, Overtaken):
                    # By a margin: meanwhile its writer may have marked the row again, perhaps with a clock that is ahead.
                    self._clock.observe(revisions.later(error.mark, MARGIN_MS << tries))
            except InvalidRevisionError:
                # The journal row belongs to another process.
                raise
            except Exception:
                self._end_failed(draft)
                raise
            except BaseException:
                # Interrupted between two steps: this process must not leave the revision pending.
                if draft.revision and draft.revision not in self._outcomes.deferred:
                    self._outcomes.defer(draft.revision, draft.touched)
                # If it has committed, it joins before the head is used again.
                self._journal.lacks_own_commit = True
                raise
        raise StoreNotAppliedError(
            f"other processes at {self._store.location} issued much higher revision ids, or aborted this commit, while it made "
            f"its own id, {TRIES_IN_TIME} times; commit again"
        )

    def _end_failed(self, draft: Draft) -> None:
        """Abort a revision whose commit has failed, if its writer's log may list it as undecided.

        A failed store is not the only cause: memory may run out between two steps.
        """
        revision = draft.revision
        if draft.decision_arrival:
            # It has committed, and joins before the head is used again.
            self._journal.lacks_own_commit = True
        elif self._announcements.is_open(revision) and revision not in self._outcomes.deferred:
            self._outcomes.defer(revision, draft.touched)
            self._outcomes.resolve_pending_quietly()

    def _try(self, draft: Draft) -> int | LostAttempt:
        plan = self._preparation.prepare(draft)
        if not plan.changes:
            conflict = self._read_back.validate(0, draft.view, plan)
            return draft.view.revision if conflict is None else LostAttempt(0, conflict)
        conflict = None
        if self._one_transaction.fits(draft, plan):
            conflict = self._resolve(draft, plan, self._in_one_transaction)
        if conflict is None and not draft.decision_arrival:
            is_alone = draft.stage is Stage.ALONE
            if draft.created is None and not is_alone:
                self._preparation.create(draft)
            conflict = self._resolve(draft, plan, self._alone if is_alone else self._step_by_step)
        if conflict is None:
            self._append(draft, plan)
            return draft.revision
        if not conflict.other:
            raise name_conflict(conflict.path, schema.name_of(conflict.column))
        return LostAttempt(draft.revision, conflict)

    def _resolve(
        self, draft: Draft, plan: ChangeSet, steps: Callable[[Draft, ChangeSet], Conflict | None]
    ) -> Conflict | None:
        """Carry out steps of a commit, and abort the revision if they fail or return a conflict.

        Returns the conflict, or None if the revision turns out committed or ``steps`` left it undecided.
        """
        try:
            conflict = steps(draft, plan)
        except InvalidRevisionError:
            # The journal row belongs to another process.
            raise
        except (TooSlow, ClockSkewError, RevisionCollectedError, SchemaVersionError):
            if not self._abort_if_it_exists(draft):
                raise
            # It committed: the reply was lost, and the watermark has passed the revision since.
        except (StoreError, ClosedError):
            # The revision may have committed despite the error; then the commit succeeds.
            if not self._turned_out_committed(draft, clean=not draft.touched):
                raise
        except BaseException:
            # Interrupted (Ctrl-C, a bug): this process must not leave the revision pending.
            self._outcomes.defer(draft.revision, draft.touched)
            raise
        else:
            # If it turns out committed, its reply was lost, and a later revision built on it.
            if conflict is None or not self._abort_if_it_exists(draft):
                return conflict
        return None

    def _claim(self, draft: Draft, plan: ChangeSet, ends: BranchEnd) -> Conflict | None:
        """Claim the branch that the commit merges; return a conflict if it is merged, rebased or has moved on.

        Others abort a merge by its journal row, which exists.
        """
        # Adjusts of two merges do not meet in a read-back, so no merge yields to another one over them.
        other = ends.claim(draft.revision, yields=not plan.adjusting)
        return None if other is None else Conflict(plan.rows[0].path, schema.LAST_REVISION, other, pending=False)

    def _in_one_transaction(self, draft: Draft, plan: ChangeSet) -> Conflict | None:
        """Commit in one transaction. Return None also if the attempt must go step by step; then it is not decided."""
        committed = self._one_transaction.commit(draft, plan)
        if committed is None:
            return self._one_transaction.conflict(draft, plan)
        draft.decision_arrival = committed
        return None if committed else _aborted(draft, plan)

    def _step_by_step(self, draft: Draft, plan: ChangeSet) -> Conflict | None:
        """Run steps 6 to 10, after the claim of a merge; return the conflict over which the revision must abort."""
        if draft.ends is not None:
            conflict = self._claim(draft, plan, draft.ends)
            if conflict is not None:
                return conflict
        # What the first part has written is above all marks that matter.
        respects = 0 if self._write_first_part(draft, plan) else draft.revision
        draft.touched = plan.changes
        marks = Marks(respects, looks=draft.stage is not Stage.ORDINARY, is_hot=draft.is_hot)
        probes = self._read_back.prepare(draft.view, plan, marks)
        read = self._writing.write(draft, plan, probes.first)
        conflict = self._read_back.validate(draft.revision, draft.view, plan, probes, read)
        draft.found_others = probes.marks.found_others
        if conflict is not None:
            return conflict
        if draft.leaves_shared_mark:
            self._writing.share_mark(draft, plan)
        draft.decision_arrival = self._writing.decide(draft)
        return None if draft.decision_arrival else _aborted(draft, plan)

    def _write_first_part(self, draft: Draft, plan: ChangeSet) -> bool:
        """Write the existing rows of a large commit, and look for marks there; return whether there is such a part.

        One round trip. Raises Overtaken if a mark with a higher id is in one of the rows.
        """
        part = self._read_back.first_part(plan)
        if part is None:
            return False
        draft.touched = part.changes
        gets, require_none_above = self._read_back.marks_of(draft.view, draft.revision, part)
        require_none_above(self._writing.write(draft, part, gets))
        return True

    def _alone(self, draft: Draft, plan: ChangeSet) -> Conflict | None:
        """Run steps 6 to 10 for a row that still has the mark of the view; if it has not, step by step, or give up."""
        draft.touched = plan.changes
        try:
            is_alone = self._writing.write_alone(draft, plan)
        except MayExist:
            # The next try reads whether the node exists.
            self._sole_rows.lose(plan)
            draft.plan = None
            raise
        draft.plan = plan
        if not is_alone and draft.competes and not draft.reply_lost:
            above = self._writing.above_mark(plan).cells
            # If its own version is there, HBase's client has sent the request twice.
            is_alone = any(cell.timestamp == draft.revision for cell in above)
            rival = None if is_alone else _rival(above, plan)
            conflict = rival and self._read_back.judge(rival)
            if conflict is not None:
                self._sole_rows.refuse(plan)
                if self._writing.give_up(draft, plan):
                    draft.touched = ()
                return conflict
        if not is_alone:
            self._sole_rows.lose(plan)
            draft.stage = Stage.ORDINARY
            self._preparation.create(draft)
            return self._step_by_step(draft, plan)
        # The view is older than the answer, as in a read-back.
        self._journal.require_readable(draft.view)
        draft.decision_arrival = self._writing.decide_alone(draft)
        if draft.decision_arrival:
            return None
        # Another instance has aborted it, because it had no row. The next attempt has one.
        self._sole_rows.refuse(plan)
        return _aborted(draft, plan)

    def _append(self, draft: Draft, plan: ChangeSet) -> None:
        """Run step 11."""
        if not self._store.supports_transactions:
            self._announcements.committed(draft.revision, draft.encoded)
            self._sole_rows.record(draft)
        # If the commit exceeds the cache, the cache only learns which nodes it touched.
        is_small = len(plan.after) <= MOST_STATES
        states = plan.states(draft.revision, has_shared_mark=draft.leaves_shared_mark) if is_small else {}
        made = draft.decision_arrival if draft.created is None else draft.created
        has_joined = self._journal.append_local(
            draft.revision, plan.changes, states, draft.view, made, draft.decision_arrival
        )
        # The commit has succeeded. If the store fails now, the revision joins before the head is used again.
        if not has_joined and not self._outcomes.quietly(self._journal.poll):
            self._journal.lacks_own_commit = True
        self._turns.record_commit(plan.changes)
        self.statistics.committed += 1

    def _abort_if_it_exists(self, draft: Draft) -> bool:
        """Abort the revision if the store may know it, unless it has committed; return whether it has."""
        if draft.created is None and not draft.reply_lost and not draft.touched:
            return False
        # A transaction writes no cells without the row, so none can arrive after the abort.
        return self._turned_out_committed(draft, clean=not draft.reply_lost or not draft.touched)

    def _turned_out_committed(self, draft: Draft, *, clean: bool) -> bool:
        """Abort and clean up, unless the revision has committed; return whether it has."""
        if self._abort_and_clean_up(draft, clean=clean) is not Outcome.COMMITTED:
            return False
        draft.decision_arrival = UNKNOWN_ARRIVAL
        return True

    def _abort_and_clean_up(self, draft: Draft, *, clean: bool) -> Outcome:
        """Abort the revision, delete its cells and return its outcome; defer what the store cannot do now.

        If no decision was sent, the revision can no longer commit, even if the store fails now. If a decision may have
        been applied and the store cannot answer, or if the row has been deleted since, raises CommitUnknownError.
        """
        revision, touched = draft.revision, draft.touched
        outcome = None if draft.decision_in_doubt else Outcome.ABORTED
        try:
            outcome = self._outcomes.abort(revision)
            if outcome is Outcome.ABORTED:
                self._outcomes.clean_up(revision, touched, clean=clean)
        except RevisionCollectedError as error:
            # This process has slept for longer than the retention, and a collector has deleted its row.
            if outcome is None:
                raise CommitUnknownError(
                    f"{error.message}; its outcome is not known", revision=error.revision
                ) from error
            # It has not asked for a decision, so the revision cannot have committed.
            self._outcomes.delete_cells(revision, touched)
        except (StoreError, ClosedError) as error:
            self._outcomes.defer(revision, touched)
            if outcome is None:
                text = revisions.to_text(revision)
                raise CommitUnknownError(
                    f"the store at {self._store.location} failed while revision {text} was being committed ({error}); "
                    "the outcome is unknown. Call Repository.outcome with this id when the store is available again.",
                    revision=text,
                ) from error
        except BaseException:
            self._outcomes.defer(revision, touched)
            raise
        return outcome


def _rival(above: Sequence[Cell], plan: ChangeSet) -> Conflict | None:
    """Return the conflict with the newest trunk revision that has written what a simple plan depends on, if there is one."""
    changed = parts(plan).changed
    rivals = [cell for cell in above if cell[:2] in changed.depends_on and not revisions.is_branch(cell.timestamp)]
    if not rivals:
        return None
    newest = max(rivals, key=lambda cell: cell.timestamp)
    return Conflict(changed.path, newest[:2], newest.timestamp, pending=True, may_lack_row=True)


def _aborted(draft: Draft, plan: ChangeSet) -> Conflict:
    """Return the conflict of a revision that another instance has aborted."""
    return Conflict(plan.rows[0].path, schema.LAST_REVISION, draft.revision, pending=False)
