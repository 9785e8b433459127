"""Several gateways to one HBase: which one a call uses, and for how long a failed one is left out.

A process uses its gateways in a random order. A call goes to the gateway that has the fewest calls in progress, so a
process without concurrent calls stays at one gateway. A gateway that fails is left out for a growing time. Then one thread
opens a connection to it, so no caller waits for a gateway that still hangs.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from hbasemk.errors import ClosedError, StoreError, StoreNotAppliedError, StoreUnusableError
from hbasemk.interrupts import Deferred, start_thread
from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.connection import Connection
from hbasemk.store.hbase.connections import Connections, Use
from hbasemk.store.hbase.handshake import open_connection
from hbasemk.store.hbase.transport import Transport
from hbasemk.store.hbase.wire import Wire

FIRST_PAUSE: Final = 0.5
"""Seconds for which a gateway is left out after its first failure; each further one doubles them, with jitter."""
LONGEST_PAUSE: Final = 30.0
"""The longest pause in seconds, before jitter."""
FAIR_WAIT: Final = 1.0
"""A gateway is left out if it gave no answer for so many seconds, or for half of a shorter timeout.

The opening of a repository waits for each gateway for as long.
"""

_log = logging.getLogger("hbasemk")


class _Health:
    """What one process knows of a gateway."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.failures = 0
        self.resume_at: float | None = None
        """When a thread tries a gateway that is left out; None if calls use it."""
        self.probe = threading.Lock()
        """Held by the one thread that tries the gateway."""


class Gateway:
    """One gateway: its connections, and whether calls use it."""

    def __init__(
        self,
        address: Address,
        transport: Transport,
        *,
        timeout: float,
        connect_timeout: float,
        pool_size: int,
        clock: Callable[[], float],
    ) -> None:
        self.about = f"HBase gateway at {address}"
        self._address = address
        self._transport = transport
        self._connect_timeout = connect_timeout
        self._fair_wait = min(timeout / 2, connect_timeout / 2, FAIR_WAIT)
        self._clock = clock
        self._health = _Health(os.getpid())
        self.pool = Connections(self._open, pool_size, clock, self.about)

    def _mine(self) -> _Health:
        health = self._health
        pid = os.getpid()
        if health.pid != pid:
            # A forked child has none of its parent's threads, and the lock may be held.
            health = self._health = _Health(pid)
        return health

    def _open(self, deadline: float, register: Callable[[Wire], None]) -> Connection:
        began = self._clock()
        soonest = min(deadline, began + self._connect_timeout)
        try:
            return open_connection(self._address, self._transport, soonest, self._clock, register)
        except (StoreNotAppliedError, StoreUnusableError) as error:
            self.failed(error, began, waited_in_vain=self._clock() >= soonest)
            raise

    def resumes_at(self) -> float | None:
        """Return when a thread tries this gateway again; None if calls use it."""
        return self._mine().resume_at

    def failed(self, error: Exception, began: float, *, waited_in_vain: bool) -> None:
        """Leave this gateway out for a while, and close its idle connections.

        A call that had little time left says nothing about the gateway.
        """
        health = self._mine()
        now = self._clock()
        if self.pool.closed or (waited_in_vain and now - began < self._fair_wait):
            return
        # Read and written once each: another thread may note a success at any moment.
        resume_at = health.resume_at
        if resume_at is not None and now < resume_at:
            # Calls that began earlier fail for the same reason.
            return
        pause = min(FIRST_PAUSE * 2 ** min(health.failures, 16), LONGEST_PAUSE)
        health.failures += 1
        pause *= 0.5 + random.random()
        health.resume_at = now + pause
        self.pool.close_idle()
        _log.debug("%s is left out for %.1f s: %s", self.about, pause, error)

    def succeeded(self) -> None:
        """Note that the gateway answered a call."""
        # Nearly every call ends here.
        if self._health.failures:
            health = self._mine()
            health.resume_at = None
            health.failures = 0

    def probe(self) -> None:
        """Start a thread that opens a connection, unless one is at it; if it succeeds, calls use the gateway again."""
        health = self._mine()
        with Deferred():
            if not health.probe.acquire(blocking=False):
                return
            try:
                start_thread(threading.Thread(target=self._probe, args=(health,), name="hbasemk-gateway", daemon=True))
            except BaseException as error:
                health.probe.release()
                if not isinstance(error, RuntimeError):
                    raise
                # The interpreter ends, or there are too many threads; the call uses another gateway.

    def _probe(self, health: _Health) -> None:
        try:
            self.verify(self._connect_timeout)
            # A later failure has a longer pause, until a call succeeds: a gateway may accept connections only.
            health.resume_at = None
        except (StoreError, ClosedError) as error:
            if isinstance(error, StoreUnusableError):
                _log.warning("%s; the other gateways are used", error)
        finally:
            health.probe.release()

    def verify(self, timeout: float) -> None:
        """Open a connection, unless one is open, and leave it to the next call. Raises what opening raises."""
        deadline = self._clock() + timeout
        use = Use()
        try:
            self.pool.give(self.pool.take(deadline, use), use)
        finally:
            self.pool.end(use)


class Gateways:
    """The gateways of one HBase; any number of threads may share them."""

    def __init__(
        self,
        addresses: Sequence[Address],
        transport: Transport,
        *,
        timeout: float,
        connect_timeout: float,
        pool_size: int,
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._all = [
            Gateway(
                address, transport, timeout=timeout, connect_timeout=connect_timeout, pool_size=pool_size, clock=clock
            )
            for address in addresses
        ]
        self._pid = -1
        self._in_order = self._all
        self.are_several: Final = len(self._all) > 1
        """Whether there is a choice."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called in this process, or in its parent before the fork."""
        return self._all[0].pool.closed

    def next(self, tried: Collection[Gateway], full: Gateway | None = None) -> Gateway | None:
        """Return the gateway that a call uses after those that it tried; None if it tried all.

        ``full`` has no free connection, so the others are better, even if as many calls are in progress there.
        Gateways that are left out come last: they are tried only if the others do not take the call.
        """
        if not self.are_several:
            return None if tried else self._all[0]
        best: Gateway | None = None
        fewest = (False, 0)
        left_out: list[tuple[float, Gateway]] = []
        for gateway in self._order():
            resume_at = gateway.resumes_at()
            if resume_at is not None:
                left_out.append((resume_at, gateway))
                if self._clock() >= resume_at:
                    gateway.probe()
            elif gateway not in tried:
                taken = (gateway is full, gateway.pool.taken)
                if best is None or taken < fewest:
                    best, fewest = gateway, taken
        if best is not None:
            return best
        untried = [one for one in left_out if one[1] not in tried]
        return min(untried, key=lambda one: one[0])[1] if untried else None

    def _order(self) -> list[Gateway]:
        """Return all gateways in an order that differs between processes, forked ones included."""
        pid = os.getpid()
        if self._pid != pid:
            self._in_order, self._pid = random.sample(self._all, len(self._all)), pid
        return self._in_order

    def verify(self) -> None:
        """Raise StoreUnusableError if one of several is not a Thrift2 gateway; ignore those that do not answer soon."""
        if not self.are_several:
            # Its first call finds out.
            return
        for gateway in self._order():
            try:
                gateway.verify(FAIR_WAIT)
            except StoreNotAppliedError:
                continue

    def close(self) -> None:
        """Close all connections, including those with running calls. Idempotent."""
        for gateway in self._all:
            gateway.pool.close()
