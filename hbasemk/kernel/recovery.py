"""Cleaning up after dead writers, and moving the watermark.

Nothing in any process's memory is needed: whoever lives finds the pending revisions whose writer's lease is over and
ends them (I9), and moves the watermark past what is settled, so that start-up stays short however old the
repository is. Several may do so at once; every step is a compare-and-set or can be done twice.
"""

from __future__ import annotations

from typing import Final

from hbasemk.kernel import revision, schema, settings
from hbasemk.kernel.calls import again
from hbasemk.kernel.journal import Journal
from hbasemk.kernel.outcome import Outcome, Outcomes, outcome_of
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.watermark import Watermark
from hbasemk.store.abc import NewCell, Put, Scan, Store, scan_all

ADVANCE_BATCH: Final = 1000


class Recovery:
    """Ends dead writers' revisions and advances the watermark, for one instance."""

    def __init__(self, store: Store, runtime: Runtime, journal: Journal, outcomes: Outcomes, patience: float) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._outcomes = outcomes
        self._patience = patience

    def recover(self) -> list[int]:
        """End the pending revisions whose writer's lease is over; returns those that were found dead.

        Sweeps as well what somebody aborted and its writer did not live to roll back. One round trip or more for each
        revision that is pending or was left like that, none when there is no such.
        """
        dead = [which for which in sorted(self._journal.pending) if self._outcomes.recover_if_over(which)]
        for which in self._journal.unswept(self._patience):
            # Its writer has had the whole lease time to roll back; a lease that goes on means that it still may, or may die.
            if self._outcomes.recover_if_over(which):
                dead.append(which)
                self._journal.is_swept(which)
            elif self._outcomes.is_swept(which):
                self._journal.is_swept(which)
            else:
                self._journal.wait_for_sweep(which)
        return dead

    def advance(self) -> Watermark | None:
        """Move the watermark up as far as everything is decided and swept; None when it need not move.

        What was aborted and not swept is swept when its writer's lease is over, else it stops the watermark. The journal
        drops what the watermark, moved by whomever, tells.
        """
        _, current = again(self._runtime, lambda: settings.read(self._store))
        if current is None:
            return None
        target, hidden = current.revision, set(current.hidden)
        scan = Scan(
            schema.revision_key(current.revision + 1),
            schema.revision_key(max(self._journal.low_bound, current.revision + 1)),
            ADVANCE_BATCH,
            columns=(schema.COMMITTED, schema.ABORT, schema.SWEPT),
        )
        for row in scan_all(self._store, schema.JOURNAL, scan):
            which = int.from_bytes(row.key, "big")
            if revision.is_branch(which):
                continue
            outcome = outcome_of(row)
            if outcome is Outcome.PENDING:
                break
            if outcome is Outcome.ABORTED:
                swept = next((cell.value for cell in row.cells if cell.qualifier == schema.SWEPT[1]), None)
                if swept is None:
                    if not self._outcomes.recover_if_over(which):
                        break
                    swept = schema.SWEPT_IN_DOUBT
                if swept == schema.SWEPT_IN_DOUBT:
                    self._outcomes.sweep_again(which)
                    hidden.add(which)
            target = which
        if target == current.revision:
            self._journal.compact(current)
            return None
        moved = Watermark(target, frozenset(hidden))
        put = Put(schema.SETTINGS_ROW, [NewCell(*schema.WATERMARK, moved.encode())])
        applied = again(
            self._runtime,
            lambda: self._store.check_and_write(schema.CLUSTER, schema.WATERMARK, current.encode(), put, durable=False),
        )
        self._journal.compact(moved if applied else current)
        return moved if applied else None
