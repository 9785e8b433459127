"""A socket whose every operation ends by a deadline."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from typing import Final

BUFFER: Final = 64 * 1024
_STEP: Final = 1024 * 1024
_SLACK: Final = 0.05


class UnexpectedAnswer(Exception):
    """The answer does not belong to the call."""


class HttpStatus(UnexpectedAnswer):
    """An answer with another status than 200."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"HTTP status {status} {reason[:60]}")
        self.status = status


class Wire:
    """A transport for thriftpy2: a socket whose every operation ends by ``deadline`` (on ``clock``, in seconds).

    ``head`` holds the first bytes received, to identify the server. ``ended`` is whether the server carries no other request
    on this connection. What is written while ``more`` is true is sent together with the next write, so it is not sent if an
    error prevents that; ``sent_kept`` is whether it may have been sent since :meth:`start`. ``was_shut_down`` is whether this
    process has ended the connection, by :meth:`shut_down`.
    """

    __slots__ = (
        "_armed",
        "_clock",
        "_first_read",
        "_kept",
        "_poll",
        "deadline",
        "ended",
        "head",
        "more",
        "moved",
        "sent_kept",
        "sock",
        "was_shut_down",
    )

    def __init__(self, sock: socket.socket, clock: Callable[[], float]) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock = sock
        self.deadline = 0.0
        self.head = b""
        self.ended = False
        self.moved = 0
        self.more = False
        self.sent_kept = False
        self.was_shut_down = False
        self._kept: list[bytes] = []
        self._clock = clock
        self._armed = -1.0
        self._first_read = True
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def start(self, deadline: float) -> None:
        """Begin a call that must end by ``deadline``."""
        self.deadline = deadline
        self.moved = 0
        self.sent_kept = False
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
        """Send all bytes, after those that were kept; keep them if more follow."""
        if self.more:
            self._kept.append(data)
            return
        self._arm()
        if self._kept:
            data = b"".join((*self._kept, data))
            self._kept.clear()
            self.sent_kept = True
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
        self.was_shut_down = True
        with contextlib.suppress(OSError):
            # SSLSocket.shutdown() also removes the state that a thread in recv() uses.
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the descriptor; does not notify the other end if another process also holds the socket."""
        self.sock.close()
