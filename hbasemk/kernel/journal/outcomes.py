"""Revision outcomes, and the compare-and-sets that decide them.

A commit checks ``abort`` and an abort checks ``committed`` on the same journal row. So a revision is never both, and
either request may be sent again after a lost reply. The commit of a sole writer creates the row. If this instance cannot
resolve one of its own revisions, it keeps the revision here until it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from hbasemk.errors import ClosedError, RevisionCollectedError, StoreError
from hbasemk.format import changes, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids.announcements import Announcements
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.rows import create_aborted, journal_rows
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column, NewCell, Put


class Outcomes:
    """Reads and decides the outcomes of revisions, and deletes the cells of aborted ones, for one instance."""

    def __init__(
        self, store: RetryingStore, runtime: Runtime, journal: Journal, lease: Lease, announcements: Announcements
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._lease = lease
        self._announcements = announcements
        self._lock = runtime.lock()
        self._deferred: dict[int, Sequence[RowChange]] = {}

    # --- reading -----------------------------------------------------------------------------------------

    def of(self, revision: int, *, check: bool = False) -> Outcome:
        """Return the outcome of one revision; see :meth:`of_many`. One round trip."""
        return self.of_many((revision,), check=check)[revision]

    def of_many(self, wanted: Sequence[int], *, check: bool = False) -> dict[int, Outcome]:
        """Return the outcomes of many revisions, with one round trip per batch (none for no revisions).

        ``check``: raise FormatError for damaged flags. Without it, a caller that waits for a decision would wait in vain.
        """
        found: dict[int, Outcome] = {}
        for row in journal_rows(self._store, wanted, columns=(schema.COMMITTED, schema.ABORT)):
            if check:
                row.check_flags()
            found[row.revision] = row.outcome
        return found

    # --- deciding ----------------------------------------------------------------------------------------

    def decide(self, revision: int, unless: Column, then: Column, in_doubt: Callable[[], None] | None = None) -> bool:
        """Set ``then`` to yes by compare-and-set if ``unless`` is still no. The call is idempotent and is retried.

        ``in_doubt`` is called for each lost reply.
        """
        put = Put(schema.revision_key(revision), [NewCell(*then, schema.YES)])
        return self._store.check_and_write(schema.JOURNAL, unless, schema.NO, put, in_doubt=in_doubt)

    def abort_missing(self, revision: int) -> Outcome:
        """Make sure that a revision without a journal row can never commit, unless it has committed meanwhile.

        Raises RevisionCollectedError if its row may have been deleted.
        """
        self._journal.require_recorded(revision)
        return self._create_aborted(revision)

    def abort_other(self, revision: int) -> Outcome:
        """Abort another writer's pending revision unless it has committed; its writer rolls it back."""
        if self.decide(revision, schema.COMMITTED, schema.ABORT):
            return Outcome.ABORTED
        return self.of(revision)

    def abort_own(self, revision: int, touched: Iterable[RowChange], *, clean: bool = True) -> Outcome:
        """Abort a revision of this instance and delete exactly its cells; return COMMITTED if it had committed.

        ``clean`` means that every reply to its writes was received, so that no more of its cells can arrive.
        """
        outcome = self.abort(revision)
        if outcome is Outcome.ABORTED:
            self.clean_up(revision, touched, clean=clean)
        return outcome

    def abort(self, revision: int) -> Outcome:
        """Abort a revision of this instance; return COMMITTED if it had committed.

        Raises RevisionCollectedError if it was decided so long ago that its row may have been deleted. Damaged flags raise
        FormatError.
        """
        outcome = self._abort(revision)
        self._announcements.decided(revision)
        return outcome

    def _abort(self, revision: int) -> Outcome:
        # A row that seems pending below the trim level was created by a request that was repeated.
        self._require_recorded(revision)
        for _ in range(2):
            if self.decide(revision, schema.COMMITTED, schema.ABORT):
                return Outcome.ABORTED
            found = self.of(revision)
            if found is Outcome.ABSENT:
                self._require_recorded(revision)
                # The request that creates the row never arrived, or may still arrive. An aborted row makes it fail.
                return self._create_aborted(revision)
            if found is not Outcome.PENDING:
                return found
            # The row has been created meanwhile, so the second attempt can abort it.
        reason = "a revision is neither committed, aborted nor pending"
        raise schema.damaged(reason, schema.JOURNAL, schema.revision_key(revision), schema.COMMITTED)

    def _require_recorded(self, revision: int) -> None:
        # A revision of a branch never commits by itself, so it may be aborted at any time.
        if not revisions.is_branch(revision):
            self._journal.require_recorded(revision)

    def clean_up(self, revision: int, touched: Iterable[RowChange], *, clean: bool) -> None:
        """Delete exactly the cells of an aborted revision of this instance."""
        self._sweep(revision, touched, schema.SWEPT_CLEAN if clean else schema.SWEPT_IN_DOUBT)

    def _create_aborted(self, revision: int) -> Outcome:
        """Create the row of a revision as aborted, or abort the one that has come meanwhile; return the outcome."""
        if create_aborted(self._store, revision):
            return Outcome.ABORTED
        # The row of a sole writer is committed from its creation on.
        return self.abort_other(revision)

    def delete_cells(self, revision: int, touched: Iterable[RowChange]) -> None:
        """Delete exactly the cells of a revision that has certainly not committed."""
        self._store.delete(schema.NODES, changes.deletes(touched, revision), between=self._lease.keep)

    def _sweep(self, revision: int, touched: Iterable[RowChange], mark: bytes) -> None:
        if not revisions.is_branch(revision) and self._journal.is_trimmed(revision):
            # Its row was deleted. A request that was repeated has created it again, and the revision may have committed.
            return
        self.delete_cells(revision, touched)
        put = Put(schema.revision_key(revision), [NewCell(*schema.SWEPT, mark)])
        if mark == schema.SWEPT_CLEAN:
            self._store.write(schema.JOURNAL, [put], durable=False)
            return
        # Never overwrite the writer's mark that no more cells can arrive: the watermark may depend on it.
        self._store.check_and_write(schema.JOURNAL, schema.SWEPT, None, put, durable=False)

    # --- revisions of dead writers (section 6) -----------------------------------------------------------

    def abort_if_missing(self, revision: int) -> None:
        """If an announced revision of a dead writer has no journal row, create an aborted one."""
        if self.of(revision) is Outcome.ABSENT:
            self.recover_if_over(revision)

    def recover_if_over(self, revision: int) -> bool:
        """Recover a pending revision if its writer's lease has expired; return whether it is decided now."""
        if not self._lease.is_over(revision):
            return False
        self.recover(revision)
        return True

    def recover_over(self, pending: Sequence[int], damage: Damage) -> list[int]:
        """Recover those of some pending revisions whose writer's lease has expired, and return them.

        Keeps in ``damage`` the error of a damaged revision or of a damaged lease, and leaves the revisions concerned as they are.
        One round trip for the leases of all, and more for each revision that it recovers.
        """
        recovered: list[int] = []
        for revision in self._lease.over(pending, damage):
            with damage.kept(f"revision {revisions.to_text(revision)} of a dead writer cannot be rolled back"):
                self.recover(revision)
                recovered.append(revision)
        return recovered

    def recover(self, revision: int) -> Outcome:
        """Abort a dead writer's revision unless it committed, and delete its cells. Several instances may do so at once.

        A revision up to the horizon was decided long ago. If its row may have been deleted, or says that it is pending, it is
        left as it is.
        """
        if not revisions.is_branch(revision) and revision <= self._journal.current_horizon():
            found = self.of(revision)
            if found is Outcome.PENDING or self._journal.is_trimmed(revision):
                return found
        if not self.decide(revision, schema.COMMITTED, schema.ABORT):
            found = self.of(revision)
            if found is Outcome.ABSENT and not self._store.supports_transactions:
                # Its writer announced it. An aborted row makes the creation fail, if it still comes.
                found = self.abort_missing(revision)
            if found is not Outcome.ABORTED:
                return found
        row = self._row(revision)
        if row.swept is None and row.cells:
            self._sweep(revision, row.changes, schema.SWEPT_IN_DOUBT)
        return Outcome.ABORTED

    def is_swept(self, revision: int, *, in_doubt: bool = False) -> bool:
        """Return whether the cells of an aborted revision are deleted. One round trip.

        ``in_doubt``: return True only if more of its cells may still arrive.
        """
        swept = self._row(revision, (schema.SWEPT,)).swept
        return swept == schema.SWEPT_IN_DOUBT if in_doubt else swept is not None

    def sweep_again(self, revision: int) -> None:
        """Delete cells that a paused writer, or a gateway that held its request, wrote after a sweep in doubt."""
        row = self._row(revision)
        if row.cells:
            self._sweep(revision, row.changes, schema.SWEPT_IN_DOUBT)

    def _row(self, revision: int, columns: Sequence[Column] | None = None) -> JournalRow:
        return next(journal_rows(self._store, [revision], columns))

    # --- this instance's unresolved revisions ------------------------------------------------------------

    def defer(self, revision: int, touched: Sequence[RowChange]) -> None:
        """Remember a revision of this instance that could not be resolved, for :meth:`resolve_pending`."""
        with self._lock:
            self._deferred[revision] = touched

    @property
    def deferred(self) -> list[int]:
        """The revisions of this instance that are still unresolved."""
        return list(self._deferred)

    def resolve_pending(self, *, reports_damage: bool = True) -> None:
        """Abort each deferred revision, unless it turns out to be committed (polls then find it); and abandoned ids.

        A damaged revision stays deferred. Raises FormatError for it at the end; other work sets ``reports_damage`` to False and
        leaves that to maintenance. Retried as a whole, so that other threads go on while this one waits for the store.
        """
        damage = Damage()
        run_with_retries(self._runtime, lambda: self._resolve_pending(damage))
        if reports_damage:
            damage.report()

    def _resolve_pending(self, damage: Damage) -> None:
        self._announcements.defer_abandoned(lambda revision: self.defer(revision, ()))
        for revision in list(self._deferred):
            effect = f"revision {revisions.to_text(revision)} of this process cannot be rolled back"
            with damage.kept(effect), self._lock:
                touched = self._deferred.get(revision)
                if touched is None:
                    continue
                # It raises if the revision was decided long ago. Then its outcome is not known, and nothing is left to do.
                with suppress(RevisionCollectedError):
                    # Without recorded changes, no cell was ever sent.
                    self.abort_own(revision, touched, clean=not touched)
                self._deferred.pop(revision, None)

    def resolve_pending_quietly(self) -> None:
        """Call :meth:`resolve_pending`; if the store is out of reach, leave the rest for the next call."""
        self.quietly(self.resolve_pending)

    def quietly(self, call: Callable[[], object]) -> bool:
        """Make a call that will be repeated later anyway, unless the repository is closed; return whether it succeeded.

        A StoreError or ClosedError is ignored.
        """
        try:
            call()
        except (StoreError, ClosedError):
            return False
        return True

    def final_outcome(self, revision: int) -> Outcome:
        """Return the outcome of a revision, resolving it first if it is deferred here.

        Raises RevisionCollectedError if it was decided so long ago that its row may have been deleted, and FormatError if it is
        damaged.
        """
        if revision in self._deferred:
            self.resolve_pending(reports_damage=False)
        # If it is still deferred, it is damaged.
        found = self.of(revision, check=revision in self._deferred)
        if found in (Outcome.ABSENT, Outcome.PENDING):
            # A row that seems pending below the trim level was created by a request that was repeated.
            self._journal.require_recorded(revision)
        return found
