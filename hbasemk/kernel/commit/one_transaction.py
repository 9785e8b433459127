"""Steps 4, 6, 7 and 10 of a commit in one transaction of the store: journal row, cells, read-back and decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.format import schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit import new_row
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.context import CommitContext, Committing
from hbasemk.kernel.commit.deadline import OrderCheck, RepeatCheck
from hbasemk.kernel.commit.draft import UNKNOWN_ARRIVAL, Draft
from hbasemk.kernel.commit.read_back import Conflict, ReadBack
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Decision, Row

READ_BACK_ROWS: Final = 1000
"""The largest number of rows that one transaction reads back. Reading takes longer than writing, and all other writers wait."""


def fits_one_call(store: RetryingStore, plan: ChangeSet) -> bool:
    """Return whether one transaction of the store can write the cells of a change set."""
    return store.supports_transactions and len(plan.rows) <= store.batch_rows and plan.size <= store.batch_bytes


class OneTransaction(Committing):
    """Commits that the store carries out as a whole, or not at all. No other instance ever sees one of them pending."""

    def __init__(self, context: CommitContext, read_back: ReadBack) -> None:
        super().__init__(context)
        self._read_back = read_back

    def fits(self, draft: Draft, plan: ChangeSet) -> bool:
        """Return whether the store can carry out the commit in one transaction."""
        small = fits_one_call(self._store, plan)
        if small and len(plan.rows) > READ_BACK_ROWS:
            small = sum(1 for row in plan.rows if row.depends_on) <= READ_BACK_ROWS
        return small and new_row.is_complete(draft)

    def commit(self, draft: Draft, plan: ChangeSet) -> int | None:
        """Commit and return the arrival number (:data:`UNKNOWN_ARRIVAL` if an earlier request has committed already).

        Returns None, with nothing written, if another revision may be in the way, or if a merge cannot end its branch here,
        and 0 if another instance has aborted the revision. With nothing written, raises TooSlow if the id is too old, and
        SchemaVersionError if this process does not accept the present schema number.
        """
        revision = draft.revision
        gets, no_conflict = self._read_back.precondition(revision, draft.view, plan)
        order = OrderCheck(revision, self._clock, self._journal.highest_seen)
        ends = draft.ends
        branch = () if ends is None else ends.rows
        repeat = RepeatCheck(draft, (*order.rows, *branch))
        in_order = True

        def accept(rows: Sequence[Row]) -> bool:
            nonlocal in_order
            end = len(rows) - len(repeat.also)
            also = rows[end:]
            if not repeat(also):
                return False
            in_order = order(also[: len(order.rows)])
            also = also[len(order.rows) :]
            if ends is not None and not ends.is_possible(also[: len(branch)]):
                return False
            return in_order and no_conflict(rows[:end])

        with_puts = () if ends is None else (ends.put(revision),)
        row = new_row.put(draft, Outcome.COMMITTED)
        decision = Decision(schema.JOURNAL, schema.COMMITTED, None, row, with_puts=with_puts)
        since = None if ends is not None else self._unchanged_since(revision, draft.view, plan)
        arrival = self._store.write_if(
            schema.NODES, plan.puts(revision), gets, accept, decision, repeat.also, repeat.lost, unchanged_since=since
        )
        if repeat.is_committed:
            arrival = UNKNOWN_ARRIVAL
        if arrival:
            if ends is not None:
                ends.is_written = True
            return arrival
        if not in_order:
            order.refuse(self._store.location)
        if arrival == 0 and self._outcomes.of(revision) is not Outcome.ABORTED:
            raise new_row.issued_twice(revision)
        return arrival

    def _unchanged_since(self, revision: int, view: View, plan: ChangeSet) -> tuple[str, int] | None:
        """Return the table and the arrival number after which a write makes the transaction read; None if it always does.

        Without such a write, all that is committed is in the view. The watermark is a revision of the view, so it is below
        the id. The schema number is not in any view, so a process that names numbers always reads it.
        """
        if self._clock.accepted is not None:
            return None
        for row in plan.rows:
            if row.names_in_doubt:
                return None
        number = self._journal.unchanged_since(view)
        # Read afterwards, so that this id covers all writes up to the number.
        if number is None or revision < self._clock.least_id(self._journal.highest_seen):
            return None
        return schema.JOURNAL, number

    def conflict(self, draft: Draft, plan: ChangeSet) -> Conflict | None:
        """Return the conflict for which :meth:`commit` returned None.

        None if the attempt must go step by step: the other revision is still pending, and the lower id wins; or only cells of
        aborted revisions were in the way.
        """
        found = self._read_back.validate(0, draft.view, plan)
        return None if found is None or found.pending else found
