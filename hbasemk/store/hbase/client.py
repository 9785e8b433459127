"""Calls to the gateway: a pooled connection, one deadline for everything, and errors that state the known outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from hbasemk.errors import ClosedError, StoreError, StoreUnknownError
from hbasemk.store.hbase import errors
from hbasemk.store.hbase.connection import Connection, Rejected, Wire, text_of
from hbasemk.store.hbase.connections import Connections, Use
from hbasemk.store.hbase.gateway import Method
from hbasemk.store.hbase.handshake import open_connection

CONNECT_SECONDS: Final = 10.0


class Client:
    """A client of HBase's Thrift2 gateway at one address; any number of threads may share it.

    ``timeout`` bounds a call in seconds. It includes the wait for a connection, opening one, and a retry. Connecting
    alone takes at most ``connect_timeout``. ``clock`` is a monotonic clock in seconds.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float,
        pool_size: int,
        connect_timeout: float = CONNECT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self.port = port
        self.clock = clock
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._at = f"HBase gateway at {host}:{port}"
        self._pool = Connections(self._open, pool_size, clock, self._at)

    def _open(self, deadline: float, register: Callable[[Wire], None]) -> Connection:
        soonest = min(deadline, self.clock() + self._connect_timeout)
        return open_connection(self.host, self.port, soonest, self.clock, register)

    def check_open(self) -> None:
        """Raise ClosedError after :meth:`close`."""
        if self._pool.closed:
            raise ClosedError(f"the store at {self._at} is closed; open it again")

    def call(self, method: Method, request: Any, table: bytes, timeout: float | None = None) -> Any:
        """Make a call and return its result; ``table`` is the full name, for messages.

        The gateway may have just closed a pooled connection. If the call cannot have been applied, the client then
        retries it once on another connection, within the same deadline. Raises StoreError or ClosedError.
        """
        begun = self.clock()
        deadline = begun + (self._timeout if timeout is None else timeout)
        repeatable = True
        while True:
            use = Use()
            try:
                answered, reply = self._call_once(method, request, table, deadline, begun, use, repeatable)
            finally:
                # Only an interrupted call still holds its connection here.
                self._pool.end(use)
            if answered:
                return self._result(method, reply, table)
            repeatable = False

    def _call_once(
        self, method: Method, request: Any, table: bytes, deadline: float, begun: float, use: Use, repeatable: bool
    ) -> tuple[bool, Any]:
        """Return whether the gateway answered, and the answer; without an answer the call can be retried."""
        connection = self._pool.take(deadline, use)
        # The first call on a connection is the handshake; a pooled connection has made more.
        pooled = connection.calls > 1
        try:
            reply = connection.call(method, request, deadline)
        except Rejected as error:
            self._pool.give(connection, use)
            raise errors.from_gateway(str(error), self._where(method, table), method.effect) from None
        except Exception as error:
            self._pool.end(use)
            harmless = not (connection.sent and method.effect)
            if self._pool.closed:
                raise self._closed(method, table, harmless) from error
            broken = isinstance(error, (OSError, EOFError)) and not isinstance(error, TimeoutError)
            if broken and harmless and pooled and repeatable:
                return False, None
            if _is_callers_error(error, connection):
                raise
            raise errors.from_connection(
                error,
                self._where(method, table),
                effect=method.effect,
                sent=connection.sent,
                seconds=self.clock() - begun,
            ) from error
        self._pool.give(connection, use)
        return True, reply

    def _result(self, method: Method, reply: Any, table: bytes) -> Any:
        if reply.error is not None:
            raise errors.from_hbase(
                text_of(reply.error.message), self._where(method, table), table.decode(), method.effect
            )
        if not method.returns:
            return None
        if reply.success is None:
            raise errors.from_gateway("an answer without a result", self._where(method, table), method.effect)
        return reply.success

    def _closed(self, method: Method, table: bytes, harmless: bool) -> ClosedError | StoreError:
        if harmless:
            return ClosedError(f"{self._where(method, table)}: the store is closed; open it again")
        return StoreUnknownError(
            f"{self._where(method, table)}: the store was closed before the gateway answered; the call may or may not "
            "have been applied"
        )

    def _where(self, method: Method, table: bytes) -> str:
        return f"{self._at}, {method.name} on table {table.decode()!r}"

    def close(self) -> None:
        """Close all connections, including those with running calls. Idempotent."""
        self._pool.close()


def _is_callers_error(error: Exception, connection: Connection) -> bool:
    """Return whether the caller passed a value that cannot be sent; the connection is not to blame."""
    return not connection.sent and not isinstance(error, (OSError, EOFError))
