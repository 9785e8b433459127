"""An error at opening names the server at the address of a gateway, if it is not a Thrift2 gateway."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable

import pytest

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnusableError
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore, handshake
from hbasemk.store.hbase.gateway import THRIFT1
from tests.support.gateway import fake_gateway, speaker

TYPE = b"getThriftServerType"
THRIFT2_REPLY = b"\x80\1\0\2\0\0\0\x13" + TYPE + b"\0\0\0\1\x08\0\0\0\0\0\2\0"
UNKNOWN_METHOD = b"\x80\1\0\3\0\0\0\x13" + TYPE + b"\0\0\0\1\x0b\0\1\0\0\0\7unknown\x08\0\2\0\0\0\1\0"


def error_at(port: int, timeout: float = 60.0) -> StoreError:
    """The error of a write to a store there: one that tried too much would call it unknown."""
    store = HBaseStore([Address("127.0.0.1", port)], timeout=timeout)
    try:
        with pytest.raises(StoreError, match=f"127.0.0.1:{port}") as raised:
            store.write("t", [Put(b"r", [NewCell(b"d", b"q", b"x")])])
        return raised.value
    finally:
        store.close()


def received(sock: socket.socket, wanted: int) -> bytes:
    data = b""
    while len(data) < wanted:
        more = sock.recv(wanted - len(data))
        if not more:
            break
        data += more
    return data


def answers(answer: bytes) -> Callable[[socket.socket], None]:
    """Answer any request with these bytes."""

    def answering(sock: socket.socket) -> None:
        if sock.recv(200):
            sock.sendall(answer)
            sock.recv(200)

    return answering


def test_a_thrift1_gateway_is_named() -> None:
    with fake_gateway() as gateway:
        gateway.kind = THRIFT1
        error = error_at(gateway.port)
    assert isinstance(error, StoreUnusableError)
    assert "Thrift1" in error.message
    assert "hbase thrift2 start" in error.message


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "an HTTP server; if the gateway has hbase.regionserver.thrift.http on, write transport=http in the URL; else start",
        ),
        (
            b"\x15\x03\x01\0\2\2\x50",
            "a TLS server; write tls=yes in the URL, and transport=http if the gateway has hbase.thrift.ssl.enabled on; or start",
        ),
        (b"-ERR unknown command\r\n", "-ERR unknown"),
        (UNKNOWN_METHOD, "not HBase's Thrift2 gateway"),
        (THRIFT2_REPLY[:-2] + b"\7\0", "unknown type (7)"),
        (b"\x82" + bytes(60), "compact"),
    ],
)
def test_other_servers_are_named_by_their_answer(answer: bytes, named: str) -> None:
    with speaker(answers(answer)) as port:
        error = error_at(port)
    assert isinstance(error, StoreUnusableError)
    assert named in error.message


def test_a_refused_connection_may_be_retried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = error_at(port)
    assert isinstance(error, StoreNotAppliedError)
    assert "cannot be reached" in error.message


def test_a_host_without_an_address_may_be_retried() -> None:
    store = HBaseStore([Address("no-such-host.invalid")], timeout=10)
    with pytest.raises(StoreNotAppliedError, match=r"no-such-host\.invalid:9090: the host name cannot be resolved"):
        store.read("t", [Get(b"r")])


def test_silence_is_distinguished_from_refusal_and_was_not_applied() -> None:
    stop = threading.Event()
    with speaker(lambda sock: (stop.wait(30), None)[1]) as port:
        error = error_at(port, timeout=1.5)
        stop.set()
    assert isinstance(error, StoreNotAppliedError)
    assert "no answer" in error.message
    assert "busy" in error.message


def test_a_gateway_without_free_workers_may_be_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    # A slow machine may close the connection much later than a gateway does.
    monkeypatch.setattr(handshake, "_SILENT_SECONDS", 30)
    with speaker(lambda sock: None) as port:
        error = error_at(port)
    assert isinstance(error, StoreNotAppliedError)
    assert "as many as it can" in error.message


def framed(sock: socket.socket) -> None:
    """A gateway that reads the first four bytes as a length, and closes if it is negative."""
    length = int.from_bytes(received(sock, 4), "big", signed=True)
    if length > 0 and received(sock, length).startswith(b"\x80\1"):
        sock.sendall(len(THRIFT2_REPLY).to_bytes(4, "big") + THRIFT2_REPLY)
        sock.recv(1)


def compact(sock: socket.socket) -> None:
    """A gateway that closes if a message does not begin like its protocol's."""
    if received(sock, 1) == b"\x82":
        sock.sendall(b"\x82\x41\1\x13" + TYPE + b"\5\0\4\0")
        sock.recv(1)


def framed_compact(sock: socket.socket) -> None:
    length = int.from_bytes(received(sock, 4), "big", signed=True)
    if length > 0 and received(sock, length).startswith(b"\x82"):
        sock.sendall(b"\0\0\0\x1b\x82\x41\1\x13" + TYPE + b"\5\0\4\0")
        sock.recv(1)


@pytest.mark.usefixtures("long_diagnosis")
@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (framed, "hbase.regionserver.thrift.framed on"),
        (compact, "hbase.regionserver.thrift.compact on"),
        (framed_compact, "hbase.regionserver.thrift.framed and compact on"),
    ],
)
def test_a_close_during_the_handshake_is_diagnosed(answer: Callable[[socket.socket], None], named: str) -> None:
    with speaker(answer) as port:
        error = error_at(port)
    assert isinstance(error, StoreUnusableError)
    assert named in error.message


def test_a_silent_close_during_the_handshake_may_be_a_gateway_that_is_being_killed() -> None:
    # A proxy accepts connections while the gateway behind it is being killed; this was seen in a container.
    with speaker(lambda sock: (sock.recv(10), None)[1]) as port:
        error = error_at(port)
    assert isinstance(error, StoreNotAppliedError)
    assert "being stopped or started, or it is not an HBase Thrift2 gateway" in error.message


def test_each_call_detects_a_wrong_address_anew() -> None:
    with fake_gateway() as gateway:
        gateway.kind = THRIFT1
        store = HBaseStore([Address("127.0.0.1", gateway.port)], pool_size=1)
        for _ in range(3):
            with pytest.raises(StoreUnusableError):
                store.read("t", [Get(b"r")])
        gateway.kind = 2
        assert store.read("t", [Get(b"r")])[0].cells[0].value == b"r"
        store.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_not_blamed_on_the_gateway(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It said to check that the gateway runs."""

    def create_connection(*_: object) -> socket.socket:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "create_connection", create_connection)
    error = error_at(9)
    assert isinstance(error, StoreNotAppliedError)
    assert "too many files are open; close some, or raise the limit (ulimit -n)" in error.message
    assert "thrift2 start" not in error.message
