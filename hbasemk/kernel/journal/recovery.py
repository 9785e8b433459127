"""Cleaning up after dead writers, and moving the watermark.

Nothing in any process's memory is needed: whoever lives finds the pending revisions whose writer's lease is over and
ends them (I9), and moves the watermark past what is settled, so that start-up stays short however old the
repository is. Several may do so at once; every step is a compare-and-set or can be done twice.
"""

from __future__ import annotations

from typing import Final

from hbasemk.format import revisions, schema
from hbasemk.format.watermark import Watermark
from hbasemk.kernel import settings
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.outcomes import Outcome, Outcomes, outcome_of
from hbasemk.kernel.retry import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import NewCell, Put, Scan, Store, scan_all

ADVANCE_BATCH: Final = 1000


class Recovery:
    """Ends dead writers' revisions and advances the watermark, for one instance."""

    def __init__(
        self, store: Store, runtime: Runtime, journal: Journal, outcomes: Outcomes, retry_timeout: float
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._outcomes = outcomes
        self._retry_timeout = retry_timeout
        self._looked_ms = 0

    def recover(self) -> list[int]:
        """End the pending revisions whose writer's lease is over; returns those that were found dead.

        Sweeps as well what somebody aborted and its writer did not live to roll back. One round trip or more for each
        revision that is pending or was left like that, none when there is no such.
        """
        dead = [which for which in sorted(self._journal.pending) if self._outcomes.recover_if_over(which)]
        for which in self._journal.unswept(self._retry_timeout):
            # Its writer has had the whole lease time to roll back; a lease that goes on means that it still may, or may die.
            if self._outcomes.recover_if_over(which):
                dead.append(which)
                self._journal.is_swept(which)
            elif self._outcomes.is_swept(which):
                self._journal.is_swept(which)
            else:
                self._journal.wait_for_sweep(which)
        if dead:
            self._hide(dead)
        return dead

    def recover_late(self) -> list[int]:
        """End revisions that polls no longer look at, because the rows that begin, or bury, them came too late.

        A writer, or a gateway, may have held such a request longer than its lease; there are no cells, and nobody waits
        for it. Looks at the journal's rows that were written since the last call, at the first call at all of them.
        """
        began = looked = self._looked_ms
        flags = (schema.COMMITTED, schema.ABORT, schema.SWEPT)
        end = schema.revision_key(self._journal.low_bound)
        found: list[int] = []
        in_doubt: list[int] = []
        for row in scan_all(self._store, schema.JOURNAL, Scan(None, end, ADVANCE_BATCH, columns=flags, since=began)):
            looked = max(looked, *(cell.timestamp for cell in row.cells))
            made = int.from_bytes(row.key, "big")
            if revisions.is_branch(made):
                continue
            told = {cell.qualifier: cell.value for cell in row.cells}
            # Of a revision that was decided, only what decided it may be new enough to be read here.
            undecided = outcome_of(row) is Outcome.PENDING and {schema.COMMITTED[1], schema.ABORT[1]} <= told.keys()
            unswept = outcome_of(row) is Outcome.ABORTED and schema.SWEPT[1] not in told
            if undecided or unswept:
                found.append(made)
            elif told.get(schema.SWEPT[1]) == schema.SWEPT_IN_DOUBT:
                in_doubt.append(made)
        dead = [which for which in found if self._outcomes.recover_if_over(which)]
        if dead or in_doubt:
            # Also what somebody swept who did not live to hide it.
            self._hide([*dead, *in_doubt])
        if len(dead) == len(found):
            self._looked_ms = looked
        return dead

    def _hide(self, which: list[int]) -> None:
        """List as hidden what was recovered although the watermark had passed it: its row came too late for that."""
        while True:
            _, current = again(self._runtime, lambda: settings.read(self._store))
            if current is None:
                return
            passed = [one for one in which if one <= current.revision and one not in current.hidden]
            passed = [one for one in passed if self._outcomes.is_swept(one, in_doubt=True)]
            decided = self._outcomes.of_many(passed)
            passed = [one for one in passed if decided[one] is Outcome.ABORTED]
            if not passed:
                return
            # Another moves it each time that this fails, so somebody gets on.
            self._move(current, Watermark(current.revision, current.hidden.union(passed)))

    def _move(self, current: Watermark, moved: Watermark) -> bool:
        put = Put(schema.SETTINGS_ROW, [NewCell(*schema.WATERMARK, moved.encode())])
        return again(
            self._runtime,
            lambda: self._store.check_and_write(schema.CLUSTER, schema.WATERMARK, current.encode(), put, durable=False),
        )

    def follow(self) -> None:
        """Let the journal drop what the watermark that others move includes. One round trip, and a scan if it has moved."""
        _, current = again(self._runtime, lambda: settings.read(self._store))
        if current is not None:
            self._journal.verify(current)
            self._journal.compact(current)

    def advance(self) -> Watermark | None:
        """Move the watermark up as far as everything is decided and swept; None when it need not move.

        What was aborted and not swept is swept when its writer's lease is over, else it stops the watermark. The journal
        drops what the watermark, moved by whomever, tells. It always is a committed revision: who opens the repository names
        the first snapshot after it.
        """
        _, current = again(self._runtime, lambda: settings.read(self._store))
        if current is None:
            return None
        self._journal.verify(current)
        committed: list[int] = []
        target, hidden, in_doubt = current.revision, set(current.hidden), set[int]()
        scan = Scan(
            schema.revision_key(current.revision + 1),
            schema.revision_key(max(self._journal.settled_bound, current.revision + 1)),
            ADVANCE_BATCH,
            columns=(schema.COMMITTED, schema.ABORT, schema.SWEPT),
        )
        for row in scan_all(self._store, schema.JOURNAL, scan):
            which = int.from_bytes(row.key, "big")
            if revisions.is_branch(which):
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
                    in_doubt.add(which)
                continue
            target = which
            committed.append(which)
            hidden |= in_doubt
        if target == current.revision:
            self._journal.compact(current)
            return None
        moved = Watermark(target, frozenset(hidden))
        applied = self._move(current, moved)
        if applied:
            self._journal.verified_by_scan(moved, committed)
        self._journal.compact(moved if applied else current)
        return moved if applied else None
