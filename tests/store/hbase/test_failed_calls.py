"""Calls to a gateway that fail: whether they were applied, and whether the connection stays."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnknownError
from hbasemk.store.abc import CheckAndWrite, Get, NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.hbase.connection import Connection
from hbasemk.store.hbase.gateway import THRIFT2, Method
from tests.support.gateway import Close, FakeGateway, ReceivedCall, speaker
from tests.support.gateway_stores import PUT, brief, gateways_of, read, silent_for


def closing_on(gateway: FakeGateway, *connections: int) -> None:
    def script(received: ReceivedCall) -> None:
        if received.connection in connections:
            raise Close

    gateway.script = script


def test_a_read_on_a_pooled_connection_that_was_closed_is_retried_once(gateway: FakeGateway, store: HBaseStore) -> None:
    read(store)
    closing_on(gateway, 0)
    assert read(store, b"again") == b"again"
    assert [(received.connection, received.method) for received in gateway.received] == [
        (0, "get"),
        (0, "get"),
        (1, "get"),
    ]


def test_a_read_is_repeated_only_once(gateway: FakeGateway, store: HBaseStore) -> None:
    read(store)
    closing_on(gateway, 0, 1)
    with pytest.raises(StoreNotAppliedError, match=f"127.0.0.1:{gateway.port}.*'t'"):
        read(store)
    assert len(gateway.received) == 3


def test_a_write_whose_answer_is_lost_is_unknown_and_not_repeated(gateway: FakeGateway, store: HBaseStore) -> None:
    read(store)
    closing_on(gateway, 0)
    for call in (
        lambda: store.write("t", [PUT]),
        lambda: store.write("t", [PUT, PUT]),
        lambda: store.check_and_write("t", (b"d", b"q"), None, PUT),
        lambda: store.delete_rows("t", [b"r"]),
    ):
        before = len(gateway.received)
        with pytest.raises(StoreUnknownError, match="may have been applied"):
            call()
        assert len(gateway.received) == before + 1
        closing_on(gateway, len(gateway.connections))


def test_a_request_that_was_not_sent_completely_was_not_applied() -> None:
    handshake_reply = b"\x80\1\0\2\0\0\0\x13getThriftServerType\0\0\0\1\x08\0\0\0\0\0\2\0"

    def answer_handshake_and_close(sock: socket.socket) -> None:
        sock.recv(100)
        sock.sendall(handshake_reply)
        # The rest exceeds the sockets' buffers, so it is still on its way when the connection is reset.
        sock.recv(10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with speaker(answer_handshake_and_close) as port:
        store = HBaseStore([Address("127.0.0.1", port)], timeout=10)
        large = Put(b"r", [NewCell(b"d", b"%d" % number, bytes(5_000_000)) for number in range(8)])
        with pytest.raises(StoreNotAppliedError, match="not sent"):
            store.write("t", [large])
        store.close()


def test_a_timeout_leaves_reads_not_applied_and_writes_unknown(gateway: FakeGateway, store: HBaseStore) -> None:
    calls: list[tuple[type[StoreError], Callable[[], object]]] = [
        (StoreNotAppliedError, lambda: read(store)),
        (StoreUnknownError, lambda: store.write("t", [PUT])),
        (StoreUnknownError, lambda: store.check_and_write("t", (b"d", b"q"), None, PUT)),
    ]
    for error, call in calls:
        gateway.script = lambda received: None
        read(store)
        silent_for(gateway, "get", "put", "checkAndPut")
        with brief(store), pytest.raises(error, match="no answer within"):
            call()
    gateway.script = lambda received: None
    assert read(store) == b"r"


def test_a_late_answer_is_never_taken_for_the_next_call(gateway: FakeGateway, store: HBaseStore) -> None:
    late = threading.Event()

    def script(received: ReceivedCall) -> None:
        if received.request.what.row == b"late":
            late.wait(30)

    gateway.script = script
    read(store, b"first")
    with brief(store), pytest.raises(StoreNotAppliedError):
        read(store, b"late")
    late.set()
    for number in range(5):
        assert read(store, b"%d" % number) == b"%d" % number


def test_the_deadline_applies_to_the_whole_answer_not_to_each_byte(
    gateway: FakeGateway, open_store: Callable[..., HBaseStore]
) -> None:
    store = open_store(timeout=1.5)

    def script(received: ReceivedCall) -> None:
        # The answer is a text of a megabyte, sent byte by byte.
        sock = gateway.connections[received.connection]
        sock.sendall(b"\x80\1\0\2\0\x10\0\0")
        while not gateway.stopping.wait(0.02):
            sock.sendall(b"x")

    gateway.script = script
    with pytest.raises(StoreNotAppliedError, match="no answer within"):
        read(store)


def test_an_answer_to_another_call_ends_the_connection(gateway: FakeGateway, store: HBaseStore) -> None:
    other = b"\x80\1\0\2\0\0\0\3put\0\0\0\x63\0"
    gateway.script = lambda received: other if received.connection == 0 else None
    with pytest.raises(StoreNotAppliedError, match="put number 99 came for get"):
        read(store)
    assert read(store, b"next") == b"next"
    assert len(gateway.connections) == 2


def test_garbage_in_place_of_an_answer_ends_the_connection(gateway: FakeGateway, store: HBaseStore) -> None:
    gateway.script = lambda received: b"\0\0\0\5hello" if received.connection == 0 else None
    with pytest.raises(StoreUnknownError):
        store.write("t", [PUT])
    store.write("t", [PUT])
    assert len(gateway.connections) == 2


def test_a_failed_call_on_the_gateway_keeps_the_connection(gateway: FakeGateway, store: HBaseStore) -> None:
    with pytest.raises(StoreNotAppliedError, match="Internal error processing get"):
        read(store, b"fails 6")
    assert read(store) == b"r"
    assert len(gateway.connections) == 1


def test_a_protocol_error_of_the_gateway_ends_the_connection(gateway: FakeGateway, store: HBaseStore) -> None:
    with pytest.raises(StoreNotAppliedError):
        read(store, b"fails 7")
    assert read(store) == b"r"
    assert len(gateway.connections) == 2


def test_a_value_that_cannot_be_sent_raises_the_callers_error_and_leaves_the_store_usable(
    gateway: FakeGateway, store: HBaseStore
) -> None:
    with pytest.raises(Exception, match="versions") as raised:
        store.read("t", [Get(b"r", versions=2**40)])
    assert not isinstance(raised.value, StoreError)
    assert read(store) == b"r"


class Interrupted(BaseException):
    """A signal handler raises it."""


class OutOfTime(Exception):
    """A signal handler raises it, although it should not derive from Exception."""


class Invalid(ValueError):
    """As OutOfTime; a garbled answer raises errors of the same kind."""


@contextmanager
def raised_by_signals(error: type[BaseException]) -> Iterator[Callable[[], None]]:
    """Let a signal handler raise an exception; yield a function that sends the signal to this thread."""

    def interrupt(*_: object) -> None:
        raise error

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("error", [Interrupted, OutOfTime, Invalid])
def test_an_interrupted_call_ends_its_connection(
    error: type[BaseException], gateway: FakeGateway, store: HBaseStore
) -> None:
    silent = threading.Event()
    with raised_by_signals(error) as interrupt:

        def script(received: ReceivedCall) -> None:
            if received.connection == 0:
                # Not earlier: an interrupt during the creation of the socket leaves it to Python's garbage collection.
                interrupt()
                silent.wait(30)

        gateway.script = script
        with pytest.raises(error):
            store.write("t", [PUT])
    silent.set()
    assert gateways_of(store)[0].resumes_at() is None
    assert read(store, b"next") == b"next"
    assert len(gateway.connections) == 2


@pytest.mark.parametrize("error", [Interrupted, OutOfTime, Invalid])
def test_an_interrupted_handshake_says_nothing_about_the_gateway(
    error: type[BaseException], gateway: FakeGateway, store: HBaseStore
) -> None:
    silent = threading.Event()
    with raised_by_signals(error) as interrupt:

        def kind() -> int:
            interrupt()
            silent.wait(30)
            return THRIFT2

        gateway.kind = kind
        with pytest.raises(error):
            read(store)
    silent.set()
    gateway.kind = THRIFT2
    assert gateways_of(store)[0].resumes_at() is None
    assert read(store, b"next") == b"next"


@pytest.mark.parametrize("error", [Interrupted, OutOfTime])
def test_an_interrupt_of_two_joint_calls_is_raised(
    error: type[BaseException], gateway: FakeGateway, store: HBaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Connection.send
    check = CheckAndWrite("t", (b"d", b"q"), None, PUT)
    with raised_by_signals(error) as interrupt:

        def interrupted(self: Connection, method: Method, request: Any, *, more: bool = False) -> None:
            send(self, method, request, more=more)
            if method.name == "checkAndPut":
                interrupt()

        monkeypatch.setattr(Connection, "send", interrupted)
        with pytest.raises(error):
            store.check_and_write_both(check, check)
    monkeypatch.undo()
    assert read(store) == b"r"
