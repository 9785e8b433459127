"""Connections to a gateway: sharing, expiry, limits and closing."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

import pytest

from hbasemk.errors import ClosedError, StoreNotAppliedError, StoreUnknownError
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.hbase.connections import IDLE_SECONDS
from hbasemk.testing.store.base import together
from tests.support.gateway import Clock, FakeGateway, ReceivedCall, speaker
from tests.support.gateway_stores import PUT, errors_of_closing, read, silent_for


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
    with pytest.raises(StoreNotAppliedError, match="the only connection was in use until"):
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


def test_closing_during_a_handshake_opens_no_connection_to_find_out_why_it_ended() -> None:
    accepted: list[socket.socket] = []
    arrived = threading.Event()

    def silent(sock: socket.socket) -> None:
        accepted.append(sock)
        while sock.recv(100):
            arrived.set()

    with speaker(silent) as port:
        store = HBaseStore([Address("127.0.0.1", port)], timeout=60)
        assert errors_of_closing(store, lambda: arrived.wait(30)) == [ClosedError]
        assert len(accepted) == 1


def test_closing_ends_the_connections(gateway: FakeGateway, store: HBaseStore) -> None:
    read(store)
    store.close()
    gateway.until(lambda: gateway.ended == [0])


def test_a_handler_may_wait_for_the_thread_that_uses_the_only_connection(
    gateway: FakeGateway, open_store: Callable[..., HBaseStore]
) -> None:
    """As a program does that ends its threads after SIGTERM."""
    busy = threading.Event()

    def script(received: ReceivedCall) -> None:
        busy.set()
        time.sleep(0.3)

    store = open_store(pool_size=1)
    read(store)
    gateway.script = script
    ended: list[bool] = []
    thread = threading.Thread(target=read, args=(store,))

    def handle(number: int, frame: FrameType | None) -> None:
        thread.join(20)
        ended.append(not thread.is_alive())

    before = signal.signal(signal.SIGALRM, handle)
    try:
        thread.start()
        assert busy.wait(20)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGALRM)).start()
        read(store)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended == [True]
