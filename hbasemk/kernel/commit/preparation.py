"""Steps 3 to 5 of a commit: make the id, create the journal row, and stage the changes."""

from __future__ import annotations

from hbasemk.errors import HbasemkError, InvalidRevisionError
from hbasemk.format import changes, paths, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit import new_row, slots
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.change_source import Prediction
from hbasemk.kernel.commit.context import Committing
from hbasemk.kernel.commit.deadline import OrderCheck, TooSlow
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.sole_rows import added_alone
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.journal.rows import journal_rows, write_changes
from hbasemk.store.abc import CheckAndWrite, Decision, Put


class Preparation(Committing):
    """The steps of a commit before its first cell."""

    def prepare(self, draft: Draft) -> ChangeSet:
        """Stage the draft and make its id; in a store without transactions, also create its journal row.

        Both happen at the same time if that saves a round trip. Without changes there is no journal row: it is not created,
        or aborted. Raises TooSlow if the row was created too late, and the errors of the changes.
        """
        orders_writes = self._store.supports_transactions
        if draft.plan is None and not orders_writes:
            prediction = draft.source.predict(self._store.batch_rows)
            if prediction is not None:
                added = self._stage_addition(draft, prediction)
                if added is not None:
                    return added
                # If it competes, the state of the node says which calls it makes.
                may_compete = draft.is_hot and len(prediction.changes) == 1 and not prediction.adjusts
                if not may_compete and self._saves_round_trip(draft, prediction):
                    return self._stage_while_creating(draft, prediction)
        plan = draft.plan or self._stage(draft)
        if plan.adjusting:
            # The machine id of the revision chooses the slots.
            self._make_id(draft)
            self._use_slots(draft, plan)
            draft.encoded = changes.encode(plan.changes)
        elif plan.changes:
            # Encoded before the id is made, because an id grows old.
            draft.encoded = changes.encode(plan.changes)
            self._make_id(draft)
        if plan.changes and not orders_writes:
            self._sole_rows.choose(draft, plan)
            if draft.stage is not Stage.ALONE or not self._announce_changes(draft):
                self.create(draft)
        return plan

    def _announce_changes(self, draft: Draft) -> bool:
        """Announce the revision with its changes, in place of a journal row; return False if the log has no place for them."""
        try:
            if self._announcements.announce_with(draft.revision, draft.encoded[0].value):
                return True
        except BaseException:
            self._outcomes.defer(draft.revision, ())
            raise
        draft.stage = Stage.ORDINARY
        return False

    def _use_slots(self, draft: Draft, plan: ChangeSet) -> None:
        self._slots.choose(draft, slots.places(plan))
        crowded = slots.use(plan, draft.slots)
        if crowded:
            self._slots.report_crowded(crowded)

    def _saves_round_trip(self, draft: Draft, prediction: Prediction) -> bool:
        """Return whether reading in parallel with the creation of the journal row saves a round trip."""
        return self._store.supports_parallel_calls and not all(
            self._reader.is_cached(draft.view, path) for path in prediction.reads
        )

    def _stage_addition(self, draft: Draft, prediction: Prediction) -> ChangeSet | None:
        """Stage and announce a commit that adds one node below a node that only this instance has written lately.

        It does not read whether the added node exists: the write of its row finds that out. Return None if the commit is
        another one, or cannot be made in this way; then nothing was announced.
        """
        view, path = draft.view, added_alone(prediction)
        if path is None or self._reader.is_cached(view, path):
            return None
        if not all(self._reader.is_cached(view, one) for one in prediction.reads if one != path):
            return None
        parent = self._reader.node(view, paths.parent(path))
        if parent is None or self._sole_rows.stage_after(parent) is not Stage.ALONE:
            return None
        try:
            plan = draft.source.stage(self._reader, view, (path,))
            plan.require_within_limits(self._store)
        except HbasemkError:
            # If the node exists, there may be another error.
            return None
        draft.encoded = changes.encode(plan.changes)
        self._sole_rows.choose(draft, plan)
        if draft.stage is not Stage.ALONE:
            return None
        self._make_id(draft)
        draft.stage = Stage.ALONE
        if self._announce_changes(draft):
            return plan
        try:
            if self._reader.node(view, path) is None:
                self.create(draft)
                draft.plan = plan
                return plan
        except BaseException:
            self._announcements.abandon(draft.revision)
            raise
        self._announcements.abandon(draft.revision)
        draft.revision = 0
        return None

    def _stage_while_creating(self, draft: Draft, prediction: Prediction) -> ChangeSet:
        if prediction.adjusts:
            self._make_id(draft)
            self._slots.choose(draft, prediction.adjusts)
            draft.encoded = changes.encode(prediction.with_slots(draft.slots))
        else:
            draft.encoded = changes.encode(prediction.changes)
            self._make_id(draft)
        try:
            _, plan = self._runtime.run_parallel(lambda: self.create(draft), lambda: self._stage(draft))
        except TooSlow:
            raise
        except BaseException:
            # Step 5: an invalid change, a store error or an interruption; the journal row may exist.
            self._outcomes.defer(draft.revision, ())
            self._outcomes.resolve_pending_quietly()
            raise
        if not plan.changes:
            self._abort_empty(draft.revision)
        if plan.adjusting:
            self._use_slots(draft, plan)
        self._sole_rows.choose(draft, plan)
        if draft.stage is Stage.ALONE:
            # Its journal row exists, so others may abort it before its decision.
            draft.stage = Stage.ORDINARY
        return plan

    def _stage(self, draft: Draft) -> ChangeSet:
        """Stage the changes. Raise LimitError for cells that exceed the store's limits, before any is written."""
        plan = draft.source.stage(self._reader, draft.view)
        plan.require_within_limits(self._store)
        draft.plan = plan
        return plan

    def _make_id(self, draft: Draft) -> None:
        made: list[int] = []
        try:
            revision = self._announcements.next(max(draft.view.upper, self._journal.highest_seen), made)
            draft.start_try(revision, self._runtime.random.getrandbits(128).to_bytes(16, "big"))
        except BaseException:
            for revision in made:
                self._announcements.abandon(revision)
            raise

    def create(self, draft: Draft) -> None:
        """Create the journal row, pending, with the changes; raise TooSlow if the revision can no longer commit.

        In a store that does not order all writes, also announce the revision, at the same time.
        """
        revision = draft.revision
        try:
            arrival = self._announce_and_create(draft)
            if not arrival:
                self._require_ours(revision, draft.nonce)
            draft.created = arrival
            if not new_row.is_complete(draft):
                write_changes(self._store, revision, draft.encoded)
        except (InvalidRevisionError, TooSlow):
            raise
        except BaseException:
            self._outcomes.defer(revision, draft.touched)
            raise

    def _announce_and_create(self, draft: Draft) -> int:
        """Return the arrival number of the row (1 without order), or 0 if it exists.

        Not retried: HBase's client may send the creation twice; the second reply is then "exists", and the nonce shows that
        the row is this commit's.
        """
        revision, put = draft.revision, new_row.put(draft, Outcome.PENDING)
        if self._store.supports_transactions:
            return self._create_row(revision, put)
        return self._announcements.announce_and(revision, CheckAndWrite(schema.JOURNAL, schema.COMMITTED, None, put))

    def record_loss(self, draft: Draft) -> None:
        """Create the journal row of an attempt that lost in one transaction, as aborted.

        Polls of other processes then know that this one waits (:mod:`hbasemk.kernel.commit.turns`).
        """
        if new_row.is_complete(draft):
            self._create_row(draft.revision, new_row.put(draft, Outcome.ABORTED))

    def _create_row(self, revision: int, put: Put) -> int:
        """Create a journal row, in a store that orders all writes; return its arrival number, or 0 if it exists.

        The store refuses an id that is too far below the highest one, or that the watermark has passed
        (protocol, section 2). Then nothing is written, and TooSlow is raised; the next id is greater than both. Raises
        SchemaVersionError, with nothing written, if this process does not accept the present schema number.
        """
        check = OrderCheck(revision, self._clock, self._journal.highest_seen)
        decision = Decision(schema.JOURNAL, schema.COMMITTED, None, put)
        arrival = self._store.once.write_if(schema.JOURNAL, (), (), check, decision, check.rows, durable=False)
        if arrival is None:
            check.refuse(self._store.location)
        return arrival

    def _abort_empty(self, revision: int) -> None:
        """Abort a revision that has not written cells yet; defer the abort if the store fails."""
        try:
            self._outcomes.abort_own(revision, ())
        except BaseException:
            self._outcomes.defer(revision, ())
            raise

    def _require_ours(self, revision: int, nonce: bytes) -> None:
        """Raise InvalidRevisionError if another writer has created the row, TooSlow if an instance has created it as aborted."""
        (row,) = journal_rows(self._store, [revision], columns=(schema.NONCE, schema.ABORT))
        if row.nonce is None and row.aborted:
            self._announcements.decided(revision)
            raise TooSlow
        if row.nonce != nonce:
            raise new_row.issued_twice(revision)
