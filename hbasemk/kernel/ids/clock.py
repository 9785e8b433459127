"""The hybrid clock that issues revision ids.

An id is greater than every id in the view it is built on, so causal order implies id order. It lies inside this
instance's lease, so no two ids are equal (I1). This machine's clock moves ids at most ``max_clock_skew`` away from the
store's clock. An id that this instance has seen may be further ahead (``docs/protocol.md``, section 2).
"""

from __future__ import annotations

from hbasemk.errors import ClockSkewError, ClosedError
from hbasemk.format import revisions
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.ids.server_clock import ServerClock
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings


class IdClock:
    """Issues revision ids for one instance. No other part of the kernel turns time into ids."""

    def __init__(self, runtime: Runtime, settings: Settings, lease: Lease) -> None:
        self._runtime = runtime
        self._settings = settings
        self._lease = lease
        self._rows = ServerClock(lease.store, runtime)
        self._lock = runtime.lock()
        self._ms = 0
        self._counters = [0, revisions.BRANCH_BIT]
        self._seen = 0

    def observe(self, revision: int) -> None:
        """Record an id found in the journal or in a cell; every later id is greater."""
        if revision > self._seen:
            self._seen = revision

    def keep_lease(self) -> None:
        """Renew the lease if it is due, so that a running commit does not look like that of a dead writer."""
        self._lease.keep()

    @property
    def issued_ms(self) -> int:
        """The highest ms, since the repository's epoch, for which an id was issued."""
        return self._ms

    def next(self, above: int, *, branch: bool = False) -> int:
        """Issue an id that is greater than ``above`` and than every observed id.

        Claims or renews the lease if necessary. Raises LeaseLostError if another process took over the lease,
        ClockSkewError if the id would be too far from the store's clock, RevisionOverflowError if the repository's
        epoch leaves no more ids, and ClosedError if the instance is closed and has released its lease. Retried as a whole,
        so that other threads can get ids while this one waits for the store.
        """
        return run_with_retries(self._runtime, lambda: self._next(above, branch))

    def _next(self, above: int, branch: bool) -> int:
        with self._lock:
            if not self._lease.held:
                if self._runtime.closed:
                    raise ClosedError("the repository has been closed; nothing was committed")
                self._lease.claim()
            # Check this first: a clock that is ahead must not take id time from others, not even in the lease.
            self._check_not_ahead()
            revision = self._candidate(max(above, self._seen), branch)
            if revisions.ms_of(revision) >= self._lease.end:
                self._lease.renew(revisions.ms_of(revision))
            ms, counter = revisions.ms_of(revision), revisions.counter_of(revision)
            if ms > self._ms:
                self._counters = [-1, revisions.BRANCH_BIT - 1]
                self._ms = ms
            self._counters[branch] = counter
            return revision

    def _candidate(self, above: int, branch: bool) -> int:
        first = revisions.BRANCH_BIT if branch else 0
        ms = max(self._now_ms() - self._settings.epoch_ms, self._ms, self._lease.start)
        counter = first
        if ms == self._ms:
            counter = self._counters[branch] + 1
            if counter >= first + revisions.TRUNK_COUNTERS:
                ms, counter = ms + 1, first
        revision = revisions.pack(ms, self._lease.machine, counter)
        if revision <= above:
            revision = revisions.pack(revisions.ms_of(above) + 1, self._lease.machine, first)
        return revision

    def _now_ms(self) -> int:
        """Return the later of this machine's and the store's time; the store's only if it is within the allowed skew."""
        local = self._runtime.now_ms()
        now = self._runtime.monotonic()
        server = int(max(self._lease.server.at_least(now), self._rows.at_least(now)))
        return server if local < server <= local + self._settings.max_clock_skew_ms else local

    def _check_not_ahead(self) -> None:
        if self._ahead() > self._settings.max_clock_skew_ms:
            # The measurement may be outdated: the monotonic clock stands still while a machine sleeps.
            self._lease.measure()
            if self._ahead() > self._settings.max_clock_skew_ms:
                raise self._skew(self._lease.server.at_least(self._runtime.monotonic()), "ahead of")

    def _ahead(self) -> float:
        """Return an upper bound, in ms, of how far this machine's clock is ahead of the store's."""
        return self._runtime.now_ms() - self._lease.server.at_least(self._runtime.monotonic())

    def seems_in_time(self, revision: int) -> bool:
        """Return whether the journal row of ``revision``, acknowledged just now, seems to have been created in time.

        If it does not, the commit writes no cell. :meth:`created` decides, by the store's timestamp of the row.
        """
        latest = max(self._lease.server.at_most(self._runtime.monotonic()), self._runtime.now_ms())
        if not self.is_late(revision, int(latest)):
            return True
        # The store's clock may only seem far ahead because its measurement took long.
        self._lease.measure()
        return False

    def created(self, revision: int, created_ms: int, sent: float, received: float) -> bool:
        """Return whether the store created the journal row of ``revision`` in time (protocol, section 2).

        ``created_ms`` is the store's timestamp of the row. The request was sent at ``sent`` and the reply came at
        ``received``, both by the monotonic clock. If the row came too late, the next id uses the clock of the row's
        server. Raises ClockSkewError if a new id would be late too, because this machine's clock is too far behind that
        server's.
        """
        self._rows.record(created_ms, sent, received)
        if not self.is_late(revision, created_ms):
            return True
        now = self._runtime.monotonic()
        if self._rows.at_least(now) - self._runtime.now_ms() > self._settings.max_clock_skew_ms:
            raise self._skew(self._rows.at_least(now), "behind")
        return False

    def least_id(self, highest: int) -> int:
        """Return the lowest id that may be created beside the highest one, in a store that orders all writes."""
        return revisions.earlier(highest, self._settings.max_clock_skew_ms)

    def is_late(self, revision: int, created_ms: int) -> bool:
        """Return whether an id is further behind the timestamp of its journal row than the allowed lag."""
        return created_ms - (revisions.ms_of(revision) + self._settings.epoch_ms) > self._settings.lag_ms

    def _skew(self, server: float, how: str) -> ClockSkewError:
        local = self._runtime.now_ms()
        allowed = self._settings.max_clock_skew_ms
        return ClockSkewError(
            f"this machine's clock shows {local} ms since 1970 and is {how} the store's clock, {server:.0f} ms, by more "
            f"than the {allowed} ms that this repository allows; correct the clock (NTP) and try again",
            local_ms=local,
            server_ms=round(server),
            allowed_ms=allowed,
        )
