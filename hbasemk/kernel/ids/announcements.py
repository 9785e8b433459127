"""The announcements of one writer, in a store that does not order all writes.

A revision is announced in the log of its writer's machine id before any of its cells is written. Each write of the log has
all announced ids whose revisions are not decided, in one cell. So the log of a writer grows in the order of ids, and a
reader that has read it up to one id finds every later one. See ``docs/protocol.md``, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from hbasemk.errors import ClockSkewError, RevisionOverflowError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format import revisions, schema, writer_log
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.ids.decided_ids import DecidedIds
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.ids.recent_commits import RecentCommits
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import CheckAndWrite, Column, NewCell, Put

RECENT: Final = 48
"""How many decided revisions the log of a busy writer keeps. Readers find older ones in the journal."""


class Announcements:
    """Makes the ids of one instance's trunk revisions, and announces them. Thread-safe.

    ``is_decided`` says whether this instance knows that a revision is decided. After an interrupt at any point, the log
    still lists each announced id, or ``base`` is at least that id: an id enters its new place before it leaves the old one.
    """

    def __init__(
        self,
        store: RetryingStore,
        runtime: Runtime,
        clock: IdClock,
        lease: Lease,
        is_decided: Callable[[int], bool],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self._lease = lease
        self._is_decided = is_decided
        self._state = runtime.lock()
        self._sending = runtime.lock()
        self._is_sending = False
        self._nonce = b""
        self._machine = 0
        self._base = 0
        self._open: set[int] = set()
        self._abandoned: list[int] = []
        self._recent = DecidedIds()
        self._commits = RecentCommits()
        self._intents: dict[Column, int] = {}
        self._unsent: dict[Column, NewCell] = {}
        self._bound = 0
        self._acknowledged = 0
        self._acknowledged_time = runtime.monotonic()
        self._idle = True

    def next(self, above: int, made: list[int]) -> int:
        """Make the id of a revision, to be announced. In a store that orders all writes, nothing is announced.

        Adds the id to ``made`` before the log lists it. If an interrupt ends the call or follows it, the caller abandons the id.
        Retried as a whole, so that other threads go on while this one waits for the store.
        """
        if self._store.supports_transactions:
            return self._clock.next(above)
        return run_with_retries(self._runtime, lambda: self._next(above, made))

    def _next(self, above: int, made: list[int]) -> int:
        with self._state:
            # The id and its place in the log are one step, so ids enter the log in increasing order.
            while True:
                revision = self._clock.next(above)
                in_time = self._clock.is_in_time(revision)
                self._adopt()
                if in_time and self._enters(revision):
                    made.append(revision)
                    # In this order: no id of the log is above its bound.
                    self._bound = revision
                    self._open.add(revision)
                    return revision

    def abandon(self, revision: int) -> None:
        """Record that no commit uses an id that was made. Other threads may have announced it; so it must be aborted."""
        if revision in self._open:
            self._abandoned.append(revision)

    def defer_abandoned(self, defer: Callable[[int], None]) -> None:
        """Call ``defer`` with each abandoned id, and then forget it."""
        for revision in list(self._abandoned):
            defer(revision)
            with suppress(ValueError):
                # Another thread may have deferred it, too.
                self._abandoned.remove(revision)

    def is_open(self, revision: int) -> bool:
        """Return whether a revision is listed in the log, or will be, as one that may not be decided."""
        return revision in self._open

    def announce(self, revision: int) -> None:
        """Announce a revision; return when that is acknowledged. Threads that wait at the same time share one call.

        Raises LeaseLostError if another process has taken over the log; the revision then can never commit. Retried as
        :meth:`next`.
        """
        self._announce(revision, None)

    def _announce(self, revision: int, intent: NewCell | None) -> None:
        def announce() -> None:
            with self._sending:
                log = self._log_with(revision, intent)
                if log is not None:
                    self._send(log)

        run_with_retries(self._runtime, announce)

    def announce_with(self, revision: int, changes: bytes) -> bool:
        """Announce a revision together with its changes; return False if the log has no place for them now.

        Then nothing was sent. The revision needs no journal row before its decision: the log shows what it changes. Raises as
        :meth:`announce`.
        """
        with self._state:
            column = self._free_column(revision)
            if column is None:
                return False
            intent = NewCell(*column, changes, revision)
            self._intents[column] = revision
            self._unsent[column] = intent
        self._announce(revision, intent)
        return True

    def _free_column(self, revision: int) -> Column | None:
        """Return a column that may show the changes of a revision: its present one is decided, and does not hide them."""
        for column in schema.INTENTS:
            shown = self._intents.get(column, 0)
            if shown < revision and shown not in self._open:
                return column
        return None

    def _log_with(self, revision: int, intent: NewCell | None = None) -> CheckAndWrite | None:
        """Return the log that announces a revision, perhaps with its changes; None if that has been done.

        The caller holds the lock.
        """
        with self._state:
            if self._nonce != self._lease.nonce or revision not in self._open:
                # The lease of the revision is over. The present one may be a new one.
                raise self._lease.lost_error(revisions.machine_of(revision))
            if intent is not None and self._intents.get(intent[:2]) != revision:
                # The lease was claimed anew since the column was chosen.
                raise self._lease.lost_error(revisions.machine_of(revision))
            is_sent = intent is None or self._unsent.get(intent[:2]) is not intent
            if revision <= self._acknowledged and is_sent:
                return None
            self._idle = False
            return self._log()

    def announce_and(self, revision: int, create: CheckAndWrite) -> bool:
        """Announce a revision and create its journal row, at the same time if the store can; return whether it was created.

        The creation is sent at most once. Raises its error, or that of :meth:`announce`, after both have ended.
        """

        def create_row() -> bool:
            return self._store.once.check_and_write(*create, durable=False)

        if self._store.supports_joint_calls and not self._is_sending:
            with self._sending:
                log = self._log_with(revision)
                if log is None:
                    return create_row()
                created, is_sent = self._send_beside(create, log)
            if not is_sent:
                self.announce(revision)
            return created
        if self._store.supports_parallel_calls:
            # The call of another thread may announce this revision, too. The creation does not wait for it.
            return self._runtime.run_parallel(create_row, lambda: self.announce(revision))[0]
        self.announce(revision)
        return create_row()

    def decided(self, revision: int) -> None:
        """Record that a revision of this instance is committed or aborted."""
        with self._state:
            self._record_decided(revision)

    def committed(self, revision: int, changes: Sequence[NewCell]) -> None:
        """Record that a revision of this instance has committed, with its encoded changes. The next log shows small ones."""
        with self._state:
            if len(changes) == 1 and revision in self._open:
                self._commits.add(revision, changes[0][2])
            self._record_decided(revision)

    def _record_decided(self, revision: int) -> None:
        if revision in self._open:
            self._recent.add(revision)
            self._open.discard(revision)

    def due(self) -> bool:
        """Return whether a third of the lease has passed since the last write of the log, so that :meth:`renew` is due.

        The renewals of the lease do not show this: a large commit renews the lease between its calls.
        """
        if self._store.supports_transactions or not self._lease.held:
            return False
        return (self._runtime.monotonic() - self._acknowledged_time) * 3 > self._lease.seconds

    def renew(self, above: int) -> None:
        """Announce, without a revision, that only ids greater than ``above`` come. One round trip if there is a lease.

        A log without a new revision since the last renewal keeps no decided ones, and shows no commits. Retried as :meth:`next`.
        """
        if self._store.supports_transactions or not self._lease.held:
            return
        run_with_retries(self._runtime, lambda: self._renew(above))

    def _renew(self, above: int) -> None:
        with self._sending:
            with self._state:
                try:
                    bound = self._clock.next(above)
                except (ClockSkewError, RevisionOverflowError):
                    # The next commit raises the error. Until then the bound stays.
                    return
                self._adopt()
                if not self._enters(bound):
                    return
                self._bound = bound
                if self._idle:
                    self._drop(len(self._recent))
                    self._commits.clear()
                self._idle = True
                log = self._log()
            self._send(log)

    def _adopt(self) -> None:
        """Continue the log that the present lease has taken over, if the lease is new."""
        log = self._lease.log
        if log is None or self._nonce == self._lease.nonce:
            return
        nonce, machine = self._lease.nonce, self._lease.machine
        base, bound = log.found.base, log.found.bound
        # The earlier holder's revisions may still be pending.
        pending, recent, commits = set(log.found.ids), DecidedIds(), RecentCommits()
        # Their changes stay in the log until they are decided.
        intents = {column: revision for column, revision in log.found.intents.items() if revision in pending}
        # All or nothing: nothing is called in between.
        self._machine, self._base, self._bound, self._acknowledged = machine, base, bound, bound
        self._open, self._recent = pending, recent
        self._intents, self._unsent = intents, {}
        self._commits = commits
        self._nonce = nonce

    def _enters(self, revision: int) -> bool:
        """Return whether an id belongs to the present lease, and comes after all ids of the log."""
        return (
            self._nonce == self._lease.nonce
            and revisions.machine_of(revision) == self._machine
            and revision > max(self._bound, self._lease.above)
        )

    def _drop(self, count: int) -> None:
        """Drop the lowest decided ids."""
        self._base = max(self._base, self._recent.highest_of(count))
        self._recent.drop(count)

    def _log(self) -> CheckAndWrite:
        """Return the write of the log. If the lease changes before it is sent, the store refuses it."""
        cells = [self._cell(), *self._unsent.values()]
        if self._commits.is_shown:
            cells.append(NewCell(*schema.RECENT_COMMITS, self._commits.encoded, self._bound))
        put = Put(schema.log_key(self._machine), cells)
        return CheckAndWrite(schema.CLUSTER, schema.LOG_HOLDER, self._nonce, put)

    def _cell(self) -> NewCell:
        for one in [one for one in self._open if one <= self._acknowledged and self._is_decided(one)]:
            self._record_decided(one)
        self._drop(max(len(self._recent) - RECENT, 0))
        return writer_log.encoded_cell(self._base, self._recent.encoded_with(self._open), self._bound)

    def _send(self, log: CheckAndWrite) -> None:
        """Write the log."""
        began = self._runtime.monotonic()
        self._is_sending = True
        try:
            is_ours = self._store.check_and_write(*log, durable=False)
        finally:
            self._is_sending = False
        self._acknowledge(log, is_ours, began)

    def _send_beside(self, create: CheckAndWrite, log: CheckAndWrite) -> tuple[bool, bool]:
        """Make another compare-and-set, and write the log at the same time, each at most once.

        Return the answer to the other one, and whether the log is known to be written. Raises after both have ended.
        """
        began = self._runtime.monotonic()
        self._is_sending = True
        try:
            created, is_ours = self._store.once.check_and_write_both(create, log)
        finally:
            self._is_sending = False
        if isinstance(created, Exception):
            raise created
        if isinstance(is_ours, (StoreNotAppliedError, StoreUnknownError)):
            return created, False
        if isinstance(is_ours, Exception):
            raise is_ours
        self._acknowledge(log, is_ours, began)
        return created, True

    def _acknowledge(self, log: CheckAndWrite, is_ours: bool, began: float) -> None:
        """Record that the log was written; raise LeaseLostError if its row has another holder."""
        if not is_ours:
            machine = schema.log_machine(log.put.row)
            if log.expected != self._lease.nonce and machine is not None:
                # The present lease is a new one, claimed since the log was made.
                raise self._lease.lost_error(machine)
            raise self._lease.lost()
        with self._state:
            written = log.put.cells[0][3]
            if self._nonce == log.expected and written is not None:
                self._acknowledged = max(self._acknowledged, written)
                self._acknowledged_time = began
                for cell in log.put.cells[1:]:
                    if self._unsent.get(cell[:2]) is cell:
                        del self._unsent[cell[:2]]
