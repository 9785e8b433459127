"""Several gateways: calls spread over them, and leave one that fails."""

from __future__ import annotations

import logging
import re
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from hbasemk.errors import StoreNotAppliedError, StoreUnknownError, StoreUnusableError
from hbasemk.format import schema
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore, failover
from hbasemk.store.hbase.failover import FIRST_PAUSE
from hbasemk.store.hbase.gateway import THRIFT1
from hbasemk.testing.store.base import together
from tests.support.gateway import Clock, FakeGateway, ReceivedCall, speaker
from tests.support.gateway_stores import (
    PUT,
    brief,
    closes,
    gateways_of,
    read,
    silent_for,
    until_probed,
)

LINGER = struct.pack("ii", 1, 0)
Open = Callable[..., HBaseStore]


def test_calls_in_progress_spread_over_the_gateways(one: FakeGateway, two: FakeGateway, open_on: Open) -> None:
    store = open_on(one, two)
    # Each call waits for all others, so none ends before the last has begun.
    barrier = threading.Barrier(8)
    one.script = two.script = lambda received: (barrier.wait(30), None)[1]
    together([lambda: read(store)] * 8)
    assert (len(one.received), len(two.received)) == (4, 4)


def test_calls_in_sequence_use_one_connection(one: FakeGateway, two: FakeGateway, open_on: Open) -> None:
    store = open_on(one, two)
    for _ in range(10):
        read(store)
    assert (len(one.connections), len(two.connections)) == (1, 0)


def test_processes_prefer_different_gateways(one: FakeGateway, two: FakeGateway) -> None:
    for _ in range(40):
        store = HBaseStore([Address("127.0.0.1", one.port), Address("127.0.0.1", two.port)])
        read(store)
        store.close()
    # The chance that all prefer the same one is 2 ** -39.
    assert one.received
    assert two.received


def test_the_pool_size_limits_the_connections_to_each_gateway(
    one: FakeGateway, two: FakeGateway, open_on: Open
) -> None:
    store = open_on(one, two, pool_size=2)
    together([lambda: read(store)] * 12)
    assert len(one.connections) <= 2
    assert len(two.connections) <= 2


def test_a_call_does_not_wait_for_the_connections_of_a_gateway_that_hangs(
    one: FakeGateway, two: FakeGateway, open_on: Open
) -> None:
    store = open_on(one, two, pool_size=1, timeout=5)
    hung = threading.Event()

    def hangs(received: ReceivedCall) -> None:
        if received.request.what.row == b"hangs":
            hung.set()
            one.stopping.wait(30)

    one.script = hangs
    holder = threading.Thread(target=read, args=(store, b"hangs"), daemon=True)
    holder.start()
    assert hung.wait(30)
    together([lambda: [read(store) for _ in range(5)]] * 6)
    assert len(one.received) == 1
    assert len(two.received) == 30
    one.stopping.set()
    holder.join(10)


def test_a_call_moves_on_when_a_gateway_refuses_the_connection(
    two: FakeGateway, open_on: Open, unused_port: Callable[[], int]
) -> None:
    store = open_on(unused_port(), two)
    store.write("t", [PUT])
    read(store)
    assert [received.method for received in two.received] == ["put", "get"]


def test_a_call_moves_on_when_a_gateway_resets_new_connections(two: FakeGateway, open_on: Open, clock: Clock) -> None:
    clock.stop()  # so that the pause of the gateway does not end
    tried: list[int] = []

    def reset(sock: socket.socket) -> None:
        tried.append(1)
        sock.recv(10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)

    with speaker(reset) as port:
        store = open_on(port, two)
        store.write("t", [PUT])
        attempts = len(tried)
        for _ in range(5):
            store.write("t", [PUT])
        assert len(tried) == attempts > 0
    assert len(two.received) == 6


@pytest.mark.usefixtures("long_pauses")
def test_a_gateway_that_hangs_when_a_connection_opens_delays_one_call_only(two: FakeGateway, open_on: Open) -> None:
    tried: list[int] = []
    stop = threading.Event()
    with speaker(lambda sock: (tried.append(1), stop.wait(30), None)[2]) as port:
        store = open_on(port, two, connect_timeout=0.2)
        # On a busy machine a connection to the other gateway may take longer.
        gateways_of(store)[1]._connect_timeout = 30
        for _ in range(5):
            store.write("t", [PUT])
        assert len(tried) == 1
        stop.set()
    assert len(two.received) == 5


def test_a_read_moves_on_when_its_answer_is_lost(one: FakeGateway, two: FakeGateway, open_on: Open) -> None:
    store = open_on(one, two)
    one.script = closes
    read(store)
    read(store, b"next")
    assert [received.request.what.row for received in one.received] == [b"r"]
    assert [received.request.what.row for received in two.received] == [b"r", b"next"]


def test_a_write_whose_answer_is_lost_is_not_sent_to_another_gateway(
    one: FakeGateway, two: FakeGateway, open_on: Open
) -> None:
    store = open_on(one, two)
    one.script = closes
    with pytest.raises(StoreUnknownError, match=f"127.0.0.1:{one.port}"):
        store.write("t", [PUT])
    assert two.received == []
    store.write("t", [PUT])
    assert len(two.received) == 1


def test_a_write_that_was_not_sent_completely_moves_on(two: FakeGateway, open_on: Open) -> None:
    handshake_reply = b"\x80\1\0\2\0\0\0\x13getThriftServerType\0\0\0\1\x08\0\0\0\0\0\2\0"

    def answer_handshake_and_close(sock: socket.socket) -> None:
        sock.recv(100)
        sock.sendall(handshake_reply)
        sock.recv(10)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)

    with speaker(answer_handshake_and_close) as port:
        store = open_on(port, two)
        store.write("t", [Put(b"r", [NewCell(b"d", b"%d" % number, bytes(5_000_000)) for number in range(8)])])
    assert [received.method for received in two.received] == ["put"]


@pytest.mark.usefixtures("long_pauses")
def test_a_gateway_that_hangs_is_left_when_the_call_times_out(
    one: FakeGateway, two: FakeGateway, open_on: Open
) -> None:
    store = open_on(one, two)
    read(store)
    silent_for(one, "put", "get")
    with brief(store), pytest.raises(StoreUnknownError, match="no answer within"):
        store.write("t", [PUT])
    store.write("t", [PUT])
    read(store)
    assert [received.method for received in one.received] == ["get", "put"]
    assert [received.method for received in two.received] == ["put", "get"]


@pytest.mark.usefixtures("long_pauses")
def test_a_read_that_times_out_was_not_applied_and_the_next_one_goes_elsewhere(
    one: FakeGateway, two: FakeGateway, open_on: Open
) -> None:
    store = open_on(one, two)
    read(store)
    silent_for(one, "get")
    with brief(store), pytest.raises(StoreNotAppliedError, match="no answer within"):
        read(store)
    read(store)
    assert len(two.received) == 1


def test_a_call_with_little_time_left_does_not_blame_the_gateway(
    one: FakeGateway, two: FakeGateway, open_on: Open, clock: Clock
) -> None:
    store = open_on(one, two, timeout=20)
    first, _ = gateways_of(store)
    began = clock()
    first.failed(TimeoutError(), began, waited_in_vain=True)
    assert first.resumes_at() is None
    first.failed(ConnectionResetError(), began, waited_in_vain=False)
    assert first.resumes_at() is not None


def test_a_failed_gateway_loses_its_idle_connections(one: FakeGateway, two: FakeGateway, open_on: Open) -> None:
    store = open_on(one, two)
    barrier = threading.Barrier(4)
    one.script = two.script = lambda received: (barrier.wait(30), None)[1]
    together([lambda: read(store)] * 4)
    assert len(one.connections) == 2
    one.script = closes
    two.script = lambda received: None
    with pytest.raises(StoreUnknownError):
        store.write("t", [PUT])
    one.until(lambda: sorted(one.ended) == [0, 1])


def test_when_no_gateway_takes_the_call_the_error_names_each(open_on: Open, unused_port: Callable[[], int]) -> None:
    first, second = unused_port(), unused_port()
    store = open_on(first, second)
    for _ in range(3):
        with pytest.raises(StoreNotAppliedError, match="none of the 2 gateways took the call") as raised:
            store.write("t", [PUT])
        assert str(raised.value).count("cannot be reached") == 2
        assert f"127.0.0.1:{first} " in str(raised.value)
        assert f"127.0.0.1:{second} " in str(raised.value)


def test_when_all_gateways_are_left_out_each_call_tries_them(one: FakeGateway, two: FakeGateway, open_on: Open) -> None:
    store = open_on(one, two)
    one.script = two.script = closes
    with pytest.raises(StoreNotAppliedError):
        read(store)
    one.script = two.script = lambda received: None
    store.write("t", [PUT])
    assert [gateway.resumes_at() is None for gateway in gateways_of(store)].count(True) == 1


@pytest.mark.parametrize("method", ["verify", "create_tables"])
def test_opening_names_the_gateway_of_another_thrift_version(
    method: str, one: FakeGateway, two: FakeGateway, open_on: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Opening ignores a gateway that does not answer in this time.
    monkeypatch.setattr(failover, "FAIR_WAIT", 30)
    two.kind = THRIFT1
    store = open_on(one, two)
    with pytest.raises(StoreUnusableError, match=f"127.0.0.1:{two.port} is HBase's Thrift1 gateway"):
        getattr(store, method)(schema.TABLES)


def test_opening_ignores_a_gateway_that_is_away(
    two: FakeGateway, open_on: Open, unused_port: Callable[[], int]
) -> None:
    away = unused_port()
    store = open_on(away, two)
    with pytest.raises(StoreUnusableError, match="does not exist") as raised:
        # The fake gateway has no tables.
        store.verify(schema.TABLES)
    assert f"127.0.0.1:{away}," in str(raised.value)
    assert [received.method for received in two.received] == ["getTableDescriptors"]


def test_a_gateway_that_becomes_a_wrong_one_is_left_with_a_warning(
    one: FakeGateway, two: FakeGateway, open_on: Open, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.stop()
    store = open_on(one, two)
    one.kind = THRIFT1
    read(store)
    clock.ahead += 2 * FIRST_PAUSE
    with caplog.at_level(logging.WARNING, "hbasemk"):
        read(store)
        until_probed(gateways_of(store)[0])
    assert re.search(f"127.0.0.1:{one.port} is HBase's Thrift1 gateway", caplog.text)
    assert len(two.received) == 2


def test_gateways_that_are_all_wrong_are_a_final_error(one: FakeGateway, two: FakeGateway, open_on: Open) -> None:
    one.kind = two.kind = THRIFT1
    store = open_on(one, two)
    with pytest.raises(StoreUnusableError, match="is HBase's Thrift1.*is HBase's Thrift1") as raised:
        read(store)
    assert f"127.0.0.1:{one.port} " in str(raised.value)
    assert f"127.0.0.1:{two.port} " in str(raised.value)
