"""The commit: the eleven steps of section 4 of ``docs/protocol.md``.

A commit writes its cells under its own revision id and reads back what it depends on. Two mutually exclusive
compare-and-sets on its journal row decide it. Of two revisions that conflict at most one commits (I4), and the lower id
wins (I10). An acknowledged commit stays (I7); an aborted one is rolled back exactly (I8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hbasemk.errors import (
    BranchError,
    ClockSkewError,
    ClosedError,
    CommitUnknownError,
    ConflictError,
    InvalidChangeError,
    InvalidRevisionError,
    LeaseLostError,
    NodeExistsError,
    NodeNotFoundError,
    StoreError,
    StoreNotAppliedError,
    StoreUnknownError,
)
from hbasemk.format import changes, journal_row, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.change_source import ChangeSource, Prediction
from hbasemk.kernel.commit.read_back import Conflict, ReadBack
from hbasemk.kernel.commit.staging import name_conflict
from hbasemk.kernel.commit.turns import Turns
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.kernel.journal.rows import journal_rows, write_changes
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.cache import DEFAULT_ENTRIES
from hbasemk.kernel.reading.reader import Reader
from hbasemk.kernel.retry import (
    RetryBudget,
    nothing_committed,
    time_limit,
    wait_before_retry,
    within_retry_timeout,
)
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Decision, Get, NewCell, Put, Row

FIRST_BACK_OFF: Final = 0.002
LONGEST_BACK_OFF: Final = 0.25
TRIES_IN_TIME: Final = 5
REPEAT: Final = "Read again and repeat the change, or use Repository.run, which does so."


@dataclass(slots=True)
class CommitStatistics:
    """Counters of this instance's commits, for reports only."""

    committed: int = 0
    conflicts: int = 0
    too_slow: int = 0


@dataclass(slots=True)
class _Doubt:
    """Whether a reply to a write of a revision was lost, and whether it was the reply to the decision."""

    lost: bool = False
    decided: bool = False

    def write_in_doubt(self) -> None:
        self.lost = True

    def decision_in_doubt(self) -> None:
        self.lost = self.decided = True


@dataclass(slots=True)
class _Draft:
    """The content of an attempt, kept for the next try if a journal row was created too late.

    ``revision`` is the id of the newest try; ``begun`` receives it before the store does. ``touched`` lists the rows that
    the try may have written.
    """

    begun: Callable[[int], None] | None = None
    plan: ChangeSet | None = None
    revision: int = 0
    touched: Sequence[RowChange] = ()


class _TooSlow(Exception):
    """The store created the journal row too late for its id; a retry uses a new id."""


class _Created(NamedTuple):
    """When the creation of a journal row was sent and acknowledged, by the monotonic clock."""

    sent: float
    received: float


class _DeadlineCheck:
    """Decides in a transaction whether a revision may still commit.

    It may if its journal row was created in time and the watermark has not passed it. The store may call this several
    times; the last call counts.
    """

    def __init__(self, clock: IdClock, revision: int, created: _Created) -> None:
        self._clock = clock
        self._revision = revision
        self._created = created
        self._created_ms: int | None = None
        self._watermark = 0
        self.refused = False

    def rows(self) -> list[tuple[str, Get]]:
        """Return the additional rows that the transaction must read."""
        journal = Get(schema.revision_key(self._revision), columns=(schema.NONCE,))
        return [(schema.JOURNAL, journal), (schema.CLUSTER, Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK,)))]

    def __call__(self, rows: Sequence[Row]) -> bool:
        """Return whether the revision may commit, by the rows that :meth:`rows` names."""
        own, settings = rows
        self._created_ms = JournalRow(own).created_ms
        self._watermark = Watermark.revision_of(settings.cells[0].value) if settings.cells else 0
        late = self._created_ms is not None and self._clock.is_late(self._revision, self._created_ms)
        self.refused = late or self._revision <= self._watermark
        return not self.refused

    def require(self) -> None:
        """Raise _TooSlow, or the clock's error, after a refusal. The next id is greater than the watermark."""
        if self.refused:
            self._clock.observe(self._watermark)
            if self._created_ms is not None:
                self._clock.created(self._revision, self._created_ms, *self._created)
            raise _TooSlow


class Committer:
    """The commits of one instance. Thread-safe."""

    def __init__(
        self,
        store: RetryingStore,
        runtime: Runtime,
        clock: IdClock,
        journal: Journal,
        reader: Reader,
        outcomes: Outcomes,
        turns: Turns,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self._journal = journal
        self._reader = reader
        self._outcomes = outcomes
        self._read_back = ReadBack(store, clock, journal, outcomes)
        self._turns = turns
        self.statistics = CommitStatistics()

    # --- whole commits -----------------------------------------------------------------------------------

    def on_head(
        self,
        make: Callable[[View], ChangeSource],
        message: str,
        retry_timeout: float,
        max_poll_age: float,
        begun: Callable[[int], None] | None = None,
    ) -> int:
        """Commit on the head, and retry after each conflict for at most ``retry_timeout`` seconds.

        Each attempt calls ``make`` with the head that the commit is based on; ``make`` returns the changes. An attempt polls
        first unless a poll began within the last ``max_poll_age`` seconds. It calls ``begun`` with the revision id before the
        store receives it. Returns the new revision, or the head's when nothing changes. Raises ConflictError after
        ``retry_timeout`` seconds, the errors of ``make`` and of its changes, and the errors of :meth:`on_base`.
        """
        with time_limit(self._runtime, retry_timeout), nothing_committed():
            return self._on_head(make, message, self._runtime.monotonic() + retry_timeout, max_poll_age, begun)

    def _on_head(
        self,
        make: Callable[[View], ChangeSource],
        message: str,
        deadline: float,
        max_poll_age: float,
        begun: Callable[[int], None] | None,
    ) -> int:
        since = 0
        if self._turns.make_room() or not self._journal.is_recent(max_poll_age):
            self._journal.poll()
        head_is_current = False
        outage = RetryBudget(self._runtime)
        while True:
            snapshot = self._journal.head
            began = self._runtime.monotonic()
            try:
                result = self._attempt(snapshot, make(snapshot), message, begun)
                self._turns.record_attempt(self._runtime.monotonic() - began)
            except (NodeNotFoundError, NodeExistsError, InvalidChangeError):
                # The head may be out of date: poll, and raise only if the newest head gives the same error.
                if head_is_current:
                    raise
                head_is_current = True
                self._journal.poll()
                if self._journal.head == snapshot:
                    raise
                continue
            except (StoreNotAppliedError, StoreUnknownError, LeaseLostError):
                # This revision can no longer commit; the next attempt uses a new one.
                if not outage.wait():
                    raise
                self._journal.poll()
                head_is_current = True
                continue
            if isinstance(result, int):
                return result
            error = self._conflict(*result)
            if self._runtime.monotonic() >= deadline:
                raise error
            since = since or result[0]
            self._turns.wait_for_turn(since)
            self._wait_for(result[1], deadline)
            self._journal.poll()
            head_is_current = True

    @within_retry_timeout
    def on_base(
        self,
        snapshot: View,
        source: ChangeSource,
        message: str,
        advice: str = REPEAT,
        begun: Callable[[int], None] | None = None,
    ) -> int:
        """Commit the changes of a source on ``snapshot``; do not retry after a conflict.

        ``advice`` ends the message of a ConflictError. Calls ``begun`` with each revision id before the store receives it.
        Returns the new revision, or the snapshot's if nothing changes. Raises:

        - ConflictError if a revision that became visible after the snapshot, or is being committed now, touched what the
          change set writes or depends on;
        - CommitUnknownError if the store failed during the decision;
        - ClockSkewError, LeaseLostError, RevisionOverflowError, LimitError and StoreError, after which nothing of the
          commit is visible;
        - BranchError for a branch's snapshot, which cannot be the base of a trunk commit.
        """
        if revisions.is_branch(snapshot.revision):
            text = revisions.to_text(snapshot.revision)
            raise BranchError(
                f"the base of a trunk commit must be a trunk revision, got branch revision {text}; commit on the branch "
                "(Branch.run), or merge it",
                revision=text,
            )
        outage = RetryBudget(self._runtime)
        with nothing_committed():
            while True:
                try:
                    result = self._attempt(snapshot, source, message, begun)
                    break
                except (StoreNotAppliedError, StoreUnknownError, LeaseLostError):
                    if not outage.wait():
                        raise
        if isinstance(result, int):
            return result
        raise self._conflict(*result, advice)

    def _conflict(self, revision: int, conflict: Conflict, advice: str = REPEAT) -> ConflictError:
        column = schema.describe(conflict.column)
        mine, other = revisions.to_text(revision), revisions.to_text(conflict.other)
        winner = other if conflict.other != revision else "an earlier commit that aborted it"
        loser = f"revision {mine}" if revision else "a transaction that only read"
        return ConflictError(
            f"{loser} conflicts with {winner} over {column} of {conflict.path}; the commit was rolled back. {advice}",
            path=conflict.path,
            column=column,
            revision=mine if revision else None,
            other=other,
        )

    def _wait_for(self, conflict: Conflict, deadline: float) -> None:
        """Wait until the winning revision is decided, so that the next attempt does not conflict with it again."""
        wait = FIRST_BACK_OFF
        while conflict.pending and self._runtime.monotonic() < deadline:
            if self._outcomes.of(conflict.other) is not Outcome.PENDING:
                return
            if self._outcomes.recover_if_over(conflict.other):
                return
            wait_before_retry(self._runtime, wait * (0.5 + self._runtime.random.random()))
            wait = min(wait * 2, LONGEST_BACK_OFF)

    # --- one attempt -------------------------------------------------------------------------------------

    def _attempt(
        self, snapshot: View, source: ChangeSource, message: str, begun: Callable[[int], None] | None
    ) -> int | tuple[int, Conflict]:
        self._outcomes.resolve_pending()
        draft = _Draft(begun)
        for _ in range(TRIES_IN_TIME):
            try:
                return self._attempt_in_time(snapshot, source, message, draft)
            except _TooSlow:
                # The revision has been aborted.
                draft.revision = 0
                self.statistics.too_slow += 1
            except Exception:
                raise
            except BaseException:
                # Interrupted between two steps: this process must not leave the revision pending.
                if draft.revision and draft.revision not in self._outcomes.deferred:
                    self._outcomes.defer(draft.revision, draft.touched)
                raise
        raise StoreNotAppliedError(
            f"the store at {self._store.location} took too long to create a journal row, {TRIES_IN_TIME} times; "
            "reduce its load, or use a repository with a larger allowed lag (see its status)"
        )

    def _attempt_in_time(
        self, snapshot: View, source: ChangeSource, message: str, draft: _Draft
    ) -> int | tuple[int, Conflict]:
        revision, plan, created = self._stage_and_create(snapshot, source, message, draft)
        if not plan.changes:
            conflict = self._read_back.validate(0, snapshot, plan)
            if conflict is None:
                return snapshot.revision
            self.statistics.conflicts += 1
            return 0, conflict
        draft.touched = plan.changes
        doubt = _Doubt()
        wrote = False
        try:
            committed = self._commit_in_transaction(revision, snapshot, plan, doubt, created)
            conflict = None
            if committed is None and self._fits_one_transaction(plan):
                # There is a conflict. A revision that has already lost writes nothing, so it need not roll back or hold the file.
                conflict = self._read_back.validate(revision, snapshot, plan)
            if committed is None and conflict is None:
                wrote = True
                self._write_in_time(revision, plan, doubt, created)
                conflict = self._read_back.validate(revision, snapshot, plan)
                committed = conflict is None and self._decide(revision, doubt, created)
            if conflict is None and not committed:
                conflict = Conflict(plan.rows[0].path, schema.LAST_REVISION, revision, pending=False)
        except (_TooSlow, ClockSkewError):
            if self._abort_and_clean_up(revision, plan.changes, doubt, clean=not doubt.lost) is not Outcome.COMMITTED:
                raise
            # It committed: the reply was lost, and the watermark has passed the revision since.
            conflict = None
        except (StoreError, ClosedError):
            # The revision may have committed despite the error; then the commit succeeds.
            if not self._turned_out_committed(revision, plan.changes, doubt):
                raise
            conflict = None
        except BaseException:
            # Interrupted (Ctrl-C, a bug): this process must not leave the revision pending.
            self._outcomes.defer(revision, plan.changes)
            raise
        touched = plan.changes if wrote or doubt.lost else ()
        if (
            conflict is not None
            and self._abort_and_clean_up(revision, touched, doubt, clean=not doubt.lost) is not Outcome.COMMITTED
        ):
            if not conflict.other:
                raise name_conflict(conflict.path, schema.name_of(conflict.column))
            self.statistics.conflicts += 1
            return revision, conflict
        # A conflict with a committed outcome: the transaction committed, its reply was lost, and a later revision built on it.
        # If the commit exceeds the cache, the cache only learns which nodes it touched.
        states = plan.states(revision) if len(plan.after) <= DEFAULT_ENTRIES else {}
        self._journal.append_local(revision, plan.changes, states, snapshot)
        self._turns.record_commit(plan.changes)
        self.statistics.committed += 1
        return revision

    def _turned_out_committed(self, revision: int, touched: Sequence[RowChange], doubt: _Doubt) -> bool:
        """Abort after a store error, unless the revision has committed; return whether it has."""
        return self._abort_and_clean_up(revision, touched, doubt, clean=False) is Outcome.COMMITTED

    def _abort_and_clean_up(
        self, revision: int, touched: Sequence[RowChange], doubt: _Doubt, *, clean: bool
    ) -> Outcome:
        """Abort the revision, delete its cells and return its outcome; defer what the store cannot do now.

        If no decision was sent, the revision can no longer commit, even if the store fails now. If a decision may have
        been applied and the store cannot answer, raises CommitUnknownError.
        """
        outcome = None if doubt.decided else Outcome.ABORTED
        try:
            outcome = self._outcomes.abort(revision)
            if outcome is Outcome.ABORTED:
                self._outcomes.clean_up(revision, touched, clean=clean)
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

    # --- steps 3 to 5: the id, its journal row, the plan --------------------------------------------------

    def _stage_and_create(
        self, snapshot: View, source: ChangeSource, message: str, draft: _Draft
    ) -> tuple[int, ChangeSet, _Created]:
        prediction = self._predict(snapshot, source) if draft.plan is None else None
        if prediction is not None:
            return self._stage_while_creating(prediction, snapshot, source, message, draft)
        plan = draft.plan or self._stage(snapshot, source, draft)
        if not plan.changes:
            return 0, plan, _Created(0, 0)
        # Encoded before the id is made, because an id grows old.
        encoded = changes.encode(plan.changes)
        revision = self._new_id(snapshot, draft)
        return revision, plan, self._create(revision, snapshot, encoded, message)

    def _stage_while_creating(
        self, prediction: Prediction, snapshot: View, source: ChangeSource, message: str, draft: _Draft
    ) -> tuple[int, ChangeSet, _Created]:
        encoded = changes.encode(prediction.changes)
        revision = self._new_id(snapshot, draft)
        try:
            created, plan = self._runtime.run_parallel(
                lambda: self._create(revision, snapshot, encoded, message),
                lambda: self._stage(snapshot, source, draft),
            )
        except _TooSlow:
            raise
        except BaseException:
            # Step 5: an invalid change, a store error or an interruption; the journal row may exist.
            self._outcomes.defer(revision, ())
            self._outcomes.resolve_pending_quietly()
            raise
        if not plan.changes:
            self._abort_empty(revision)
        return revision, plan, created

    def _predict(self, snapshot: View, source: ChangeSource) -> Prediction | None:
        """Predict what the commit touches, if reading in parallel with creating the journal row saves a round trip."""
        if not self._store.supports_parallel_calls:
            return None
        prediction = source.predict(self._store.batch_rows)
        if prediction is None or all(self._reader.cached(snapshot, path) for path in prediction.reads):
            return None
        return prediction

    def _stage(self, snapshot: View, source: ChangeSource, draft: _Draft) -> ChangeSet:
        plan = source.stage(self._reader, snapshot)
        self._check(plan)
        draft.plan = plan
        return plan

    def _check(self, plan: ChangeSet) -> None:
        """Raise LimitError for cells that exceed the store's limits, before anything is written."""
        if not plan.fits(*self._store.limits):
            self._store.check_puts(plan.puts(0))

    def _new_id(self, snapshot: View, draft: _Draft) -> int:
        revision = self._clock.next(max(snapshot.upper, self._journal.highest_seen))
        if draft.begun is not None:
            draft.begun(revision)
        draft.revision, draft.touched = revision, ()
        return revision

    def _create(self, revision: int, snapshot: View, encoded: Sequence[NewCell], message: str) -> _Created:
        nonce = self._runtime.random.getrandbits(128).to_bytes(16, "big")
        begun = journal_row.begin(nonce, snapshot.revision, message)
        inline = changes.size_of(encoded) <= changes.INLINE
        put = Put(schema.revision_key(revision), [*begun, *encoded] if inline else begun)
        try:
            # Not retried here: the row must be created in time, and no cell is written before it. HBase's client may send
            # the call twice; the second reply is then "exists", and the nonce shows that the row is this commit's.
            sent = self._runtime.monotonic()
            if not self._store.once.check_and_write(
                schema.JOURNAL, schema.COMMITTED, None, put, durable=False
            ) and not self._is_ours(revision, nonce):
                raise InvalidRevisionError(
                    f"revision {revisions.to_text(revision)} already exists: two processes issued the same id, although leases "
                    "prevent that; check that the cluster table was not changed by hand"
                )
            created = _Created(sent, self._runtime.monotonic())
            in_time = self._clock.seems_in_time(revision)
            if in_time and not inline:
                write_changes(self._store, revision, encoded)
        except InvalidRevisionError:
            raise
        except BaseException:
            self._outcomes.defer(revision, ())
            raise
        if not in_time:
            try:
                self._learn_clock(revision, created)
            finally:
                self._abort_empty(revision)
            raise _TooSlow
        return created

    def _learn_clock(self, revision: int, created: _Created) -> None:
        """Pass the timestamp of a late row to the clock, which raises an error if a new id would be late too."""
        created_ms = self._outcomes.created_ms(revision)
        if created_ms is not None:
            self._clock.created(revision, created_ms, *created)

    def _abort_empty(self, revision: int) -> None:
        """Abort a revision that has not written cells yet; defer the abort if the store fails."""
        try:
            self._outcomes.abort_own(revision, ())
        except BaseException:
            self._outcomes.defer(revision, ())
            raise

    def _is_ours(self, revision: int, nonce: bytes) -> bool:
        (row,) = journal_rows(self._store, [revision], columns=(schema.NONCE,))
        return row.nonce == nonce

    # --- step 6; or steps 6, 7 and 10 in one transaction ---------------------------------------------------

    def _write(self, revision: int, plan: ChangeSet, doubt: _Doubt) -> None:
        self._store.write(
            schema.NODES,
            plan.each_put(revision),
            durable=False,
            in_doubt=doubt.write_in_doubt,
            between=self._clock.keep_lease,
        )

    def _write_in_time(self, revision: int, plan: ChangeSet, doubt: _Doubt, created: _Created) -> None:
        """Run step 6; raise _TooSlow if the journal row was created too late by its server's timestamp.

        If the store supports parallel calls, the timestamp is read while the cells are written. A store with transactions
        checks it in :meth:`_decide`.
        """
        if self._store.supports_transactions:
            self._write(revision, plan, doubt)
            return
        if self._store.supports_parallel_calls:
            created_ms, _ = self._runtime.run_parallel(
                lambda: self._outcomes.created_ms(revision), lambda: self._write(revision, plan, doubt)
            )
        else:
            created_ms = self._outcomes.created_ms(revision)
            self._write(revision, plan, doubt)
        if created_ms is not None and not self._clock.created(revision, created_ms, *created):
            raise _TooSlow

    def _decide(self, revision: int, doubt: _Doubt, created: _Created) -> bool:
        """Run step 10; raise _TooSlow if the revision may no longer commit."""
        if not self._store.supports_transactions:
            return self._outcomes.decide(revision, schema.ABORT, schema.COMMITTED, doubt.decision_in_doubt)
        return bool(self._write_if(revision, (), (), lambda _: True, doubt, created))

    def _write_if(
        self,
        revision: int,
        puts: Sequence[Put],
        gets: Sequence[Get],
        judge: Callable[[Sequence[Row]], bool],
        doubt: _Doubt,
        created: _Created,
    ) -> bool | None:
        """Write and decide in one transaction, if the revision is in time and ``judge`` accepts the rows of ``gets``."""
        in_time = _DeadlineCheck(self._clock, revision, created)
        extra_gets = in_time.rows()

        def accept(rows: list[Row]) -> bool:
            return in_time(rows[len(gets) :]) and judge(rows[: len(gets)])

        put = Put(schema.revision_key(revision), [NewCell(*schema.COMMITTED, schema.YES)])
        decision = Decision(schema.JOURNAL, schema.ABORT, schema.NO, put)
        decided = self._store.write_if(schema.NODES, puts, gets, accept, decision, extra_gets, doubt.decision_in_doubt)
        in_time.require()
        return decided

    def _fits_one_transaction(self, plan: ChangeSet) -> bool:
        store = self._store
        fits = len(plan.rows) <= store.batch_rows and plan.size <= store.batch_bytes
        return store.supports_transactions and fits

    def _commit_in_transaction(
        self, revision: int, snapshot: View, plan: ChangeSet, doubt: _Doubt, created: _Created
    ) -> bool | None:
        """Run steps 6, 7 and 10 in one transaction, if the store supports it and there is no conflict.

        Returns True if the revision committed, False if another instance has aborted it, None if nothing was done.
        Raises _TooSlow if the revision may no longer commit.
        """
        if not self._fits_one_transaction(plan):
            return None
        gets, no_conflict = self._read_back.precondition(revision, snapshot, plan)
        return self._write_if(revision, plan.puts(revision), gets, no_conflict, doubt, created)
