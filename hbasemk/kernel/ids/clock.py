"""The hybrid clock that issues revision ids.

An id is greater than every id in the snapshot it is built on, so causal order implies id order, and it lies inside
this instance's lease, so no two ids are ever the same (I1). What this machine's clock adds to that stays within
``max_clock_skew`` of the store's clock; an id that this instance has seen may be further ahead (``docs/protocol.md``, section 2).
"""

from __future__ import annotations

from hbasemk.errors import ClockSkewError, ClosedError
from hbasemk.format import revisions
from hbasemk.kernel.ids.lease import Lease, ServerClock
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings


class IdClock:
    """Issues ids for one instance; the only place in the kernel that turns time into ids."""

    def __init__(self, runtime: Runtime, settings: Settings, lease: Lease) -> None:
        self._runtime = runtime
        self._settings = settings
        self._lease = lease
        self._rows = ServerClock(lease.store, runtime)
        self._lock = runtime.lock()
        self._ms = 0
        self._counters = [0, revisions.BRANCH_BIT]
        self._seen = 0

    def observe(self, seen: int) -> None:
        """Remember an id that was met in the journal or in a cell: later ids will be greater."""
        if seen > self._seen:
            self._seen = seen

    def keep_lease(self) -> None:
        """Renew the lease if it is due: what a commit has written must not look like a dead writer's meanwhile."""
        self._lease.keep()

    @property
    def issued_ms(self) -> int:
        """The highest ms, since the repository's epoch, of which an id was issued."""
        return self._ms

    def next(self, above: int, *, branch: bool = False) -> int:
        """A new id, greater than ``above`` and than everything observed.

        Claims or renews the lease when it has to. Raises LeaseLostError when the lease was taken over,
        ClockSkewError when the id would be too far from the store's clock, RevisionOverflowError when the
        repository's epoch leaves no more ids, ClosedError when the instance was closed and its lease given back.
        """
        with self._lock:
            if not self._lease.held:
                if self._runtime.closed:
                    raise ClosedError("the repository has been closed; the commit was not made")
                self._lease.claim()
            # First: a clock that is ahead must take no time from anybody, not even in the lease.
            self._check_not_ahead()
            made = self._candidate(max(above, self._seen), branch)
            if revisions.ms_of(made) >= self._lease.end:
                self._lease.renew(revisions.ms_of(made))
            ms, counter = revisions.ms_of(made), revisions.counter_of(made)
            if ms > self._ms:
                self._counters = [-1, revisions.BRANCH_BIT - 1]
                self._ms = ms
            self._counters[branch] = counter
            return made

    def _candidate(self, above: int, branch: bool) -> int:
        first = revisions.BRANCH_BIT if branch else 0
        ms = max(self._now_ms() - self._settings.epoch_ms, self._ms, self._lease.start)
        counter = first
        if ms == self._ms:
            counter = self._counters[branch] + 1
            if counter >= first + revisions.TRUNK_COUNTERS:
                ms, counter = ms + 1, first
        made = revisions.pack(ms, self._lease.machine, counter)
        if made <= above:
            made = revisions.pack(revisions.ms_of(above) + 1, self._lease.machine, first)
        return made

    def _now_ms(self) -> int:
        """This machine's clock or the store's, whichever is later; the store's only where they agree as far as they must."""
        local = self._runtime.now_ms()
        now = self._runtime.monotonic()
        server = int(max(self._lease.server.at_least(now), self._rows.at_least(now)))
        return server if local < server <= local + self._settings.max_clock_skew_ms else local

    def _check_not_ahead(self) -> None:
        if self._ahead() > self._settings.max_clock_skew_ms:
            # Perhaps only what was measured is old: the monotonic clock of a machine that slept stood still.
            self._lease.measure()
            if self._ahead() > self._settings.max_clock_skew_ms:
                raise self._skew(self._lease.server.at_least(self._runtime.monotonic()), "ahead of")

    def _ahead(self) -> float:
        """By how many ms this machine's clock is ahead of the store's, at most."""
        return self._runtime.now_ms() - self._lease.server.at_least(self._runtime.monotonic())

    def seems_in_time(self, made: int) -> bool:
        """Whether the journal row of ``made``, acknowledged right now, came in time by all that this process can tell.

        No cell is written where it did not. :meth:`created` decides, by the timestamp that the store gave the row.
        """
        latest = max(self._lease.server.at_most(self._runtime.monotonic()), self._runtime.now_ms())
        if not self.is_late(made, int(latest)):
            return True
        # The store's clock may only seem far ahead because measuring it took long.
        self._lease.measure()
        return False

    def created(self, made: int, created_ms: int, sent: float, received: float) -> bool:
        """Whether the store created the journal row of ``made`` in time (protocol, section 2).

        ``created_ms`` is the timestamp that the store gave the row; the request went out at ``sent`` and the reply came at
        ``received``, both by the monotonic clock. False: the row came too late, and a new id is made from the clock of the
        server that the row is on. Raises ClockSkewError where a new id cannot do better, because this machine's clock is too
        far behind that server's.
        """
        self._rows.heard(created_ms, sent, received)
        if not self.is_late(made, created_ms):
            return True
        now = self._runtime.monotonic()
        if self._rows.at_least(now) - self._runtime.now_ms() > self._settings.max_clock_skew_ms:
            raise self._skew(self._rows.at_least(now), "behind")
        return False

    def is_late(self, made: int, created_ms: int) -> bool:
        """Whether an id is further behind the timestamp of its journal row than the allowed lag."""
        return created_ms - (revisions.ms_of(made) + self._settings.epoch_ms) > self._settings.lag_ms

    def _skew(self, server: float, how: str) -> ClockSkewError:
        local = self._runtime.now_ms()
        allowed = self._settings.max_clock_skew_ms
        return ClockSkewError(
            f"this machine's clock stands at {local} ms since 1970 and is {how} the store's clock at {server:.0f} ms by more "
            f"than the {allowed} ms that this repository allows; set the clock right (NTP) and try again",
            local_ms=local,
            server_ms=round(server),
            allowed_ms=allowed,
        )
