"""A fake gateway that speaks the real protocol; a script decides the answer to each call."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TSocket

from hbasemk.store.hbase import Transport
from hbasemk.store.hbase.gateway import THRIFT2, idl
from hbasemk.store.hbase.wire import Wire


class Clock:
    """A monotonic clock that a test can advance, and stop: then only the test moves it."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._stopped_at: float | None = None

    def stop(self) -> None:
        """Stand still from now on, except for what the test adds."""
        self._stopped_at = time.monotonic()

    def __call__(self) -> float:
        return (time.monotonic() if self._stopped_at is None else self._stopped_at) + self.ahead


class Close(Exception):
    """A script raises this to close the connection instead of answering."""


class ReceivedCall(NamedTuple):
    """A received call; connections are counted from 0, and handshakes are not recorded."""

    connection: int
    method: str
    request: Any


class FakeGateway:
    """Answers ``get`` with one cell that holds the row's key, and everything else with success.

    ``script(received)`` may return other bytes to send in place of the answer, raise Close, or wait. ``kind`` is what the
    handshake is answered with.
    """

    def __init__(self, listener: socket.socket, transport: Transport, context: ssl.SSLContext | None) -> None:
        self.port: int = listener.getsockname()[1]
        self.kind: int | Callable[[], int] = THRIFT2
        self.script: Callable[[ReceivedCall], bytes | None] = lambda received: None
        self.received: list[ReceivedCall] = []
        self.ended: list[int] = []
        self.connections: list[socket.socket] = []
        self.stopping = threading.Event()
        self._listener = listener
        self._transport = transport
        self._context = context
        self._changed = threading.Condition()

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for something to be so."""
        with self._changed:
            assert self._changed.wait_for(reached, 30)

    def _note(self, into: list[Any], what: Any) -> None:
        with self._changed:
            into.append(what)
            self._changed.notify_all()

    def serve(self) -> None:
        """Accept connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                number = len(self.connections)
                self._note(self.connections, sock)
                threading.Thread(target=self._serve_one, args=(sock, number), daemon=True).start()

    def _serve_one(self, sock: socket.socket, number: int) -> None:
        with contextlib.suppress(Exception), sock:
            if self._context is None:
                self._converse(sock, number)
            else:
                with self._context.wrap_socket(sock, server_side=True) as secure:
                    self.connections[number] = secure
                    self._converse(secure, number)
        self._note(self.ended, number)

    def _converse(self, sock: socket.socket, connection: int) -> None:
        transport, protocol = self._transport.on(cast(Wire, TSocket(sock=sock)))
        while True:
            method, _, number = protocol.read_message_begin()
            request = getattr(idl.Gateway, f"{method}_args")()
            protocol.read_struct(request)
            instead = None
            if method != "getThriftServerType":
                received = ReceivedCall(connection, method, request)
                self._note(self.received, received)
                instead = self.script(received)
            if instead is not None:
                sock.sendall(instead)
                continue
            reply = self._reply(method, request)
            kind = TMessageType.EXCEPTION if isinstance(reply, TApplicationException) else TMessageType.REPLY
            protocol.write_message_begin(method, kind, number)
            protocol.write_struct(reply)
            transport.flush()

    def _reply(self, method: str, request: Any) -> Any:
        reply = getattr(idl.Gateway, f"{method}_result")()
        if method == "getThriftServerType":
            reply.success = self.kind() if callable(self.kind) else self.kind
        elif method == "get":
            row = request.what.row
            if row.startswith(b"fails "):
                return TApplicationException(int(row.split()[1]), "Internal error processing get")
            reply.success = idl.Result(row, [idl.ColumnValue(b"d", b"q", row, 1)])
        elif method == "checkAndPut":
            reply.success = True
        elif method == "getMultiple":
            reply.success = [idl.Result(get.row, []) for get in request.what]
        elif method in {"getScannerResults", "deleteMultiple", "getTableDescriptors"}:
            reply.success = []
        return reply


@contextmanager
def fake_gateway(transport: Transport | None = None, context: ssl.SSLContext | None = None) -> Iterator[FakeGateway]:
    """Run a misbehaving gateway on a free port of this machine; with a context it uses TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = FakeGateway(listener, transport or Transport(), context)
        thread = threading.Thread(target=made.serve, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.stopping.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            for sock in made.connections:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@contextmanager
def speaker(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Something that is no gateway: ``answer`` gets each connection, which is closed when it returns. Yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    threading.Thread(target=one, args=(sock,), daemon=True).start()

        def one(sock: socket.socket) -> None:
            with contextlib.suppress(OSError), sock:
                answer(sock)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
