"""Requests on one connection of a gateway, their replies, and errors that state the known outcome.

A gateway processes the requests of one connection in their order: it reads a request after it has answered the one before.
So a request that is sent before the reply to an earlier one arrives still takes effect after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from hbasemk.errors import ClosedError, StoreError, StoreUnknownError
from hbasemk.store.hbase import errors
from hbasemk.store.hbase.connection import Connection, Rejected, text_of
from hbasemk.store.hbase.connections import Use
from hbasemk.store.hbase.failover import Gateway
from hbasemk.store.hbase.gateway import Method


def _as_it_is(result: Any) -> Any:
    return result


class Request(NamedTuple):
    """A call of a method; ``table`` is the full name, for messages.

    ``convert`` makes of the method's result what the caller gets. It raises AttributeError or ValueError if the result lacks a
    part.
    """

    method: Method
    message: Any
    table: bytes
    convert: Callable[[Any], Any] = _as_it_is


class StaleConnection(Exception):
    """The gateway had closed a pooled connection, and no request can have been applied."""


class Exchange:
    """Sends requests on one connection, then reads their replies. The caller must always call :meth:`end`.

    ``repeatable``: raise StaleConnection where a repetition on another connection may succeed.
    """

    __slots__ = (
        "_begun",
        "_clock",
        "_connection",
        "_deadline",
        "_gateway",
        "_pooled",
        "_repeatable",
        "_requests",
        "_use",
    )

    _connection: Connection

    def __init__(
        self,
        gateway: Gateway,
        requests: Sequence[Request],
        deadline: float,
        clock: Callable[[], float],
        *,
        repeatable: bool,
    ) -> None:
        self._gateway = gateway
        self._requests = requests
        self._deadline = deadline
        self._clock = clock
        self._repeatable = repeatable
        self._begun = 0.0
        self._pooled = False
        self._use = Use()

    def send(self, *, patient: bool) -> None:
        """Take a connection, as :meth:`Connections.take` does, and send all requests."""
        self._begun = self._clock()
        connection = self._connection = self._gateway.pool.take(self._deadline, self._use, patient=patient)
        # The first call on a connection is the handshake; a pooled connection has made more.
        self._pooled = connection.calls > 1
        try:
            connection.start(self._deadline)
            last = self._requests[-1]
            for request in self._requests:
                connection.send(request.method, request.message, more=request is not last)
        except Exception as error:
            self._fail(error, self._requests[0])

    def receive(self) -> list[Any]:
        """Return the replies, and the connection to its pool."""
        replies: list[Any] = []
        try:
            for request in self._requests:
                replies.append(self._connection.receive(request.method))  # noqa: PERF401 - an error needs their number
        except Rejected as error:
            if self._connection.is_answered:
                self._gateway.pool.give(self._connection, self._use)
            where = _where(self._gateway, self._requests[len(replies)])
            raise errors.from_gateway(str(error), where, _have_effect(self._requests)) from None
        except Exception as error:
            self._fail(error, self._requests[len(replies)])
        self._gateway.pool.give(self._connection, self._use)
        self._gateway.succeeded()
        return replies

    def end(self) -> None:
        """Close a connection that was not returned: it is in the middle of a call."""
        self._gateway.pool.end(self._use)

    def _fail(self, error: Exception, request: Request) -> NoReturn:
        """Close the connection, and raise the error of the store, or what a signal handler has raised."""
        self.end()
        if errors.is_foreign(error):
            raise error
        where = _where(self._gateway, request)
        effect = _have_effect(self._requests)
        sent = self._connection.sent
        harmless = not (sent and effect)
        if self._gateway.pool.closed:
            raise _closed(where, harmless) from error
        timed_out = isinstance(error, TimeoutError)
        broken = isinstance(error, (OSError, EOFError))
        if broken and not timed_out and harmless and self._pooled and self._repeatable:
            raise StaleConnection from error
        if not sent and not broken:
            # The caller passed a value that cannot be sent; the connection is not to blame.
            raise error
        self._gateway.failed(error, self._begun, waited_in_vain=timed_out)
        seconds = self._clock() - self._begun
        raise errors.from_connection(error, where, effect=effect, sent=sent, seconds=seconds) from error


def results(gateway: Gateway, requests: Sequence[Request], replies: Sequence[Any]) -> list[Any]:
    """Return the results of requests; raise the error of the first one that HBase refused, or whose answer lacks a part."""
    found: list[Any] = []
    for request, reply in zip(requests, replies, strict=True):
        method, _, table, convert = request
        if reply.error is not None:
            text = text_of(reply.error.message)
            raise errors.from_hbase(text, _where(gateway, request), table.decode(), _have_effect(requests))
        success = reply.success if method.returns else None
        if method.returns and success is None:
            raise errors.from_gateway("an answer without a result", _where(gateway, request), _have_effect(requests))
        try:
            found.append(convert(success))
        except (AttributeError, ValueError) as error:
            where = _where(gateway, request)
            raise errors.from_gateway(f"an incomplete answer: {error}", where, _have_effect(requests)) from error
    return found


def _have_effect(requests: Sequence[Request]) -> bool:
    return any(request.method.effect for request in requests)


def _where(gateway: Gateway, request: Request) -> str:
    return f"{gateway.about}, {request.method.name} on table {request.table.decode()!r}"


def _closed(where: str, harmless: bool) -> ClosedError | StoreError:
    if harmless:
        return ClosedError(f"{where}: the store is closed; open the repository again with connect()")
    return StoreUnknownError(
        f"{where}: the store was closed before the gateway answered; the call may or may not have been applied"
    )
