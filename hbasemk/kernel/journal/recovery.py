"""Recovery after dead writers, and moving the watermark.

Recovery needs nothing from any process's memory. Every live instance finds pending revisions whose writer's lease
has expired, and resolves them (I9). It also moves the watermark past decided revisions, so that start-up stays fast in an old
repository. Several instances may do so at once: every step is a compare-and-set or idempotent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.format.watermark import Watermark
from hbasemk.kernel import settings
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.logs import Logs
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.kernel.journal.sparse_scan import sparse_rows
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Decision, NewCell, Put, Scan, scan_all

ADVANCE_BATCH: Final = 1000


class Recovery:
    """Resolves the revisions of dead writers and advances the watermark, for one instance."""

    def __init__(
        self,
        store: RetryingStore,
        runtime: Runtime,
        journal: Journal,
        outcomes: Outcomes,
        lease: Lease,
        retry_timeout: float,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._lease = lease
        self._journal = journal
        self._outcomes = outcomes
        self._retry_timeout = retry_timeout
        self._logs = Logs(store, journal, lease)
        self._scanned_ms = 0

    def recover(self) -> list[int]:
        """Resolve the pending revisions whose writer's lease has expired; return the revisions of dead writers.

        Also sweeps revisions that another instance aborted and whose writer died before the roll-back. One round trip
        reads the leases of all pending revisions. Each revision of a dead writer, and each unswept one, takes one or more.
        No round trip if no revision is pending or unswept. Raises FormatError at the end if one of these revisions is damaged.
        """
        damage = Damage()
        dead = self._outcomes.recover_over(sorted(self._journal.pending), damage)
        for revision in self._journal.unswept.waiting_for(self._retry_timeout):
            # Whatever follows, a damaged one is not tried at every call.
            self._journal.unswept.wait_again(revision)
            with damage.kept(f"aborted revision {revisions.to_text(revision)} cannot be swept"):
                # The writer has had the whole lease time to roll back. If its lease continues, it may still do so, or die.
                if self._outcomes.recover_if_over(revision):
                    dead.append(revision)
                    self._journal.unswept.remove(revision)
                elif self._outcomes.is_swept(revision):
                    self._journal.unswept.remove(revision)
        if dead:
            self._hide(dead)
        damage.report()
        return dead

    def close_logs(self) -> None:
        """Close the logs of all writers whose lease is over; nothing in a store that orders all writes.

        After that, no such writer announces a revision, however long it was paused. Two round trips, and one for each log that
        it closes. Raises FormatError at the end if a lease is damaged.
        """
        if not self._store.supports_transactions:
            damage = Damage()
            self._logs.close_over(damage)
            damage.report()

    def recover_late(self, between: Callable[[], object] | None = None) -> list[int]:
        """Resolve revisions below the watermark whose journal row was created, or aborted, too late for polls.

        A writer or a gateway may have held such a request longer than the lease lasted. On a store that does not order all
        writes, such a revision was never announced. It has no cells, and nobody waits for it. Scans the journal rows
        written since the last call (:func:`sparse_rows`); the first call scans all of them. On a store that does not order all
        writes it does not read rows up to the trim level: what a repeated request writes there is no revision. It leaves pending
        rows up to the horizon to collectors: only decided revisions are there. ``between`` is called between two calls of the
        scan.
        """
        began = scanned = self._scanned_ms
        # A row that comes during the scan may be behind its position; the next scan includes such rows.
        now = self._lease.store_ms()
        flags = (schema.COMMITTED, schema.ABORT, schema.SWEPT)
        end = schema.revision_key(self._journal.low_bound)
        found: list[int] = []
        in_doubt: list[int] = []
        start = schema.revision_key(self._journal.fence.trimmed + 1)
        horizon = self._journal.current_horizon()
        # Rows have the times of several servers. Their clocks may differ by the allowed skew, which the time limit includes.
        since = max(began - int(self._retry_timeout * 1000), 0)
        scan = Scan(start, end, ADVANCE_BATCH, columns=flags, since=since)
        # Except in the first call, few rows have new cells.
        for row in journal_row.decode(sparse_rows(self._store, self._runtime, self._lease.settings, scan, between)):
            scanned = max(scanned, *(cell.timestamp for cell in row.cells))
            if row.is_branch:
                continue
            # If the revision is decided, the scan may show only the deciding flag, because the other one is older.
            shows_both = None not in (row.value(schema.COMMITTED), row.value(schema.ABORT))
            if (row.outcome is Outcome.PENDING and shows_both and row.revision > horizon) or (
                row.outcome is Outcome.ABORTED and row.swept is None
            ):
                found.append(row.revision)
            elif row.swept == schema.SWEPT_IN_DOUBT:
                in_doubt.append(row.revision)
        damage = Damage()
        dead = self._outcomes.recover_over(found, damage)
        if dead or in_doubt:
            # Include revisions that an instance swept without living to hide them.
            self._hide([*dead, *in_doubt])
        if len(dead) == len(found):
            self._scanned_ms = max(began, min(scanned, now))
        damage.report()
        return dead

    def _hide(self, recovered: list[int]) -> None:
        """List recovered revisions as hidden if the watermark has passed them, because their row came too late."""
        while True:
            current = settings.read_watermark(self._store)
            passed = [one for one in recovered if one <= current.revision and one not in current.hidden]
            passed = [one for one in passed if self._outcomes.is_swept(one, in_doubt=True)]
            decided = self._outcomes.of_many(passed)
            passed = [one for one in passed if decided[one] is Outcome.ABORTED]
            if not passed:
                return
            # If this fails, another instance has moved the watermark, so the system makes progress.
            self._move(current, replace(current, hidden=current.hidden.union(passed)))

    def hide(self, revision: int) -> bool:
        """List a revision as hidden; return False if the watermark has not passed it or lists it already."""
        while True:
            current = settings.read_watermark(self._store)
            if revision in current.hidden or revision > current.revision:
                return False
            if self._move(current, replace(current, hidden=current.hidden | {revision}), durable=True):
                return True

    def show(self, revision: int) -> bool:
        """Take a revision off the list of hidden ones; return False if it is not listed."""
        while True:
            current = settings.read_watermark(self._store)
            if revision not in current.hidden:
                return False
            if self._move(current, replace(current, hidden=current.hidden - {revision}), durable=True):
                return True

    def _move(self, current: Watermark, moved: Watermark, *, arrived: int | None = None, durable: bool = False) -> bool:
        """Move the watermark unless another instance has; with ``arrived``, only if no later journal row has arrived.

        In a store that does not order all writes it stays, too, if a machine id has been claimed since it was read.
        """
        put = Put(schema.SETTINGS_ROW, moved.cells())
        if not self._store.supports_transactions:
            # If the store's clock went back, an older cell may hide the new watermark, which does no harm. But the hidden ids
            # must show.
            stamp = current.stamp + 1 if moved.revision == current.revision else None
            put = Put(schema.SETTINGS_ROW, [*moved.cells(stamp), current.claims.next(moved.revision)])
            expected = current.claims.encode()
            return self._store.check_and_write(schema.CLUSTER, schema.CLAIMS, expected, put, durable=durable)
        if arrived is None:
            return self._store.check_and_write(schema.CLUSTER, schema.WATERMARK, current.encode(), put, durable=durable)
        unchanged = schema.JOURNAL, arrived
        decision = Decision(schema.CLUSTER, schema.WATERMARK, current.encode(), put, unchanged)
        return bool(self._store.write_if(schema.CLUSTER, (), (), lambda _: True, decision, durable=durable))

    def follow(self) -> None:
        """Drop from the journal what other instances have moved the watermark past.

        One round trip, and a scan if the watermark has moved.
        """
        current = settings.read_watermark(self._store)
        self._journal.verify(current)
        self._journal.compact(current)

    def advance(self, *, to_end: bool = True) -> Watermark | None:
        """Move the watermark up to the last revision before which all are decided and swept; None if it stays.

        In a store that orders all writes it moves as far if no journal row arrives meanwhile. Otherwise it stays below the
        bound below which no revision can still commit: there by the highest id, in other stores by the logs of all writers.
        Without ``to_end`` it always stays below that bound, and reads no row above it. With it, in a store that orders all
        writes, the call begins again if another instance moves the watermark meanwhile, perhaps less far.

        An aborted and unswept revision is swept if its writer's lease has expired; otherwise it stops the watermark. The journal
        then drops what the watermark covers, whichever instance moved it. The watermark is always a committed revision,
        because an instance that opens the repository names its first view after it.

        Raises FormatError at the end if the watermark stays below a revision or a log because of damage.
        """
        damage = Damage()
        moved = self._advance(to_end, damage)
        damage.report()
        return moved

    def _advance(self, to_end: bool, damage: Damage) -> Watermark | None:
        current = settings.read_watermark(self._store)
        while True:
            found, moved = self._advance_from(current, to_end, damage)
            if moved is not None or not found or not to_end or not self._store.supports_transactions:
                return moved
            latest = settings.read_watermark(self._store)
            if latest.encode() == current.encode():
                return None
            current = latest

    def _advance_from(self, current: Watermark, to_end: bool, damage: Damage) -> tuple[bool, Watermark | None]:
        """Make one attempt to move the watermark; return whether it may move, and the new one, None if it stays."""
        self._journal.verify(current)
        committed: list[int] = []
        in_doubt = set[int]()
        # Read these before the scan: it sees at least what they cover.
        arrived = self._journal.arrived if to_end else None
        announced = deque[int]()
        if self._store.supports_transactions:
            bound = self._journal.low_bound
        else:
            bound, above = self._logs.bound(current.revision, damage)
            announced.extend(above)
        end = schema.revision_key(max(bound, current.revision + 1)) if arrived is None else None
        scan = Scan(
            schema.revision_key(current.revision + 1),
            end,
            ADVANCE_BATCH,
            columns=(schema.COMMITTED, schema.ABORT, schema.SWEPT),
        )
        with damage.kept("the watermark cannot rise further"):
            for row in journal_row.decode(scan_all(self._store, schema.JOURNAL, scan)):
                if row.is_branch:
                    continue
                revision, outcome = row.revision, row.outcome
                if announced and announced[0] < revision:
                    # The scan found no row for it; the row may still come.
                    self._outcomes.abort_if_missing(announced[0])
                    break
                if announced and announced[0] == revision:
                    announced.popleft()
                if outcome is Outcome.PENDING:
                    if not self._store.supports_transactions:
                        # If it was not announced, no poll finds it.
                        self._outcomes.recover_if_over(revision)
                    break
                if outcome is Outcome.ABORTED:
                    swept = row.swept
                    if swept is None:
                        if not self._outcomes.recover_if_over(revision):
                            break
                        swept = schema.SWEPT_IN_DOUBT
                    if swept == schema.SWEPT_IN_DOUBT:
                        self._outcomes.sweep_again(revision)
                        in_doubt.add(revision)
                    continue
                committed.append(revision)
        found, moved = bool(committed), None
        if arrived is not None and committed:
            moved = self._move_to(current, committed, in_doubt, arrived)
            committed = [revision for revision in committed if revision < bound]
        if moved is None and committed:
            moved = self._move_to(current, committed, in_doubt)
        self._journal.compact(moved or current)
        return found, moved

    def _move_to(
        self, current: Watermark, committed: Sequence[int], in_doubt: set[int], arrived: int | None = None
    ) -> Watermark | None:
        """Move the watermark to the last of the committed revisions that were found above it; None if it stays."""
        target = committed[-1]
        hidden = current.hidden.union(one for one in in_doubt if one < target)
        moved = Watermark(target, hidden, self._journal.arrival_before(target))
        if not self._move(current, moved, arrived=arrived):
            return None
        self._journal.verify(moved)
        if not self._store.supports_transactions:
            # Polls learn it there. A higher one that another instance has published hides this one.
            cell = NewCell(*schema.WATERMARK, moved.revision.to_bytes(8, "big"), moved.revision)
            self._store.write(schema.CLUSTER, [Put(schema.LOGS_HEAD, [cell])], durable=False)
        return moved
