"""The hybrid clock that issues revision ids.

An id is greater than every id in the view it is built on, so causal order implies id order. It lies inside this
instance's lease, so no two ids are equal (I1). This machine's clock moves ids at most ``max_clock_skew`` away from the
store's clock. An id that this instance has seen may be further ahead (``docs/protocol.md``, section 2).
"""

from __future__ import annotations

from functools import partial

from hbasemk.errors import ClockSkewError, ClosedError
from hbasemk.format import revisions
from hbasemk.kernel.ids.lease import Lease, closed
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.schema_version import Accepted
from hbasemk.kernel.settings import Settings


class IdClock:
    """Issues revision ids for one instance. No other part of the kernel turns time into ids.

    Only the process that opened the instance gets ids: a forked child has a copy of the lease, and would issue the same ones.
    """

    def __init__(self, runtime: Runtime, settings: Settings, lease: Lease) -> None:
        self._runtime = runtime
        self._settings = settings
        self._lease = lease
        self._process = runtime.process
        self._lock = runtime.lock()
        # Another one, because a claim or a renewal of the lease calls the store while it holds the first one.
        self._observing = runtime.lock()
        self._ms = 0
        self._counters = [0, revisions.BRANCH_BIT]
        self._seen = 0

    def observe(self, revision: int) -> None:
        """Record an id found in the journal or in a cell; every later id is greater."""
        if revision > self._seen:
            with self._observing:
                self._seen = max(self._seen, revision)

    @property
    def accepted(self) -> Accepted | None:
        """The schema numbers with which this instance may commit (None: all)."""
        return self._lease.accepted

    def keep_lease(self) -> None:
        """Renew the lease if it is due, so that a running commit does not look like that of a dead writer."""
        self._lease.keep()

    def release_lease(self) -> None:
        """Release the machine id when closing. Ids that other threads have got are inside the lease; there are no more."""
        with self._lock:
            self._lease.is_closed = True
            self._lease.release(self._ms)

    def next(self, above: int, *, branch: bool = False) -> int:
        """Issue an id that is greater than ``above`` and than every observed id.

        Claims or renews the lease if necessary. Raises LeaseLostError if another process took over the lease,
        ClockSkewError if the id would be too far from the store's clock, RevisionOverflowError if the repository's
        epoch leaves no more ids, and ClosedError if the instance is closed and has released its lease, or in a forked child of
        the process that opened it. Retried as a whole, so that other threads can get ids while this one waits for the store.
        """
        if self._runtime.process != self._process:
            raise ClosedError(
                "this change began before a fork, in the parent process; nothing was committed; begin the change again here"
            )
        return run_with_retries(self._runtime, partial(self._next, above, branch))

    def _next(self, above: int, branch: bool) -> int:
        with self._lock:
            if not self._lease.held:
                if self._lease.is_closed or self._runtime.closed:
                    raise closed()
                self._lease.claim(max(above, self._seen))
            # Check this first: a clock that is ahead must not take id time from others, not even in the lease.
            now = self._checked_now_ms()
            revision = self._candidate(max(above, self._seen, self._lease.above), now, branch)
            ms = revisions.ms_of(revision)
            if ms >= self._lease.end:
                self._lease.renew(ms)
            if ms > self._ms:
                self._counters = [-1, revisions.BRANCH_BIT - 1]
                self._ms = ms
            self._counters[branch] = revisions.counter_of(revision)
            if branch:
                # Polls do not show branch ids; the ids of this instance follow them all the same.
                self.observe(revision)
            return revision

    def _candidate(self, above: int, now: int, branch: bool) -> int:
        first = revisions.BRANCH_BIT if branch else 0
        ms = max(now - self._settings.epoch_ms, self._ms, self._lease.start)
        counter = first
        if ms == self._ms:
            counter = self._counters[branch] + 1
            if counter >= first + revisions.TRUNK_COUNTERS:
                ms, counter = ms + 1, first
        revision = revisions.pack(ms, self._lease.machine, counter)
        if revision <= above:
            revision = revisions.pack(revisions.ms_of(above) + 1, self._lease.machine, first)
        return revision

    def _checked_now_ms(self) -> int:
        """Return the later of this machine's and the store's time; the store's only if it is within the allowed skew.

        Raise ClockSkewError if this machine's clock is ahead of the store's by more than the allowed skew. The id is made from
        the time that was checked, because the clock may jump after the check.
        """
        allowed = self._settings.max_clock_skew_ms
        local, server = self._runtime.now_ms(), self._server_ms()
        if local - server > allowed:
            # The measurement may be outdated: the monotonic clock stands still while a machine sleeps.
            self._lease.measure()
            local, server = self._runtime.now_ms(), self._server_ms()
            if local - server > allowed:
                raise self._skew("ahead of")
        return int(server) if local < server <= local + allowed else local

    def is_in_time(self, revision: int) -> bool:
        """Return whether an id is near enough to the store's clock; if not, this process paused after it had made the id.

        Raises ClockSkewError if the id is too old because this machine's clock is behind.
        """
        made_ms = revisions.ms_of(revision) + self._settings.epoch_ms
        if not self._is_behind(made_ms):
            return True
        self._lease.measure()
        if self._is_behind(self._runtime.now_ms()):
            raise self._skew("behind")
        return not self._is_behind(made_ms)

    def _is_behind(self, ms: int) -> bool:
        """Return whether a time in ms since 1970 is too far behind the store's clock."""
        return self._server_ms() - ms > self._settings.max_clock_skew_ms

    def _server_ms(self) -> float:
        """Return the lowest time in ms since 1970 that the store's clock can show now."""
        return self._lease.server.at_least(self._runtime.monotonic())

    def least_id(self, highest: int) -> int:
        """Return the lowest id that may be created beside the highest one, in a store that orders all writes."""
        return revisions.earlier(highest, self._settings.max_clock_skew_ms)

    def _skew(self, how: str) -> ClockSkewError:
        server = self._server_ms()
        local = self._runtime.now_ms()
        allowed = self._settings.max_clock_skew_ms
        return ClockSkewError(
            f"this machine's clock shows {local} ms since 1970 and is {how} the store's clock, {server:.0f} ms, by more "
            f"than the {allowed} ms that this repository allows; correct the clock (NTP) and try again",
            local_ms=local,
            server_ms=round(server),
            allowed_ms=allowed,
        )
