"""One connection to a gateway: a socket with a deadline, and calls in sequence.

One thread uses a connection at a time. If :meth:`Connection.call` raises an exception other than ``Rejected``, the
caller must drop the connection: an answer may still arrive, and the next call would mistake it for its own.
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
    """Return the text of a message field, which holds undecoded bytes or None."""
    return bytes(message).decode(errors="replace") if message else ""


class Rejected(Exception):
    """The gateway answered that it could not process the call; the connection remains usable."""


class UnexpectedAnswer(Exception):
    """The answer does not belong to the call."""


class Wire:
    """A transport for thriftpy2: a socket whose every operation ends by ``deadline`` (on ``clock``, in seconds).

    ``head`` holds the first bytes received, to identify the server.
    """

    __slots__ = ("_armed", "_clock", "_first_read", "_poll", "deadline", "head", "moved", "sock")

    def __init__(self, sock: socket.socket, clock: Callable[[], float]) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock = sock
        self.deadline = 0.0
        self.head = b""
        self.moved = 0
        self._clock = clock
        self._armed = -1.0
        self._first_read = True
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def start(self, deadline: float) -> None:
        """Begin a call that must end by ``deadline``."""
        self.deadline = deadline
        self.moved = 0
        self._first_read = True

    def _arm(self) -> None:
        left = self.deadline - self._clock()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        # Setting the timeout costs more than reading the clock, and most calls have the same timeout.
        if not -_SLACK < left - self._armed < _SLACK:
            self.sock.settimeout(left)
            self._armed = left

    def write(self, data: bytes) -> None:
        """Send all bytes."""
        self._arm()
        self.sock.sendall(data)
        self.moved += len(data)

    def read(self, size: int) -> bytes:
        """Read 1 to ``size`` bytes; raises EOFError when the other end has closed."""
        self._arm()
        # recv() allocates the whole size: after a large answer the buffer requests megabytes where little follows.
        data = self.sock.recv(min(size, BUFFER if self._first_read else _STEP))
        self._first_read = False
        if not data:
            raise EOFError("the gateway closed the connection")
        if not self.head:
            self.head = data[:64]
        self.moved += len(data)
        return data

    def flush(self) -> None:
        """Do nothing; this transport does not buffer."""

    def is_quiet(self) -> bool:
        """Return whether nothing arrived unrequested; bytes or an end of stream make a connection useless."""
        return not self._poll.poll(0)

    def shut_down(self) -> None:
        """Shut down the socket, from any thread; a thread that waits for an answer gets EOFError."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the descriptor; does not notify the other end if another process also holds the socket."""
        self.sock.close()


class Connection:
    """Calls on one wire; ``used`` is the time when the last call ended, ``calls`` their number with the handshake."""

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
        """Whether the last call was so large that its buffers should be released."""
        return self.wire.moved > LARGE

    def call(self, method: Method, request: Any, deadline: float) -> Any:
        """Send a request and return the reply.

        Afterwards ``sent`` is whether the whole request was handed to the system: if not, the gateway cannot have acted
        on it. Raises OSError (including TimeoutError), EOFError, Rejected, UnexpectedAnswer, and thriftpy2's exceptions
        for invalid values and answers.
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
                raise Rejected(text)
            raise UnexpectedAnswer(text)
        if answered != number or name != method.name:
            raise UnexpectedAnswer(f"the answer to {name} number {answered} came for {method.name} number {number}")
        reply = method.reply()
        protocol.read_struct(reply)
        self.calls += 1
        return reply
