"""One connection to a gateway: a socket with a deadline, and calls on it one after the other.

A connection is used by one thread at a time. Whoever gets an exception from :meth:`Connection.call` other than
``Refused`` must drop the connection: an answer may still be on its way, and the next call would take it for its own.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from typing import Any, Final

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TCyBufferedTransport

from hbasemk.store.hbase.gateway import Method

BUFFER: Final = 64 * 1024
LARGE: Final = 4 * 1024 * 1024
_STEP: Final = 1024 * 1024
_SLACK: Final = 0.05
_MAX_NUMBER: Final = 2**31 - 1


def text_of(message: Any) -> str:
    """A text that came in a message: bytes, as nothing is decoded on the way, or None."""
    return bytes(message).decode(errors="replace") if message else ""


class Refused(Exception):
    """The gateway answered that it could not process the call; the connection stays in step."""


class OutOfStep(Exception):
    """What came back is not the answer to what was asked."""


class Wire:
    """The bytes' way: a socket whose every operation ends by ``deadline`` (on ``clock``, in seconds).

    It is what thriftpy2 calls a transport. ``head`` are the first bytes that ever came, to name who is speaking.
    """

    __slots__ = ("_armed", "_clock", "_fresh", "_poll", "deadline", "head", "moved", "sock")

    def __init__(self, sock: socket.socket, clock: Callable[[], float]) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock = sock
        self.deadline = 0.0
        self.head = b""
        self.moved = 0
        self._clock = clock
        self._armed = -1.0
        self._fresh = True
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def start(self, deadline: float) -> None:
        """Begin a call that must end by ``deadline``."""
        self.deadline = deadline
        self.moved = 0
        self._fresh = True

    def _arm(self) -> None:
        left = self.deadline - self._clock()
        if left <= 0:
            raise TimeoutError("the time is up")
        # Setting the timeout costs more than reading the clock, and most calls have the same one.
        if not -_SLACK < left - self._armed < _SLACK:
            self.sock.settimeout(left)
            self._armed = left

    def write(self, data: bytes) -> None:
        """Send everything."""
        self._arm()
        self.sock.sendall(data)
        self.moved += len(data)

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes, at least one; EOFError when the other end has closed."""
        self._arm()
        # Python allocates what may come: after a large answer the buffer asks for megabytes where little follows.
        data = self.sock.recv(min(size, BUFFER if self._fresh else _STEP))
        self._fresh = False
        if not data:
            raise EOFError("the gateway closed the connection")
        if not self.head:
            self.head = data[:64]
        self.moved += len(data)
        return data

    def flush(self) -> None:
        """Nothing is kept back here."""

    def quiet(self) -> bool:
        """Whether nothing has come unasked; bytes or an end of stream make a connection useless."""
        return not self._poll.poll(0)

    def cut(self) -> None:
        """End the conversation from any thread; who waits for an answer gets EOFError."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptor back. Says nothing to the other end if another process holds the socket, too."""
        self.sock.close()


class Connection:
    """Calls on one wire. ``used`` is when the last call ended, ``calls`` their number, the greeting included."""

    __slots__ = ("_number", "_protocol", "_transport", "calls", "sent", "used", "wire")

    def __init__(self, wire: Wire, used: float) -> None:
        self.wire = wire
        self.used = used
        self.calls = 0
        self.sent = False
        self._number = 0
        self._transport = TCyBufferedTransport(wire, BUFFER)
        self._protocol = TCyBinaryProtocol(self._transport, decode_response=False)

    @property
    def bloated(self) -> bool:
        """Whether the last call was so large that its buffers are better given back."""
        return self.wire.moved > LARGE

    def call(self, method: Method, request: Any, deadline: float) -> Any:
        """Send a request and return the reply.

        ``sent`` tells afterwards whether the whole request was handed to the system: if not, the gateway cannot have
        acted on it. Raises OSError (TimeoutError, too), EOFError, Refused, OutOfStep, and what thriftpy2 raises for
        values and answers that do not fit.
        """
        protocol = self._protocol
        number = self._number = self._number + 1 if self._number < _MAX_NUMBER else 1
        self.sent = False
        self.wire.start(deadline)
        protocol.write_message_begin(method.name, TMessageType.CALL, number)
        protocol.write_struct(request)
        self._transport.flush()
        self.sent = True
        name, kind, answered = protocol.read_message_begin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            protocol.read_struct(failure)
            text = text_of(failure.message) or f"type {failure.type}"
            if failure.type == TApplicationException.INTERNAL_ERROR and answered == number:
                self.calls += 1
                raise Refused(text)
            raise OutOfStep(text)
        if answered != number or name != method.name:
            raise OutOfStep(f"the answer to {name} number {answered} came for {method.name} number {number}")
        reply = method.reply()
        protocol.read_struct(reply)
        self.calls += 1
        return reply
