"""Requests and answers over HTTP, as HBase's gateway with hbase.regionserver.thrift.http expects them."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from http.client import HTTPConnection, IncompleteRead
from typing import Any, Final

from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.wire import HttpStatus, Wire

_HEADERS: Final = {"Content-Type": "application/x-thrift", "Accept": "application/x-thrift"}


class HttpWire(Wire):
    """A wire that sends each request by POST, and reads from the body of the answer."""

    __slots__ = ("_answer", "_asked", "_http", "_path", "_request")

    def __init__(self, sock: socket.socket, clock: Callable[[], float], address: Address, path: str) -> None:
        super().__init__(sock, clock)
        self._http: Any = HTTPConnection(address.host, address.port)
        # It must not connect by itself: such a socket has no deadline and no TLS, and the pool cannot close it.
        self._http.auto_open = 0
        self._http.sock = _Socket(super().write, super().read)
        self._path = path
        self._request: list[bytes] = []
        self._answer = io.BytesIO()
        self._asked = False

    def write(self, data: bytes) -> None:
        """Keep a part of the request."""
        self._request.append(data)

    def flush(self) -> None:
        """Send the request; raises ConnectionError if the server closes the connection after its last answer."""
        body = b"".join(self._request)
        self._request.clear()
        if self.ended:
            raise ConnectionError("the gateway closed the connection")
        self._answer = io.BytesIO()
        self._asked = True
        self._http.request("POST", self._path, body, _HEADERS)

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes of the answer; raises EOFError at its end."""
        if self._asked:
            self._asked = False
            self._answer = io.BytesIO(self._receive())
        data = self._answer.read(size)
        if not data:
            raise EOFError("the answer ended too soon")
        return data

    def _receive(self) -> bytes:
        try:
            response = self._http.getresponse()
            self.ended = response.will_close
            body: bytes = response.read()
        except IncompleteRead:
            raise EOFError("the gateway closed the connection") from None
        if response.status != 200:
            raise HttpStatus(response.status, response.reason)
        return body

    def is_quiet(self) -> bool:
        """Return whether the connection can carry another request."""
        return not self.ended and super().is_quiet()


class _Socket:
    """The parts of a socket that http.client uses, within the deadline of a wire."""

    def __init__(self, send: Callable[[bytes], None], receive: Callable[[int], bytes]) -> None:
        self.sendall = send
        self._receive = receive

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 - always "rb"
        return io.BufferedReader(_Raw(self._receive))

    def close(self) -> None:
        """Do nothing: the pool closes the wire."""


class _Raw(io.RawIOBase):
    def __init__(self, receive: Callable[[int], bytes]) -> None:
        super().__init__()
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._receive(len(buffer))
        except EOFError:
            return 0
        buffer[: len(data)] = data
        return len(data)
