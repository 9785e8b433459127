"""How a revision turned out, and the compare-and-sets that decide it.

Committing checks ``abort`` and aborting checks ``committed`` on the same journal row, so that a revision is never
both and each may be sent again after a lost reply. A revision of this instance whose end could not be brought about
is kept here until it can.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence

from hbasemk.errors import StoreError
from hbasemk.format import changes, schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.batches import delete_batches, journal_rows
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.retry import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column, Get, NewCell, Put, Row, Store


class Outcome(enum.Enum):
    """What a journal row says of its revision; ABSENT: there is no such row."""

    PENDING = "pending"
    COMMITTED = "committed"
    ABORTED = "aborted"
    ABSENT = "absent"


def outcome_of(row: Row) -> Outcome:
    """The outcome that a journal row tells."""
    flags = {cell.qualifier: cell.value for cell in row.cells}
    if flags.get(schema.COMMITTED[1]) == schema.YES:
        return Outcome.COMMITTED
    if flags.get(schema.ABORT[1]) == schema.YES:
        return Outcome.ABORTED
    return Outcome.PENDING if flags else Outcome.ABSENT


class Outcomes:
    """Asks for, decides and cleans up after revisions, for one instance."""

    def __init__(self, store: Store, runtime: Runtime, journal: Journal, lease: Lease) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._lease = lease
        self._lock = runtime.lock()
        self._deferred: dict[int, Sequence[RowChange]] = {}

    # --- asking ------------------------------------------------------------------------------------------

    def of(self, asked: int) -> Outcome:
        """The outcome of one revision. One round trip."""
        return self.of_many((asked,))[asked]

    def of_many(self, asked: Sequence[int]) -> dict[int, Outcome]:
        """The outcomes of many revisions, in one round trip for each batch (none for no revision)."""
        rows = journal_rows(self._store, self._runtime, asked, columns=(schema.COMMITTED, schema.ABORT))
        return dict(zip(asked, map(outcome_of, rows), strict=True))

    def created_ms(self, which: int) -> int | None:
        """The timestamp that the store gave a journal row when it created it; None for no row. One round trip."""
        get = Get(schema.revision_key(which), columns=(schema.NONCE,))
        cells = again(self._runtime, lambda: self._store.read(schema.JOURNAL, [get]))[0].cells
        return cells[0].timestamp if cells else None

    # --- deciding ----------------------------------------------------------------------------------------

    def decide(self, which: int, unless: Column, then: Column, in_doubt: Callable[[], None] | None = None) -> bool:
        """One compare-and-set: if ``unless`` is still no, make ``then`` yes; may be sent again, and is.

        ``in_doubt`` is called for each reply that is lost.
        """
        put = Put(schema.revision_key(which), [NewCell(*then, schema.YES)])
        return again(
            self._runtime, lambda: self._store.check_and_write(schema.JOURNAL, unless, schema.NO, put), in_doubt
        )

    def abort_missing(self, which: int) -> Outcome:
        """Make sure that a revision without a journal row, whose cells were met, can never commit."""
        self._bury(which)
        return self.of(which)

    def abort_other(self, which: int) -> Outcome:
        """Abort somebody's pending revision unless it is committed by now; its writer rolls it back."""
        if self.decide(which, schema.COMMITTED, schema.ABORT):
            return Outcome.ABORTED
        return self.of(which)

    def abort_own(self, which: int, touched: Iterable[RowChange], *, clean: bool = True) -> Outcome:
        """Abort a revision of this instance and delete exactly its cells; COMMITTED when it was decided before.

        ``clean`` says that every reply to its writes was received, so that no cell of it can still arrive.
        """
        outcome = self.abort(which)
        if outcome is Outcome.ABORTED:
            self.clean_up(which, touched, clean=clean)
        return outcome

    def abort(self, which: int) -> Outcome:
        """Abort a revision of this instance; COMMITTED when it was decided before, FormatError for damaged flags."""
        for _ in range(2):
            if self.decide(which, schema.COMMITTED, schema.ABORT):
                return Outcome.ABORTED
            found = self.of(which)
            if found is Outcome.ABSENT:
                # Its creation never arrived, or still may; a row that says "aborted" makes it fail.
                self._bury(which)
                return Outcome.ABORTED
            if found is not Outcome.PENDING:
                return found
            # Its creation has arrived since: now it can be aborted.
        reason = "a revision is neither committed, aborted nor pending"
        raise schema.damaged(reason, schema.JOURNAL, schema.revision_key(which), schema.COMMITTED)

    def clean_up(self, which: int, touched: Iterable[RowChange], *, clean: bool) -> None:
        """Delete exactly the cells of a revision of this instance that is aborted."""
        self._sweep(which, touched, schema.SWEPT_CLEAN if clean else schema.SWEPT_IN_DOUBT)

    def _bury(self, which: int) -> None:
        put = Put(
            schema.revision_key(which),
            [NewCell(*schema.COMMITTED, schema.NO), NewCell(*schema.ABORT, schema.YES)],
        )
        if not again(self._runtime, lambda: self._store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put)):
            self.decide(which, schema.COMMITTED, schema.ABORT)

    def _sweep(self, which: int, touched: Iterable[RowChange], by: bytes) -> None:
        deletes = changes.deletes(touched, which)
        for number, part in enumerate(delete_batches(deletes, self._store.batch_rows, self._store.batch_bytes)):
            if number:
                self._lease.keep()
            again(self._runtime, lambda part=part: self._store.delete(schema.NODES, part))  # type: ignore[misc]
        put = Put(schema.revision_key(which), [NewCell(*schema.SWEPT, by)])
        if by == schema.SWEPT_CLEAN:
            again(self._runtime, lambda: self._store.write(schema.JOURNAL, [put], durable=False))
            return
        # Its writer, who knows that nothing can arrive any more, may have said so, and the watermark may rely on that.
        again(
            self._runtime,
            lambda: self._store.check_and_write(schema.JOURNAL, schema.SWEPT, None, put, durable=False),
        )

    # --- what dead writers left (section 6) ---------------------------------------------------------------

    def recover_if_over(self, which: int) -> bool:
        """Recover a pending revision if its writer's lease is over; returns whether it is decided now."""
        if not self._lease.is_over(which):
            return False
        self.recover(which)
        return True

    def recover(self, which: int) -> Outcome:
        """Abort a dead writer's revision unless it committed, and delete its cells. May be done by several at once."""
        if not self.decide(which, schema.COMMITTED, schema.ABORT):
            found = self.of(which)
            if found is not Outcome.ABORTED:
                return found
        row = self._row(which)
        if not any(cell.qualifier == schema.SWEPT[1] for cell in row.cells):
            self._sweep(which, changes.of_row(row), schema.SWEPT_IN_DOUBT)
        return Outcome.ABORTED

    def is_swept(self, which: int, *, in_doubt: bool = False) -> bool:
        """Whether an aborted revision's cells are deleted (``in_doubt``: and some may still come). One round trip."""
        get = Get(schema.revision_key(which), columns=(schema.SWEPT,))
        cells = again(self._runtime, lambda: self._store.read(schema.JOURNAL, [get]))[0].cells
        return any(not in_doubt or cell.value == schema.SWEPT_IN_DOUBT for cell in cells)

    def sweep_again(self, which: int) -> None:
        """Delete what a paused writer, or a gateway that held its request, brought after a sweep in doubt."""
        self._sweep(which, changes.of_row(self._row(which)), schema.SWEPT_IN_DOUBT)

    def _row(self, which: int) -> Row:
        return next(journal_rows(self._store, self._runtime, [which]))

    # --- this instance's own loose ends -------------------------------------------------------------------

    def defer(self, which: int, touched: Sequence[RowChange]) -> None:
        """Remember a revision of this instance that could not be ended; :meth:`resolve_pending` will."""
        with self._lock:
            self._deferred[which] = touched

    @property
    def deferred(self) -> list[int]:
        """The revisions that are still to be ended."""
        return list(self._deferred)

    def resolve_pending(self) -> None:
        """End what was left: abort it, unless it turns out to be committed (polls then show it)."""
        for which in list(self._deferred):
            with self._lock:
                touched = self._deferred.get(which)
                if touched is None:
                    continue
                # Where nothing is told yet, no cell was ever sent.
                self.abort_own(which, touched, clean=not touched)
                self._deferred.pop(which, None)

    def settle_quietly(self) -> None:
        """:meth:`resolve_pending`, leaving what cannot be reached yet for the next time."""
        self.quietly(self.resolve_pending)

    def quietly(self, settle: Callable[[], None]) -> None:
        """Make a call that has a next time; a store that is away is no error then."""
        try:
            settle()
        except StoreError:
            return

    def final_outcome(self, which: int) -> Outcome:
        """How a revision ended, ending it first if it is one of those left here."""
        if which in self._deferred:
            self.resolve_pending()
        return self.of(which)
