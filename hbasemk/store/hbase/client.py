"""Calls to a gateway: a pooled connection, one deadline for everything, and errors that state the known outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from hbasemk.errors import ClosedError, StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError
from hbasemk.store.hbase import errors
from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.connection import Connection, Rejected, text_of
from hbasemk.store.hbase.connections import PoolIsFull, Use
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
            raise ClosedError(f"the store at HBase gateway {self._at} is closed; open it again")

    def verify_gateways(self) -> None:
        """Raise StoreUnusableError if one of several gateways is not a Thrift2 gateway."""
        self._gateways.verify()

    def call(self, method: Method, request: Any, table: bytes, timeout: float | None = None) -> Any:
        """Make a call and return its result; ``table`` is the full name, for messages.

        If the call cannot have been applied at one gateway, it moves on to the next, within the same deadline. Raises
        StoreError or ClosedError.
        """
        begun = self.clock()
        deadline = begun + (self._timeout if timeout is None else timeout)
        tried: list[Gateway] = []
        full: Gateway | None = None
        refusals: list[StoreError] = []
        while True:
            gateway = self._gateways.next(tried, full)
            if gateway is None:
                raise errors.from_all(refusals) from refusals[-1].__cause__
            tried.append(gateway)
            try:
                reply = self._call_at(gateway, method, request, table, deadline)
                break
            except PoolIsFull:
                full = tried.pop()
            except (StoreNotAppliedError, StoreUnusableError) as error:
                refusals.append(error)
                if self.clock() >= deadline:
                    raise
        return self._result(gateway, method, reply, table)

    def _call_at(self, gateway: Gateway, method: Method, request: Any, table: bytes, deadline: float) -> Any:
        """Return a gateway's reply.

        The gateway may have just closed a pooled connection. If the call cannot have been applied, it is then retried
        once on another connection.
        """
        repeatable = True
        while True:
            use = Use()
            try:
                answered, reply = self._call_once(gateway, method, request, table, deadline, use, repeatable)
            finally:
                # Only an interrupted call still holds its connection here.
                gateway.pool.end(use)
            if answered:
                gateway.succeeded()
                return reply
            repeatable = False

    def _call_once(
        self, gateway: Gateway, method: Method, request: Any, table: bytes, deadline: float, use: Use, repeatable: bool
    ) -> tuple[bool, Any]:
        """Return whether the gateway answered, and the answer; without an answer the call can be retried."""
        begun = self.clock()
        connection = gateway.pool.take(deadline, use, patient=not self._gateways.are_several)
        # The first call on a connection is the handshake; a pooled connection has made more.
        pooled = connection.calls > 1
        try:
            reply = connection.call(method, request, deadline)
        except Rejected as error:
            gateway.pool.give(connection, use)
            raise errors.from_gateway(str(error), _where(gateway, method, table), method.effect) from None
        except Exception as error:
            gateway.pool.end(use)
            where = _where(gateway, method, table)
            harmless = not (connection.sent and method.effect)
            if gateway.pool.closed:
                raise _closed(where, harmless) from error
            timed_out = isinstance(error, TimeoutError)
            broken = isinstance(error, (OSError, EOFError)) and not timed_out
            if broken and harmless and pooled and repeatable:
                return False, None
            if _is_callers_error(error, connection):
                raise
            gateway.failed(error, begun, waited_in_vain=timed_out)
            raise errors.from_connection(
                error, where, effect=method.effect, sent=connection.sent, seconds=self.clock() - begun
            ) from error
        gateway.pool.give(connection, use)
        return True, reply

    def _result(self, gateway: Gateway, method: Method, reply: Any, table: bytes) -> Any:
        if reply.error is not None:
            raise errors.from_hbase(
                text_of(reply.error.message), _where(gateway, method, table), table.decode(), method.effect
            )
        if not method.returns:
            return None
        if reply.success is None:
            raise errors.from_gateway("an answer without a result", _where(gateway, method, table), method.effect)
        return reply.success

    def close(self) -> None:
        """Close all connections, including those with running calls. Idempotent."""
        self._gateways.close()


def _where(gateway: Gateway, method: Method, table: bytes) -> str:
    return f"{gateway.about}, {method.name} on table {table.decode()!r}"


def _closed(where: str, harmless: bool) -> ClosedError | StoreError:
    if harmless:
        return ClosedError(f"{where}: the store is closed; open it again")
    return StoreUnknownError(
        f"{where}: the store was closed before the gateway answered; the call may or may not have been applied"
    )


def _is_callers_error(error: Exception, connection: Connection) -> bool:
    """Return whether the caller passed a value that cannot be sent; the connection is not to blame."""
    return not connection.sent and not isinstance(error, (OSError, EOFError))
