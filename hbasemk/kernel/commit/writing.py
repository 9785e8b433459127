"""Steps 6 and 10 of a commit: write the cells and decide; or steps 6, 7 and 10 in one transaction of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hbasemk.format import schema
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.context import Committing
from hbasemk.kernel.commit.deadline import RepeatCheck, TooSlow
from hbasemk.kernel.commit.draft import Draft
from hbasemk.store.abc import Decision, Get, NewCell, Put, Row

UNKNOWN_ARRIVAL: Final = -1
"""In place of the arrival number of a revision whose decision was applied before, with a lost reply."""


class Writing(Committing):
    """The steps of a commit that write its cells and decide it."""

    def write(self, draft: Draft, plan: ChangeSet) -> None:
        """Run step 6; raise TooSlow if the journal row was created too late by its server's timestamp.

        If the store supports parallel calls, the timestamp is read while the cells are written. In a store that orders all
        writes no row comes too late.
        """
        if self._store.supports_transactions:
            self._write_cells(draft, plan)
            return
        if self._store.supports_parallel_calls:
            created_ms, _ = self._runtime.run_parallel(
                lambda: self._outcomes.created_ms(draft.revision), lambda: self._write_cells(draft, plan)
            )
        else:
            created_ms = self._outcomes.created_ms(draft.revision)
            self._write_cells(draft, plan)
        sent, received, _ = draft.created
        if created_ms is not None and not self._clock.created(draft.revision, created_ms, sent, received):
            raise TooSlow

    def _write_cells(self, draft: Draft, plan: ChangeSet) -> None:
        self._store.write(
            schema.NODES,
            plan.each_put(draft.revision),
            durable=False,
            in_doubt=draft.lose_reply,
            between=self._clock.keep_lease,
        )

    def decide(self, draft: Draft) -> int:
        """Run step 10 and return the arrival number (1 without order), or 0 if another instance has aborted the revision.

        Raises TooSlow if the revision may no longer commit.
        """
        if not self._store.supports_transactions:
            return self._outcomes.decide(draft.revision, schema.ABORT, schema.COMMITTED, draft.lose_decision)
        return self.write_if(draft, (), (), lambda _: True) or 0

    def fits_one_transaction(self, plan: ChangeSet) -> bool:
        """Return whether the store can write and decide the change set in one transaction."""
        store = self._store
        fits = len(plan.rows) <= store.batch_rows and plan.size <= store.batch_bytes
        return store.supports_transactions and fits

    def write_if(
        self, draft: Draft, puts: Sequence[Put], gets: Sequence[Get], judge: Callable[[Sequence[Row]], bool]
    ) -> int | None:
        """Write and decide in one transaction, if ``judge`` accepts the rows of ``gets``.

        Returns the arrival number (:data:`UNKNOWN_ARRIVAL` if an earlier request has committed the revision), 0 if another
        instance has aborted it, None if ``judge`` refused.
        """
        check = RepeatCheck(draft.revision)
        also: list[tuple[str, Get]] = []

        def lost() -> None:
            draft.lose_decision()
            # The request that follows may be a repetition.
            also[:] = [check.row()]

        def accept(rows: list[Row]) -> bool:
            return (not also or check(rows[-1])) and judge(rows[: len(gets)])

        put = Put(schema.revision_key(draft.revision), [NewCell(*schema.COMMITTED, schema.YES)])
        decision = Decision(schema.JOURNAL, schema.ABORT, schema.NO, put)
        decided = self._store.write_if(schema.NODES, puts, gets, accept, decision, also, lost)
        return UNKNOWN_ARRIVAL if check.is_committed else decided
