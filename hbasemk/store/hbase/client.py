"""Calls to a gateway: a pooled connection, one deadline for everything, and errors that state the known outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from hbasemk.errors import ClosedError, StoreError, StoreNotAppliedError, StoreUnusableError
from hbasemk.store.hbase import errors
from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.connections import PoolIsFull
from hbasemk.store.hbase.exchange import Exchange, Request, StaleConnection, results
from hbasemk.store.hbase.failover import Gateway, Gateways
from hbasemk.store.hbase.gateway import Method
from hbasemk.store.hbase.transport import Transport

CONNECT_SECONDS: Final = 10.0


class Client:
    """A client of the Thrift2 gateways of one HBase; any number of threads may share it.

    ``timeout`` bounds a call in seconds. It includes the wait for a connection, opening one, and retries. Connecting
    alone takes at most ``connect_timeout``. ``clock`` is a monotonic clock in seconds.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        transport: Transport,
        *,
        timeout: float,
        pool_size: int,
        connect_timeout: float = CONNECT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self._timeout = timeout
        self._at = ", ".join(map(str, addresses))
        self._gateways = Gateways(
            addresses, transport, timeout=timeout, connect_timeout=connect_timeout, pool_size=pool_size, clock=clock
        )

    def check_open(self) -> None:
        """Raise ClosedError after :meth:`close`."""
        if self._gateways.closed:
            raise ClosedError(
                f"the store at HBase gateway {self._at} is closed; open the repository again with connect()"
            )

    def verify_gateways(self) -> None:
        """Raise StoreUnusableError if one of several gateways is not a Thrift2 gateway."""
        self._gateways.verify()

    def call(self, method: Method, message: Any, table: bytes, timeout: float | None = None) -> Any:
        """Make a call and return its result; ``table`` is the full name, for messages. See :meth:`make`."""
        return self.make(Request(method, message, table), timeout)

    def make(self, request: Request, timeout: float | None = None) -> Any:
        """Make a call and return its result.

        If the call cannot have been applied at one gateway, it moves on to the next, within the same deadline. Raises
        StoreError or ClosedError.
        """
        return self._call((request,), self._deadline(timeout))[0]

    def call_in_order(self, first: Request, second: Request) -> list[Any]:
        """Make two calls in one round trip, the second after the first one; return both results.

        If one fails, the error is that of both: after a StoreNotAppliedError, neither was applied.
        """
        return self._call((first, second), self._deadline())

    def call_both(self, first: Request, second: Request) -> tuple[Any, Any]:
        """Make two calls at the same time, on two connections; return the result of each, or the exception that it raised."""
        deadline = self._deadline()
        begun: list[Exchange] = []
        try:
            sent = [self._begin(request, deadline, begun) for request in (first, second)]
            if sent[0] is None:
                # The first call may need the connection of the second one, so that one ends first.
                two = self._end(second, sent[1], deadline)
                return self._end(first, None, deadline), two
            one, two = (self._end(*call, deadline) for call in zip((first, second), sent, strict=True))
            return one, two
        finally:
            # Only interrupted calls still hold their connections here.
            for exchange in begun:
                exchange.end()

    def _deadline(self, timeout: float | None = None) -> float:
        return self.clock() + (self._timeout if timeout is None else timeout)

    def _call(self, requests: Sequence[Request], deadline: float) -> list[Any]:
        """Make calls on one connection and return their results."""
        tried: list[Gateway] = []
        full: Gateway | None = None
        refusals: list[StoreError] = []
        while True:
            gateway = self._gateways.next(tried, full)
            if gateway is None:
                raise errors.from_all(refusals) from refusals[-1].__cause__
            tried.append(gateway)
            try:
                replies = self._call_at(gateway, requests, deadline)
                break
            except PoolIsFull:
                full = tried.pop()
            except (StoreNotAppliedError, StoreUnusableError) as error:
                refusals.append(error)
                if self.clock() >= deadline:
                    raise
        return results(gateway, requests, replies)

    def _call_at(self, gateway: Gateway, requests: Sequence[Request], deadline: float) -> list[Any]:
        """Return a gateway's replies.

        The gateway may have just closed a pooled connection. If no call can have been applied, they are then repeated once
        on another connection.
        """
        repeatable = True
        while True:
            exchange = Exchange(gateway, requests, deadline, self.clock, repeatable=repeatable)
            try:
                exchange.send(patient=not self._gateways.are_several)
                return exchange.receive()
            except StaleConnection:
                repeatable = False
            finally:
                # Only an interrupted call still holds its connection here.
                exchange.end()

    def _begin(self, request: Request, deadline: float, begun: list[Exchange]) -> tuple[Gateway, Exchange] | None:
        """Send a request; return None if it was not sent."""
        gateway = self._gateways.next(())
        if gateway is None or gateway.pool.is_full:
            return None
        exchange = Exchange(gateway, (request,), deadline, self.clock, repeatable=True)
        begun.append(exchange)
        try:
            exchange.send(patient=False)
        except Exception as error:
            if errors.is_foreign(error):
                raise
            # It is made in another way, which raises the error again if it lasts.
            return None
        return gateway, exchange

    def _end(self, request: Request, sent: tuple[Gateway, Exchange] | None, deadline: float) -> Any:
        """Return the result of a call, or its exception. A request that was not sent is sent now."""
        try:
            if sent is None:
                return self._call((request,), deadline)[0]
            gateway, exchange = sent
            try:
                replies = exchange.receive()
            except StaleConnection:
                return self._call((request,), deadline)[0]
            return results(gateway, (request,), replies)[0]
        except Exception as error:
            return error

    def close(self) -> None:
        """Close all connections, including those with running calls. Idempotent."""
        self._gateways.close()
