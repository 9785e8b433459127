"""The commit: the eleven steps of section 4 of ``docs/protocol.md``.

A revision writes its cells under its own id, reads back what it relied on, and is decided by two compare-and-sets
that exclude each other on its journal row. Of two that conflict at most one gets through (I4), the lowest id first
(I10); what was acknowledged stays (I7), what was aborted is rolled back exactly (I8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, Union

from hbasemk.errors import (
    BranchError,
    ClockSkewError,
    ClosedError,
    CommitUnknownError,
    ConflictError,
    InvalidChangeError,
    InvalidRevisionError,
    LeaseLostError,
    LimitError,
    NodeExistsError,
    NodeNotFoundError,
    StoreError,
    StoreNotAppliedError,
    StoreUnknownError,
)
from hbasemk.format import changes, journal_row, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.batches import write_changes, write_nodes
from hbasemk.kernel.commit import change_set
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.commit.read_back import Conflict, ReadBack
from hbasemk.kernel.commit.staging import Staging, name_conflict, paths_needed
from hbasemk.kernel.commit.turns import Turns
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.outcomes import Outcome, Outcomes
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.cache import DEFAULT_ENTRIES
from hbasemk.kernel.reading.reader import Reader
from hbasemk.kernel.retry import again, nothing_committed, patient, pause, retries, time_limit
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Decision, Get, NewCell, Put, Row, Store

FIRST_BACK_OFF: Final = 0.002
LONGEST_BACK_OFF: Final = 0.25
TRIES_IN_TIME: Final = 5
REPEAT: Final = "Read again and repeat the change, or use Repository.run, which does so."
LONGEST_MESSAGE: Final = 1_000_000
"""In characters; every poll that meets a revision for the first time may read its message."""

Source: TypeAlias = Union[Sequence[Operation], Callable[[], ChangeSet]]  # noqa: UP007 - evaluated at run time on 3.10
"""What a commit is made of: operations still to be staged, or a function that yields the staged change set."""


@dataclass(slots=True)
class CommitStatistics:
    """What this instance's commits met, for reports; never used to decide anything."""

    committed: int = 0
    conflicts: int = 0
    too_slow: int = 0


@dataclass(slots=True)
class _Doubt:
    """Whether a reply to one of a revision's writes was lost, and whether that was the one that decides."""

    lost: bool = False
    decided: bool = False

    def tell(self) -> None:
        self.lost = True

    def tell_decided(self) -> None:
        self.lost = self.decided = True


@dataclass(slots=True)
class _Draft:
    """What an attempt is about to commit, kept for the next try where a journal row came too late.

    ``told`` are the encoded changes. They are made before the id, since an id grows old. ``revision`` is the id of the
    newest try, and ``begun`` gets it before the store does; ``touched`` are the cells that the try may have written.
    """

    begun: Callable[[int], None] | None = None
    plan: ChangeSet | None = None
    told: Sequence[NewCell] = ()
    revision: int = 0
    touched: Sequence[RowChange] = ()


class _TooSlow(Exception):
    """The store created the journal row too late for its id; a new id may do better."""


class _Created(NamedTuple):
    """Between which moments, by the monotonic clock, the journal row of a revision was created."""

    sent: float
    received: float


class _InTime:
    """Judges in one transaction whether a revision may still commit: its row came in time, and no watermark has passed it.

    The store may ask several times; the last answer counts.
    """

    def __init__(self, clock: IdClock, made: int, created: _Created) -> None:
        self._clock = clock
        self._made = made
        self._created = created
        self._created_ms: int | None = None
        self._watermark = 0
        self.refused = False

    def rows(self) -> list[tuple[str, Get]]:
        """What to read beside what else is judged."""
        journal = Get(schema.revision_key(self._made), columns=(schema.NONCE,))
        return [(schema.JOURNAL, journal), (schema.CLUSTER, Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK,)))]

    def __call__(self, rows: Sequence[Row]) -> bool:
        """Judge by the rows that :meth:`rows` names."""
        own, settings = rows
        self._created_ms = own.cells[0].timestamp if own.cells else None
        self._watermark = Watermark.revision_of(settings.cells[0].value) if settings.cells else 0
        late = self._created_ms is not None and self._clock.is_late(self._made, self._created_ms)
        self.refused = late or self._made <= self._watermark
        return not self.refused

    def require(self) -> None:
        """Raise _TooSlow, or the clock's error, after a refusal; the next id is greater than the watermark."""
        if self.refused:
            self._clock.observe(self._watermark)
            if self._created_ms is not None:
                self._clock.created(self._made, self._created_ms, *self._created)
            raise _TooSlow


class Committer:
    """Makes revisions for one instance. Safe to be used by many threads at once."""

    def __init__(
        self,
        store: Store,
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
        self._read_back = ReadBack(store, runtime, clock, journal, outcomes)
        self._turns = turns
        self.statistics = CommitStatistics()

    # --- whole commits -----------------------------------------------------------------------------------

    def on_head(
        self,
        make: Callable[[View], Source],
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
        make: Callable[[View], Source],
        message: str,
        deadline: float,
        max_poll_age: float,
        begun: Callable[[int], None] | None,
    ) -> int:
        since = 0
        if self._turns.make_room() or not self._journal.is_recent(max_poll_age):
            again(self._runtime, self._journal.poll)
        current = False
        away = retries(self._runtime)
        while True:
            snapshot = self._journal.head
            began = self._runtime.monotonic()
            try:
                lost = self._attempt(snapshot, make(snapshot), message, begun)
                self._turns.record_attempt(self._runtime.monotonic() - began)
            except (NodeNotFoundError, NodeExistsError, InvalidChangeError):
                # Perhaps only because this head is a poll old: then the newest one decides.
                if current:
                    raise
                current = True
                again(self._runtime, self._journal.poll)
                if self._journal.head == snapshot:
                    raise
                continue
            except (StoreNotAppliedError, StoreUnknownError, LeaseLostError):
                # Nothing of it can be committed any more: the next attempt is a new revision.
                if not away.go_on():
                    raise
                again(self._runtime, self._journal.poll)
                current = True
                continue
            if isinstance(lost, int):
                return lost
            error = self._conflict(*lost)
            if self._runtime.monotonic() >= deadline:
                raise error
            since = since or lost[0]
            self._turns.wait_for_turn(since)
            self._wait_for(lost[1], deadline)
            again(self._runtime, self._journal.poll)
            current = True

    @patient
    def on_base(
        self,
        snapshot: View,
        source: Source,
        message: str,
        advice: str = REPEAT,
        begun: Callable[[int], None] | None = None,
    ) -> int:
        """Commit operations, or what was built of them, on ``snapshot``, once. ``advice``: what to do after a conflict.

        Calls ``begun`` with each revision id before the store gets it.
        Returns the new revision, or the snapshot's when nothing changes. Raises ConflictError when anything that
        became visible after the snapshot, or is being committed now, touched what the change set writes or relies
        on; CommitUnknownError when the store went away while it decided; ClockSkewError, LeaseLostError,
        RevisionOverflowError, LimitError and StoreError, after which nothing of the commit remains visible; BranchError
        for a branch's snapshot, on which trunk cannot build.
        """
        if revisions.is_branch(snapshot.revision):
            text = revisions.to_text(snapshot.revision)
            raise BranchError(
                f"revision {text} is a branch's, and trunk cannot build on it; commit on the branch (Branch.run), or merge it",
                revision=text,
            )
        away = retries(self._runtime)
        with nothing_committed():
            while True:
                try:
                    lost = self._attempt(snapshot, source, message, begun)
                    break
                except (StoreNotAppliedError, StoreUnknownError, LeaseLostError):
                    if not away.go_on():
                        raise
        if isinstance(lost, int):
            return lost
        raise self._conflict(*lost, advice)

    def _conflict(self, made: int, loss: Conflict, advice: str = REPEAT) -> ConflictError:
        what = schema.describe(loss.column)
        mine, other = revisions.to_text(made), revisions.to_text(loss.other)
        winner = other if loss.other != made else "another that came before it"
        who = f"revision {mine}" if made else "a transaction that only read"
        return ConflictError(
            f"{who} lost to {winner} over {what} of {loss.path}; nothing of it remains. {advice}",
            path=loss.path,
            column=what,
            revision=mine if made else None,
            other=other,
        )

    def _wait_for(self, loss: Conflict, deadline: float) -> None:
        """Wait until the revision that won is decided, so that the next attempt does not meet it again."""
        wait = FIRST_BACK_OFF
        while loss.pending and self._runtime.monotonic() < deadline:
            if self._outcomes.of(loss.other) is not Outcome.PENDING:
                return
            if again(self._runtime, lambda: self._outcomes.recover_if_over(loss.other)):
                return
            pause(self._runtime, wait * (0.5 + self._runtime.random.random()))
            wait = min(wait * 2, LONGEST_BACK_OFF)

    # --- one attempt -------------------------------------------------------------------------------------

    def _attempt(
        self, snapshot: View, source: Source, message: str, begun: Callable[[int], None] | None
    ) -> int | tuple[int, Conflict]:
        if len(message) > LONGEST_MESSAGE:
            raise LimitError(
                f"a message has {len(message)} characters; {LONGEST_MESSAGE} are possible. Nothing was committed."
            )
        self._outcomes.resolve_pending()
        draft = _Draft(begun)
        for _ in range(TRIES_IN_TIME):
            try:
                return self._attempt_in_time(snapshot, source, message, draft)
            except _TooSlow:
                # It has been aborted.
                draft.revision = 0
                self.statistics.too_slow += 1
            except Exception:
                raise
            except BaseException:
                # Interrupted between the steps: the revision must not stay pending while this process lives.
                if draft.revision and draft.revision not in self._outcomes.deferred:
                    self._outcomes.defer(draft.revision, draft.touched)
                raise
        raise StoreNotAppliedError(
            f"the store at {self._store.location} took too long to create a journal row, {TRIES_IN_TIME} times. "
            "It is overloaded, or the repository's allowed lag (see its status) is too short for it."
        )

    def _attempt_in_time(
        self, snapshot: View, source: Source, message: str, draft: _Draft
    ) -> int | tuple[int, Conflict]:
        if callable(source):
            made, plan, created = self._build_then_create(snapshot, source, message, draft)
        else:
            made, plan, created = self._stage_and_create(snapshot, source, message, draft)
        if not plan.changes:
            loss = self._read_back.validate(0, snapshot, plan)
            if loss is None:
                return snapshot.revision
            self.statistics.conflicts += 1
            return 0, loss
        draft.touched = plan.changes
        doubt = _Doubt()
        wrote = False
        try:
            committed = self._at_once(made, snapshot, plan, doubt, created)
            loss = None
            if committed is None and self._fits_at_once(plan):
                # Something was met. Whoever has lost already need not write, roll back, and hold the file meanwhile.
                loss = self._read_back.validate(made, snapshot, plan)
            if committed is None and loss is None:
                wrote = True
                self._write_in_time(made, plan, doubt, created)
                loss = self._read_back.validate(made, snapshot, plan)
                committed = loss is None and self._decide(made, doubt, created)
            if loss is None and not committed:
                loss = Conflict(plan.rows[0].path, schema.LAST_REVISION, made, pending=False)
        except (_TooSlow, ClockSkewError):
            if self._end(made, plan.changes, doubt, clean=not doubt.lost) is not Outcome.COMMITTED:
                raise
            # The reply that said so was lost, and the watermark has passed it since.
            loss = None
        except (StoreError, ClosedError):
            # It may turn out to be committed: then this is a success like any other.
            if not self._turned_out_committed(made, plan.changes, doubt):
                raise
            loss = None
        except BaseException:
            # Interrupted (Ctrl-C, a bug): the revision must not stay pending while this process lives.
            self._outcomes.defer(made, plan.changes)
            raise
        touched = plan.changes if wrote or doubt.lost else ()
        if loss is not None and self._end(made, touched, doubt, clean=not doubt.lost) is not Outcome.COMMITTED:
            if not loss.other:
                raise name_conflict(loss.path, schema.name_of(loss.column))
            self.statistics.conflicts += 1
            return made, loss
        # Where it lost and is committed: it was so at one moment, the reply was lost, and what was met had been built on it.
        # Of a commit that no cache could hold, the cache only learns what it touched.
        states = plan.states(made) if len(plan.after) <= DEFAULT_ENTRIES else {}
        self._journal.append_local(made, plan.changes, states, snapshot)
        self._turns.record_commit(plan.changes)
        self.statistics.committed += 1
        return made

    def _turned_out_committed(self, made: int, touched: Sequence[RowChange], doubt: _Doubt) -> bool:
        """The store failed in the middle: abort, unless the decision has been made."""
        return self._end(made, touched, doubt, clean=False) is Outcome.COMMITTED

    def _end(self, made: int, touched: Sequence[RowChange], doubt: _Doubt, *, clean: bool) -> Outcome:
        """Abort, delete the cells and return how the revision turned out; what cannot be done now is left for later.

        Without a decision that may have been applied, nobody can commit it: it is aborted, whatever the store does now.
        Raises CommitUnknownError where one may have been, and the store cannot be asked.
        """
        outcome = None if doubt.decided else Outcome.ABORTED
        try:
            outcome = self._outcomes.abort(made)
            if outcome is Outcome.ABORTED:
                self._outcomes.clean_up(made, touched, clean=clean)
        except (StoreError, ClosedError) as error:
            self._outcomes.defer(made, touched)
            if outcome is None:
                text = revisions.to_text(made)
                raise CommitUnknownError(
                    f"the store at {self._store.location} failed while revision {text} was being committed ({error}); "
                    "whether it is committed is not known yet. Ask Repository.outcome with this id when the store is back.",
                    revision=text,
                ) from error
        except BaseException:
            self._outcomes.defer(made, touched)
            raise
        return outcome

    # --- steps 3 to 5: the id, its journal row, the plan --------------------------------------------------

    def _build_then_create(
        self, snapshot: View, build: Callable[[], ChangeSet], message: str, draft: _Draft
    ) -> tuple[int, ChangeSet, _Created]:
        if draft.plan is None:
            plan = build()
            self._check(plan)
            draft.told = changes.encode(plan.changes) if plan.changes else ()
            draft.plan = plan
        plan = draft.plan
        if not plan.changes:
            return 0, plan, _Created(0, 0)
        made = self._new_id(snapshot, draft)
        return made, plan, self._create(made, snapshot, draft.told, message)

    def _stage_and_create(
        self, snapshot: View, operations: Sequence[Operation], message: str, draft: _Draft
    ) -> tuple[int, ChangeSet, _Created]:
        def build() -> ChangeSet:
            staging = Staging(self._reader, snapshot)
            staging.apply(operations)
            plan = change_set.build(staging)
            self._check(plan)
            return plan

        touched = self._foreseen(snapshot, operations) if draft.plan is None else None
        if touched is None:
            return self._build_then_create(snapshot, build, message, draft)
        told = changes.encode(touched)
        made = self._new_id(snapshot, draft)
        try:
            created, plan = self._runtime.run_parallel(lambda: self._create(made, snapshot, told, message), build)
        except _TooSlow:
            raise
        except BaseException:
            # Step 5: invalid by itself, out of reach or interrupted; the row may be there.
            self._outcomes.defer(made, ())
            self._outcomes.resolve_pending_quietly()
            raise
        if not plan.changes:
            self._give_up(made)
        return made, plan, created

    def _foreseen(self, snapshot: View, operations: Sequence[Operation]) -> list[RowChange] | None:
        """What the operations touch, if reading and creating the journal row at the same time saves a round."""
        if not self._store.supports_parallel_calls or len(operations) > self._store.batch_rows:
            return None
        wanted = paths_needed(operations)
        if all(self._reader.cached(snapshot, path) for path in wanted):
            return None
        return change_set.predict_changes(operations)

    def _check(self, plan: ChangeSet) -> None:
        """Refuse what the store cannot keep before anything is written."""
        if not plan.fits(*self._store.limits):
            self._store.check_puts(plan.puts(0))

    def _new_id(self, snapshot: View, draft: _Draft) -> int:
        # As a whole, so that other threads can get an id while this one waits for the store.
        made = again(self._runtime, lambda: self._clock.next(max(snapshot.upper, self._journal.highest_seen)))
        if draft.begun is not None:
            draft.begun(made)
        draft.revision, draft.touched = made, ()
        return made

    def _create(self, made: int, snapshot: View, told: Sequence[NewCell], message: str) -> _Created:
        nonce = self._runtime.random.getrandbits(128).to_bytes(16, "big")
        begun = journal_row.begin(nonce, snapshot.revision, message)
        inline = changes.size_of(told) <= changes.INLINE
        put = Put(schema.revision_key(made), [*begun, *told] if inline else begun)
        try:
            # Never sent again by us: it must come in time, and no cell is written before. HBase's own client
            # may send it twice, and then "exists" is the answer to the second; the nonce tells whose the row is.
            sent = self._runtime.monotonic()
            if not self._store.check_and_write(
                schema.JOURNAL, schema.COMMITTED, None, put, durable=False
            ) and not self._is_ours(made, nonce):
                raise InvalidRevisionError(
                    f"revision {revisions.to_text(made)} exists already: two processes issued the same id, which leases "
                    "forbid. Check that the cluster table was not changed by hand."
                )
            created = _Created(sent, self._runtime.monotonic())
            in_time = self._clock.seems_in_time(made)
            if in_time and not inline:
                write_changes(self._store, self._runtime, made, told)
        except InvalidRevisionError:
            raise
        except BaseException:
            self._outcomes.defer(made, ())
            raise
        if not in_time:
            try:
                self._learn_clock(made, created)
            finally:
                self._give_up(made)
            raise _TooSlow
        return created

    def _learn_clock(self, made: int, created: _Created) -> None:
        """Let the clock hear the timestamp of a row that came too late; raises its error where no new id does better."""
        created_ms = self._outcomes.created_ms(made)
        if created_ms is not None:
            self._clock.created(made, created_ms, *created)

    def _give_up(self, made: int) -> None:
        """Abort a revision that has written nothing yet; remember it if the store is away just now."""
        try:
            self._outcomes.abort_own(made, ())
        except BaseException:
            self._outcomes.defer(made, ())
            raise

    def _is_ours(self, made: int, nonce: bytes) -> bool:
        get = Get(schema.revision_key(made), columns=(schema.NONCE,))
        row = again(self._runtime, lambda: self._store.read(schema.JOURNAL, [get]))[0]
        return any(cell.value == nonce for cell in row.cells)

    # --- step 6: write; or 6, 7 and 10 at one moment ------------------------------------------------------

    def _write(self, made: int, plan: ChangeSet, doubt: _Doubt) -> None:
        write_nodes(self._store, self._runtime, plan.each_put(made), doubt.tell, self._clock.keep_lease)

    def _write_in_time(self, made: int, plan: ChangeSet, doubt: _Doubt, created: _Created) -> None:
        """Step 6; raises _TooSlow if the journal row came too late, by the timestamp that its own server gave it.

        The timestamp is read at the same time as the cells are written, where the store gains by it. A store with
        transactions judges it in :meth:`_decide`.
        """
        if self._store.supports_transactions:
            self._write(made, plan, doubt)
            return
        if self._store.supports_parallel_calls:
            created_ms, _ = self._runtime.run_parallel(
                lambda: self._outcomes.created_ms(made), lambda: self._write(made, plan, doubt)
            )
        else:
            created_ms = self._outcomes.created_ms(made)
            self._write(made, plan, doubt)
        if created_ms is not None and not self._clock.created(made, created_ms, *created):
            raise _TooSlow

    def _decide(self, made: int, doubt: _Doubt, created: _Created) -> bool:
        """Step 10; raises _TooSlow if the revision may not commit any more."""
        if not self._store.supports_transactions:
            return self._outcomes.decide(made, schema.ABORT, schema.COMMITTED, doubt.tell_decided)
        return bool(self._write_if(made, (), (), lambda _: True, doubt, created))

    def _write_if(
        self,
        made: int,
        puts: Sequence[Put],
        gets: Sequence[Get],
        judge: Callable[[Sequence[Row]], bool],
        doubt: _Doubt,
        created: _Created,
    ) -> bool | None:
        """Write and decide at one moment if the revision is in time and ``judge`` finds the rows of ``gets`` good."""
        in_time = _InTime(self._clock, made, created)
        also = in_time.rows()

        def good(rows: list[Row]) -> bool:
            return in_time(rows[len(gets) :]) and judge(rows[: len(gets)])

        put = Put(schema.revision_key(made), [NewCell(*schema.COMMITTED, schema.YES)])
        decision = Decision(schema.JOURNAL, schema.ABORT, schema.NO, put)
        done = again(
            self._runtime,
            lambda: self._store.write_if(schema.NODES, puts, gets, good, decision, also),
            doubt.tell_decided,
        )
        in_time.require()
        return done

    def _fits_at_once(self, plan: ChangeSet) -> bool:
        store = self._store
        fits = len(plan.rows) <= store.batch_rows and plan.size <= store.batch_bytes
        return store.supports_transactions and fits

    def _at_once(self, made: int, snapshot: View, plan: ChangeSet, doubt: _Doubt, created: _Created) -> bool | None:
        """Steps 6, 7 and 10 at one moment, where the store can and nothing is met; None: nothing has been done.

        False: somebody has aborted it. Raises _TooSlow if the revision may not commit any more.
        """
        if not self._fits_at_once(plan):
            return None
        gets, nothing_met = self._read_back.precondition(made, snapshot, plan)
        return self._write_if(made, plan.puts(made), gets, nothing_met, doubt, created)
