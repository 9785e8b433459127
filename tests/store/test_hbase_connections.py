"""Tests of connections to a gateway: sharing, expiry, and the known outcome of failed calls."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.errors import ClosedError, StoreError, StoreNotAppliedError, StoreUnknownError
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.hbase.connections import IDLE_SECONDS
from hbasemk.testing.store.base import together
from tests.support.gateway import Clock, Close, FakeGateway, ReceivedCall, fake_gateway, speaker

PUT = Put(b"r", [NewCell(b"d", b"q", b"x")])


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as gateway:
        yield gateway


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_store(gateway: FakeGateway, clock: Clock) -> Iterator[Callable[..., HBaseStore]]:
    opened: list[HBaseStore] = []

    def open_one(**options: Any) -> HBaseStore:
        opened.append(HBaseStore([Address("127.0.0.1", gateway.port)], clock=clock, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., HBaseStore]) -> HBaseStore:
    return open_store()


def read(store: HBaseStore, row: bytes = b"r") -> bytes:
    """Return the value of the only cell of a row, which equals the row's key."""
    return store.read("t", [Get(row)])[0].cells[0].value


def silent_for(gateway: FakeGateway, *methods: str) -> None:
    def script(received: ReceivedCall) -> None:
        if received.method in methods:
            gateway.stopping.wait(30)

    gateway.script = script


def closing_on(gateway: FakeGateway, *connections: int) -> None:
    def script(received: ReceivedCall) -> None:
        if received.connection in connections:
            raise Close

    gateway.script = script


# --- pooling -------------------------------------------------------------------------------------------------------


def test_nothing_is_opened_before_the_first_call(gateway: FakeGateway, store: HBaseStore) -> None:
    assert gateway.connections == []
    read(store)
    assert len(gateway.connections) == 1


def test_sequential_calls_use_one_connection(gateway: FakeGateway, store: HBaseStore) -> None:
    for number in range(20):
        assert read(store, b"%d" % number) == b"%d" % number
    assert len(gateway.connections) == 1


def test_threads_never_share_a_connection_and_get_their_own_answers(gateway: FakeGateway, store: HBaseStore) -> None:
    busy: set[int] = set()
    shared: list[int] = []

    def script(received: ReceivedCall) -> None:
        if received.connection in busy:
            shared.append(received.connection)
        busy.add(received.connection)
        time.sleep(0.0005)
        busy.discard(received.connection)

    gateway.script = script

    def work(thread: int) -> None:
        for turn in range(40):
            row = b"%d/%d" % (thread, turn)
            assert read(store, row) == row

    together([lambda thread=thread: work(thread) for thread in range(16)])  # type: ignore[misc]
    assert shared == []
    assert len(gateway.connections) <= 16


def test_a_connection_that_idled_too_long_is_not_reused(gateway: FakeGateway, store: HBaseStore, clock: Clock) -> None:
    read(store)
    clock.ahead += IDLE_SECONDS - 1
    read(store)
    assert len(gateway.connections) == 1
    clock.ahead += IDLE_SECONDS + 1
    read(store)
    assert len(gateway.connections) == 2
    gateway.until(lambda: gateway.ended == [0])


def test_unneeded_connections_are_closed_while_others_are_used(
    gateway: FakeGateway, store: HBaseStore, clock: Clock
) -> None:
    barrier = threading.Barrier(3)
    gateway.script = lambda received: (barrier.wait(30), None)[1]
    together([lambda: read(store)] * 3)
    gateway.script = lambda received: None
    assert len(gateway.connections) == 3
    for _ in range(3):
        clock.ahead += IDLE_SECONDS / 2
        read(store)
    gateway.until(lambda: len(gateway.ended) == 2)
    assert len(gateway.connections) == 3


def test_a_connection_that_the_gateway_closed_while_idle_is_silently_replaced(
    gateway: FakeGateway, store: HBaseStore
) -> None:
    read(store)
    gateway.connections[0].shutdown(socket.SHUT_RDWR)
    gateway.until(lambda: gateway.ended == [0])
    store.write("t", [PUT])
    assert [received.connection for received in gateway.received] == [0, 1]


def test_stray_bytes_on_an_idle_connection_are_never_mistaken_for_an_answer(
    gateway: FakeGateway, store: HBaseStore
) -> None:
    read(store)
    gateway.connections[0].sendall(b"stray")
    assert read(store, b"other") == b"other"
    assert len(gateway.connections) == 2


def test_buffers_of_a_large_answer_are_released(gateway: FakeGateway, store: HBaseStore) -> None:
    row = Put(b"r", [NewCell(b"d", b"q", bytes(6_000_000))])
    store.write("t", [row])
    read(store)
    assert [received.connection for received in gateway.received] == [0, 1]


# --- failures ------------------------------------------------------------------------------------------------------


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
    greeting = b"\x80\1\0\2\0\0\0\x13getThriftServerType\0\0\0\1\x08\0\0\0\0\0\2\0"

    def greet_and_go(sock: socket.socket) -> None:
        sock.recv(100)
        sock.sendall(greeting)
        # The rest exceeds the sockets' buffers, so it is still on its way when the connection is reset.
        sock.recv(10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with speaker(greet_and_go) as port:
        store = HBaseStore([Address("127.0.0.1", port)], timeout=10)
        large = Put(b"r", [NewCell(b"d", b"%d" % number, bytes(5_000_000)) for number in range(8)])
        with pytest.raises(StoreNotAppliedError, match="not sent"):
            store.write("t", [large])
        store.close()


def test_a_timeout_leaves_reads_not_applied_and_writes_unknown(
    gateway: FakeGateway, open_store: Callable[..., HBaseStore]
) -> None:
    store = open_store(timeout=1.5)
    silent_for(gateway, "get", "put", "checkAndPut")
    with pytest.raises(StoreNotAppliedError, match="no answer within"):
        read(store)
    with pytest.raises(StoreUnknownError, match="no answer within"):
        store.write("t", [PUT])
    with pytest.raises(StoreUnknownError):
        store.check_and_write("t", (b"d", b"q"), None, PUT)
    gateway.script = lambda received: None
    assert read(store) == b"r"


def test_a_late_answer_is_never_taken_for_the_next_call(
    gateway: FakeGateway, open_store: Callable[..., HBaseStore]
) -> None:
    store = open_store(timeout=1.5)
    late = threading.Event()

    def script(received: ReceivedCall) -> None:
        if received.request.what.row == b"late":
            late.wait(30)

    gateway.script = script
    with pytest.raises(StoreNotAppliedError):
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


def test_an_interrupted_call_ends_its_connection(gateway: FakeGateway, store: HBaseStore) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    silent = threading.Event()
    main = threading.get_ident()

    def script(received: ReceivedCall) -> None:
        if received.connection == 0:
            # Not earlier: an interrupt during the creation of the socket leaves it to Python's garbage collection.
            signal.pthread_kill(main, signal.SIGALRM)
            silent.wait(30)

    gateway.script = script
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interrupted):
            read(store, b"interrupted")
    finally:
        signal.signal(signal.SIGALRM, before)
    silent.set()
    assert read(store, b"next") == b"next"
    assert len(gateway.connections) == 2


# --- bounds and closing --------------------------------------------------------------------------------------------


def test_when_all_connections_are_in_use_a_call_waits_for_one(
    gateway: FakeGateway, open_store: Callable[..., HBaseStore]
) -> None:
    store = open_store(pool_size=2)

    def work(thread: int) -> None:
        for turn in range(10):
            assert read(store, b"%d/%d" % (thread, turn)) == b"%d/%d" % (thread, turn)

    together([lambda thread=thread: work(thread) for thread in range(8)])  # type: ignore[misc]
    assert len(gateway.connections) == 2


def test_a_call_that_gets_no_connection_in_time_was_not_applied(
    gateway: FakeGateway, open_store: Callable[..., HBaseStore]
) -> None:
    store = open_store(pool_size=1)
    silent_for(gateway, "get")
    holder = threading.Thread(target=read, args=(store,), daemon=True)
    holder.start()
    gateway.until(lambda: len(gateway.received) == 1)
    short = open_store(pool_size=1, timeout=0.2)
    short._client._gateways = store._client._gateways
    with pytest.raises(StoreNotAppliedError, match="all 1 connections were in use"):
        short.write("t", [PUT])
    assert [received.method for received in gateway.received] == ["get"]
    gateway.stopping.set()
    holder.join(10)
    assert not holder.is_alive()


def test_closing_ends_running_and_waiting_calls(gateway: FakeGateway, open_store: Callable[..., HBaseStore]) -> None:
    store = open_store(pool_size=2)
    silent_for(gateway, "get", "put")
    raised: dict[str, BaseException] = {}

    def run(name: str, call: Callable[[], object]) -> threading.Thread:
        def catch() -> None:
            try:
                call()
            except BaseException as error:
                raised[name] = error

        thread = threading.Thread(target=catch, daemon=True)
        thread.start()
        return thread

    threads = [run("read", lambda: read(store)), run("write", lambda: store.write("t", [PUT]))]
    gateway.until(lambda: len(gateway.received) == 2)
    threads.append(run("waits", lambda: read(store)))
    time.sleep(0.05)
    store.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert isinstance(raised["read"], ClosedError)
    assert isinstance(raised["waits"], ClosedError)
    # The request was sent, so its outcome is unknown.
    assert isinstance(raised["write"], StoreUnknownError)
    store.close()
    with pytest.raises(ClosedError):
        read(store)


def test_closing_ends_the_connections(gateway: FakeGateway, store: HBaseStore) -> None:
    read(store)
    store.close()
    gateway.until(lambda: gateway.ended == [0])


# --- fork ------------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], object]) -> None:
    """Run a function in a forked child; its failure fails the test."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)
            work()
            os.write(writer, b"done")
        except BaseException as error:
            os.write(writer, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        assert output.read() == b"done"
    os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_uses_its_own_connections_and_leaves_its_parents_alone(
    gateway: FakeGateway, store: HBaseStore
) -> None:
    read(store)

    def child() -> None:
        for number in range(5):
            row = b"child %d" % number
            assert read(store, row) == row
        store.close()

    in_child(child)
    assert read(store, b"parent") == b"parent"
    assert {received.connection for received in gateway.received if received.request.what.row.startswith(b"child")} == {
        1
    }
    assert [received.connection for received in gateway.received if received.request.what.row == b"parent"] == [0]
    assert gateway.ended == [1] or gateway.ended == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_closes_the_descriptors_of_its_parents_connections(gateway: FakeGateway, store: HBaseStore) -> None:
    read(store)
    ours = next(iter(store._client._gateways._all[0].pool._pool.wires)).sock.fileno()

    def child() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            store._client.check_open() or os.fstat(ours)

    in_child(child)
    read(store)
    assert len(gateway.connections) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_during_calls_of_other_threads_leaves_the_child_usable(gateway: FakeGateway, store: HBaseStore) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            assert read(store, b"parent") == b"parent"

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            in_child(lambda: together([lambda: read(store, b"child")] * 3))
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    assert read(store) == b"r"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_store_closed_before_the_fork_is_closed_in_the_child(store: HBaseStore) -> None:
    store.close()

    def child() -> None:
        with pytest.raises(ClosedError):
            read(store)

    in_child(child)
