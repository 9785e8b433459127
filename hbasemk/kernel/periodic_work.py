"""What an instance does from time to time besides its calls, and when it closes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from hbasemk.errors import ClosedError, FormatError, StoreError
from hbasemk.kernel.branches.branches import Branches
from hbasemk.kernel.commit.context import CommitContext, Committing
from hbasemk.kernel.commit.folds import Folds
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.checkpoint_cells import CheckpointCells
from hbasemk.kernel.journal.recovery import Recovery

SWEEP_EVERY: Final = 3600.0
"""Seconds between sweeps of abandoned branches and of journal rows that arrived long after their writer's death."""
BRANCH_RETENTION_MS: Final = 24 * 3600 * 1000
"""The time after which a branch without commits is abandoned."""
POLL_EVERY: Final = 0.2
"""Seconds between polls during such a sweep. It reads much of the journal, which takes long if that is long."""
SWEEP_AGAIN: Final = 60.0
"""Seconds until such a sweep is repeated if the store fails."""
RECOVER_EVERY: Final = 1.0
"""Seconds from one successful recovery to the next. A recovery reads the leases of all pending revisions. Without this limit,
many busy processes would read more leases than they commit revisions. A lease lasts many times as long."""
ADVANCE_AFTER: Final = 500
"""The number of new revisions after which the watermark is moved and the sequence shortened."""


class PeriodicWork(Committing):
    """The periodic work of one instance."""

    def __init__(
        self,
        context: CommitContext,
        lease: Lease,
        branches: Branches,
        recovery: Recovery,
        folds: Folds,
        checkpoint_cells: CheckpointCells,
    ) -> None:
        super().__init__(context)
        self._lease = lease
        self._branches = branches
        self._recovery = recovery
        self._folds = folds
        self._checkpoint_cells = checkpoint_cells
        self._sweep_due = self._runtime.monotonic() + SWEEP_EVERY
        self._recovery_due = self._runtime.monotonic()
        self._advanced_at = 0
        self._advanced_to_end = True
        self._seen = 0
        self._advanced_time = self._runtime.monotonic()
        self._checked_at = 0
        self.on_backlog: Callable[[], None] | None = None
        """Called at the end of a call once :data:`ADVANCE_AFTER` more revisions are known, if there is no background thread."""

    def run(self) -> None:
        """Renew the lease, resolve deferred and dead writers' revisions, and move the watermark, as far as it is time.

        No round trip if there is nothing to do. Raises StoreError and LeaseLostError. Damage of one revision or lease stops only
        the work on it; FormatError comes at the end. A read-only instance only drops what other instances have moved the
        watermark past.
        """
        if self._store.read_only:
            self._advance()
            return
        self._do_all(
            self._renew_lease,
            self._renew_log,
            self._outcomes.resolve_pending,
            self._branches.resolve_pending,
            self._recover,
            self._folds.run,
            self._sweep,
            self._advance,
        )

    def _do_all(self, *steps: Callable[[], object]) -> None:
        """Take all steps, even if some of them meet damage; then raise the first FormatError."""
        damage = Damage()
        for step in steps:
            with damage.kept():
                step()
        damage.report()

    def _renew_lease(self) -> None:
        if self._lease.due():
            self._lease.renew()

    def _renew_log(self) -> None:
        if self._announcements.due():
            self._announcements.renew(self._journal.highest_seen)

    def _recover(self) -> None:
        """Recover revisions of dead writers, :data:`RECOVER_EVERY` seconds after the last success; repeat a failure at once."""
        now = self._runtime.monotonic()
        if now >= self._recovery_due:
            self._recovery.recover()
            self._recovery_due = now + RECOVER_EVERY

    def _sweep(self) -> None:
        """Sweep once an hour."""
        if not self._lease.held or self._runtime.monotonic() < self._sweep_due:
            return
        # In case the store fails.
        self._sweep_due = self._runtime.monotonic() + SWEEP_AGAIN
        try:
            self._do_all(
                self._sweep_branches,
                self._checkpoint_cells.remove_expired,
                partial(self._recovery.recover_late, self._stay_current),
            )
        except FormatError:
            # All steps were taken. What is damaged stays so.
            self._sweep_due = self._runtime.monotonic() + SWEEP_EVERY
            raise
        self._sweep_due = self._runtime.monotonic() + SWEEP_EVERY

    def _sweep_branches(self) -> None:
        # A sweep during the mark of a collector of blobs would make the mark useless.
        deletes = not self._checkpoint_cells.shows_blob_collector()
        # In HBase a scan from the begin steps over the markers of deleted rows.
        self._branches.sweep(
            BRANCH_RETENTION_MS, above=self._journal.fence.horizon, deletes=deletes, between=self._stay_current
        )

    def _stay_current(self) -> None:
        """Renew the lease if it is due, and poll if the last poll is old: the thread of this work makes all background polls."""
        self._lease.keep()
        if not self._journal.is_recent(POLL_EVERY):
            self._outcomes.quietly(self._journal.poll)

    def check_backlog(self) -> None:
        """Call :attr:`on_backlog` if it is time."""
        if self.on_backlog is not None and len(self._journal) - self._checked_at >= ADVANCE_AFTER:
            self._checked_at = len(self._journal)
            self.on_backlog()

    def end(self) -> None:
        """Resolve this instance's revisions and release its lease, as far as the store can be reached."""
        if self._store.read_only:
            self._lease.forget()
            return
        try:
            self._do_all(
                self._outcomes.resolve_pending,
                self._branches.resolve_pending,
                self._clock.release_lease,
                partial(self._advance, closing=True),
            )
        except (StoreError, ClosedError):
            self._lease.forget()

    def _advance(self, *, closing: bool = False) -> None:
        # Readers do this too: short-lived writers may never do so, and the journal stays short only if the watermark moves.
        seen = len(self._journal)
        # While others commit, the watermark cannot reach the last revision, and each attempt would read all that is above.
        rests = closing or seen == self._seen
        self._seen = seen
        if seen - self._advanced_at >= ADVANCE_AFTER or (rests and not self._advanced_to_end) or self._should_publish():
            self._advanced_at = seen
            self._advanced_to_end = False
            self._advanced_time = self._runtime.monotonic()
            if self._store.read_only:
                self._recovery.follow()
            else:
                self._recovery.advance(to_end=rests)
            self._advanced_to_end = rests and self._is_at_end()

    def _is_at_end(self) -> bool:
        """Return whether a further attempt to move the watermark to the last revision can be left out.

        In a store that orders all writes, a pending revision may have stopped the attempt, or a write that arrived meanwhile.
        """
        if self._store.read_only or not self._store.supports_transactions:
            return True
        return self._journal.verified >= self._journal.head.upper

    def _should_publish(self) -> bool:
        """Return whether to move the watermark although few revisions are new.

        In a store that does not order all writes, polls are complete only up to it.
        """
        if self._store.supports_transactions or self._store.read_only:
            return False
        elapsed = self._runtime.monotonic() - self._advanced_time
        return self._journal.verified < self._journal.head.upper and elapsed * 3 >= self._lease.seconds
