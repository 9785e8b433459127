"""Gateways with HTTP: connections, cut answers, and errors that name the status."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport.memory import TCyMemoryBuffer

from hbasemk.errors import (
    ClosedError,
    StoreNotAppliedError,
    StoreUnknownError,
    StoreUnusableError,
)
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore, Transport
from hbasemk.store.hbase.gateway import SERVER_TYPE, THRIFT2, idl
from hbasemk.store.hbase.handshake import open_connection
from hbasemk.store.hbase.wire import Wire
from tests.support.certificates import Authority
from tests.support.gateway import FakeGateway, fake_gateway
from tests.support.gateway_stores import PLAIN, PUT, error_of, errors_of_closing, gateways_of, read

Open = Callable[..., HBaseStore]


class HttpGateway(ThreadingHTTPServer):
    """A fake gateway with HTTP, which answers like `FakeGateway`.

    With ``context`` it uses TLS, and ``heads`` has the first bytes of each connection. While ``go_on`` is not set, it answers
    handshakes only; ``waits`` is set when another call has arrived.
    """

    daemon_threads = True

    def __init__(self, fake: FakeGateway) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fake = fake
        self.port: int = self.server_address[1]
        self.status = 200
        self.close_after_each = False
        self.cut = False
        self.paths: list[str] = []
        self.accepted = 0
        self.context: ssl.SSLContext | None = None
        self.heads: list[bytes] = []
        self.waits = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def get_request(self) -> tuple[socket.socket, Any]:
        sock, address = super().get_request()
        if self.context is not None:
            self.heads.append(sock.recv(2, socket.MSG_PEEK))
            sock = self.context.wrap_socket(sock, server_side=True)
        return sock, address

    def handle_error(self, *_: object) -> None:
        """Print nothing."""

    def process_request(self, request: Any, address: Any) -> None:
        self.accepted += 1
        super().process_request(request, address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpGateway

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        protocol = TCyBinaryProtocol(
            TCyMemoryBuffer(self.rfile.read(int(self.headers["Content-Length"]))), decode_response=False
        )
        method, _, number = protocol.read_message_begin()
        request = getattr(idl.Gateway, f"{method}_args")()
        protocol.read_struct(request)
        self.server.paths.append(self.path)
        buffer = TCyMemoryBuffer()
        answer = TCyBinaryProtocol(buffer)
        answer.write_message_begin(method, TMessageType.REPLY, number)
        answer.write_struct(self.server.fake._reply(method, request))
        body = buffer.getvalue()
        is_handshake = method == "getThriftServerType"
        if not is_handshake:
            self.server.waits.set()
            self.server.go_on.wait(10)
        self.send_response(200 if is_handshake and self.server.status != 401 else self.server.status)
        self.send_header("Content-Length", str(len(body)))
        if self.server.close_after_each:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.server.cut and not is_handshake:
            self.wfile.write(body[:5])
            self.close_connection = True
        else:
            self.wfile.write(body)


@pytest.fixture
def http() -> Iterator[HttpGateway]:
    with fake_gateway() as fake:
        fake.kind = THRIFT2
        server = HttpGateway(fake)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join(10)
        server.server_close()


def test_calls_over_http_share_a_connection(http: HttpGateway, open_over: Open) -> None:
    store = open_over(http.port, Transport("http", path="/some/path"))
    for _ in range(10):
        read(store)
    store.write("t", [Put(b"r", [NewCell(b"d", b"q", bytes(5_000_000))])])
    read(store, bytes(32_000))
    assert store.check_and_write("t", (b"d", b"q"), None, PUT) is True
    assert set(http.paths) == {"/some/path"}
    assert http.accepted <= 2  # the large request's buffers are released with its connection


def test_a_connection_that_the_server_will_close_is_not_reused(http: HttpGateway, open_over: Open) -> None:
    store = open_over(http.port, Transport("http"))
    read(store)
    http.close_after_each = True
    read(store)
    assert http.accepted == 1
    store.write("t", [PUT])
    store.write("t", [PUT])
    # Each write needs two connections: one carries the handshake, the other one the write.
    assert http.accepted == 5
    assert len(gateways_of(store)[0].pool._mine().wires) == 1


def test_a_call_after_a_handshake_that_ended_its_connection_has_a_deadline(http: HttpGateway, open_over: Open) -> None:
    store = open_over(http.port, Transport("http"), timeout=1)
    http.close_after_each = True
    http.go_on.clear()
    with pytest.raises(StoreNotAppliedError):
        read(store)


def test_closing_ends_a_call_after_a_handshake_that_ended_its_connection(http: HttpGateway, open_over: Open) -> None:
    store = open_over(http.port, Transport("http"), timeout=30)
    http.close_after_each = True
    http.go_on.clear()

    def wait_until_begun() -> None:
        assert http.waits.wait(30)

    assert errors_of_closing(store, wait_until_begun) == [ClosedError]


def test_a_call_after_a_handshake_that_ended_its_connection_uses_tls(
    http: HttpGateway, open_over: Open, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    http.context = authority.server_context("127.0.0.1")
    http.close_after_each = True
    store = open_over(http.port, Transport("http", tls=True, ca_file=authority.file))
    try:
        store.write("t", [PUT])
        read(store)
    finally:
        assert http.heads == [b"\x16\x03"] * 4


def test_no_request_leaves_on_a_connection_that_the_server_closes(http: HttpGateway) -> None:
    http.close_after_each = True
    wires: list[Wire] = []
    deadline = time.monotonic() + 30
    connection = open_connection(
        Address("127.0.0.1", http.port), Transport("http"), deadline, time.monotonic, wires.append
    )
    assert [wire.sock.fileno() >= 0 for wire in wires] == [False, True]
    # It is as new as a connection after its handshake.
    assert connection.calls == 1
    assert connection.call(SERVER_TYPE, SERVER_TYPE.request(), deadline).success == THRIFT2
    with pytest.raises(ConnectionError):
        connection.call(SERVER_TYPE, SERVER_TYPE.request(), deadline)
    assert not connection.sent
    assert http.accepted == 2
    connection.wire.close()


def test_an_answer_that_is_cut_is_not_applied_for_reads_and_unknown_for_writes(
    http: HttpGateway, open_over: Open
) -> None:
    store = open_over(http.port, Transport("http"))
    http.cut = True
    with pytest.raises(StoreNotAppliedError, match="closed the connection"):
        read(store)
    with pytest.raises(StoreUnknownError, match="closed the connection"):
        store.write("t", [PUT])
    http.cut = False
    read(store)


@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_a_status_is_an_error_that_names_it(status: int, http: HttpGateway, open_over: Open) -> None:
    store = open_over(http.port, Transport("http"))
    http.status = status
    error = error_of(store)
    assert f"127.0.0.1:{http.port}" in error.message
    assert f"HTTP status {status}" in error.message or status == 401
    if status == 401:
        assert isinstance(error, StoreUnusableError)
        assert "requires a login" in error.message
    else:
        # The proxy that answered may have passed the request on.
        assert isinstance(error, StoreUnknownError)


def test_a_server_without_http_is_named(open_over: Open) -> None:
    for framing, protocol in PLAIN:
        transport = Transport(framing, protocol)  # type: ignore[arg-type]
        with fake_gateway(transport) as gateway:
            error = error_of(open_over(gateway.port, Transport("http"), connect_timeout=1))
            assert f"127.0.0.1:{gateway.port}" in error.message
            assert isinstance(error, (StoreUnusableError, StoreNotAppliedError))
