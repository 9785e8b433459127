"""Two calls in one round trip: on one connection in their order, or on two connections at the same time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from thriftpy2.thrift import TDecodeException

from hbasemk.errors import ClosedError, InvalidValueError, LimitError, StoreNotAppliedError, StoreUnknownError
from hbasemk.store.abc import CheckAndWrite, Get, NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore, Transport
from hbasemk.store.hbase.connection import Connection
from hbasemk.store.hbase.gateway import THRIFT2, Method
from tests.support.gateway import Close, FakeGateway, ReceivedCall, fake_gateway
from tests.support.gateway_stores import PLAIN, PUT, gateways_of, read

GETS = [Get(b"r")]
FIRST = CheckAndWrite("t", (b"d", b"q"), None, PUT)
SECOND = CheckAndWrite("u", (b"d", b"q"), b"x", PUT)


def methods(gateway: FakeGateway) -> list[tuple[int, str]]:
    return [(received.connection, received.method) for received in gateway.received]


@pytest.mark.parametrize(("framing", "protocol"), PLAIN)
def test_the_read_is_sent_before_the_write_is_answered(
    framing: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Connection.send
    read_is_sent = threading.Event()
    more_follow: list[tuple[str, bool]] = []

    def note(self: Connection, method: Method, request: Any, *, more: bool = False) -> None:
        send(self, method, request, more=more)
        more_follow.append((method.name, more))
        if method.name.startswith("get"):
            read_is_sent.set()

    def script(received: ReceivedCall) -> None:
        if received.method.startswith(("put", "checkAndPut")):
            assert read_is_sent.wait(30)
            read_is_sent.clear()

    monkeypatch.setattr(Connection, "send", note)
    transport = Transport(framing, protocol)  # type: ignore[arg-type]
    with fake_gateway(transport) as gateway:
        store = HBaseStore([Address("127.0.0.1", gateway.port)], transport=transport, timeout=20)
        gateway.script = script
        (row,) = store.write_and_read("t", [PUT], GETS)
        assert [cell.value for cell in row.cells] == [b"r"]
        assert more_follow[-2:] == [("put", True), ("get", False)]
        rows = store.write_and_read("t", [PUT, PUT], [Get(b"a"), Get(b"b")])
        assert [row.key for row in rows] == [b"a", b"b"]
        assert methods(gateway) == [(0, "put"), (0, "get"), (0, "putMultiple"), (0, "getMultiple")]
        is_applied, row = store.check_and_write_then_read(FIRST, "u", Get(b"c"))
        assert (is_applied, row.key, [cell.value for cell in row.cells]) == (True, b"c", [b"c"])
        assert more_follow[-2:] == [("checkAndPut", True), ("get", False)]
        assert methods(gateway)[4:] == [(0, "checkAndPut"), (0, "get")]
        assert read(store, b"next") == b"next"
        store.close()


def test_what_hbase_would_misread_is_answered_without_it(gateway: FakeGateway, store: HBaseStore) -> None:
    (row,) = store.write_and_read("t", [PUT], [Get(b"r", columns=())])
    assert row == (b"r", [])
    assert store.write_and_read("t", [PUT], []) == []
    assert read(store) == store.write_and_read("t", [], GETS)[0].cells[0].value
    with pytest.raises(LimitError):
        store.write_and_read("t", [Put(b"", PUT.cells)], GETS)
    assert store.check_and_write_then_read(FIRST, "u", Get(b"r", columns=())) == (True, (b"r", []))
    with pytest.raises(InvalidValueError, match="cannot be compared with an empty value"):
        store.check_and_write_then_read(FIRST._replace(expected=b""), "u", Get(b"r"))
    assert [method for _, method in methods(gateway)] == ["put", "put", "get", "get", "checkAndPut"]


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_neither_is_sent_if_one_is_too_large(protocol: Any) -> None:
    transport = Transport("framed", protocol)
    wide = Get(b"r", columns=[(b"d", b"%06d" % number + b"n" * 500) for number in range(5_000)])
    large = Put(b"r", [NewCell(b"d", b"q", bytes(3_000_000))])
    with fake_gateway(transport) as gateway:
        store = HBaseStore([Address("127.0.0.1", gateway.port)], transport=transport, timeout=20)
        for put, get in ((PUT, wide), (large, Get(b"r"))):
            with pytest.raises(LimitError, match="exceeds the gateway's limit of 2097152 bytes"):
                store.write_and_read("t", [put], [get])
            with pytest.raises(LimitError, match="exceeds the gateway's limit of 2097152 bytes"):
                store.check_and_write_then_read(CheckAndWrite("t", (b"d", b"q"), None, put), "u", get)
        assert gateway.received == []
        assert store.write_and_read("t", [PUT], GETS)[0].cells[0].value == b"r"
        assert [gateway.resumes_at() for gateway in gateways_of(store)] == [None]
        store.close()


def test_neither_is_sent_if_one_cannot_be_encoded(gateway: FakeGateway, store: HBaseStore) -> None:
    with pytest.raises(TDecodeException, match="Field 'since"):
        store.write_and_read("t", [PUT], [Get(b"r", since=2**64, before=2**65)])
    assert gateway.received == []
    assert store.write_and_read("t", [PUT], GETS)[0].cells[0].value == b"r"


@pytest.mark.parametrize("lost", ["put", "get"])
def test_a_lost_answer_to_either_call_leaves_both_unknown(lost: str, gateway: FakeGateway, store: HBaseStore) -> None:
    read(store)

    def script(received: ReceivedCall) -> None:
        if received.method == lost:
            raise Close

    gateway.script = script
    with pytest.raises(StoreUnknownError, match=f"{lost} on table 't'.*may have been applied"):
        store.write_and_read("t", [PUT], GETS)
    gateway.script = lambda _: None
    assert read(store) == b"r"


def test_a_timeout_leaves_both_unknown(store: HBaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Connection.receive

    def time_out(self: Connection, method: Method) -> Any:
        # The time of the first call does not count, so a slow machine changes nothing.
        if method.name == "get":
            raise TimeoutError("timed out")
        return receive(self, method)

    monkeypatch.setattr(Connection, "receive", time_out)
    with pytest.raises(StoreUnknownError, match="get on table 't': no answer within"):
        store.write_and_read("t", [PUT], GETS)


def test_a_rejected_read_leaves_a_connection_that_can_be_used(gateway: FakeGateway, store: HBaseStore) -> None:
    # 6 is the number of an internal error.
    with pytest.raises(StoreUnknownError, match="the gateway failed"):
        store.write_and_read("t", [PUT], [Get(b"fails 6")])
    assert read(store) == b"r"
    assert {connection for connection, _ in methods(gateway)} == {0}


def test_a_failed_connection_is_opened_again_if_nothing_was_sent(gateway: FakeGateway, store: HBaseStore) -> None:
    read(store)
    gateway.connections[0].shutdown(socket.SHUT_RDWR)
    gateway.until(lambda: gateway.ended == [0])
    (row,) = store.write_and_read("t", [PUT], GETS)
    assert row.cells[0].value == b"r"
    assert methods(gateway)[1:] == [(1, "put"), (1, "get")]


def test_both_compare_and_sets_are_sent_before_one_is_answered(gateway: FakeGateway, store: HBaseStore) -> None:
    both = threading.Barrier(2)

    def script(_: ReceivedCall) -> None:
        both.wait(30)

    gateway.script = script
    assert store.check_and_write_both(FIRST, SECOND) == (True, True)
    assert sorted(methods(gateway)) == [(0, "checkAndPut"), (1, "checkAndPut")]
    assert [received.request.table for received in sorted(gateway.received)] == [b"t", b"u"]
    gateway.script = lambda _: None
    assert store.check_and_write_both(FIRST, SECOND) == (True, True)
    assert len(gateway.connections) == 2


@pytest.mark.parametrize("failing", [b"t", b"u"])
def test_one_of_both_can_fail_alone(failing: bytes, gateway: FakeGateway, store: HBaseStore) -> None:
    def script(received: ReceivedCall) -> None:
        if received.request.table == failing:
            raise Close

    gateway.script = script
    answers = store.check_and_write_both(FIRST, SECOND)
    failed, other = answers if failing == b"t" else answers[::-1]
    assert isinstance(failed, StoreUnknownError)
    assert other is True
    assert sorted(received.request.table for received in gateway.received) == [b"t", b"u"]


def test_both_are_made_in_turn_where_there_is_one_connection(
    gateway: FakeGateway, open_store: Callable[..., HBaseStore]
) -> None:
    store = open_store(pool_size=1)
    assert store.check_and_write_both(FIRST, SECOND) == (True, True)
    assert methods(gateway) == [(0, "checkAndPut"), (0, "checkAndPut")]


def test_both_move_on_to_another_gateway_if_one_is_down(gateway: FakeGateway, unused_port: Callable[[], int]) -> None:
    addresses = [Address("127.0.0.1", port) for port in (unused_port(), gateway.port)]
    store = HBaseStore(addresses, timeout=20)
    for _ in range(4):
        assert store.check_and_write_both(FIRST, SECOND) == (True, True)
        assert store.write_and_read("t", [PUT], GETS)[0].cells[0].value == b"r"
    assert [method for _, method in methods(gateway)].count("checkAndPut") == 8
    store.close()


def test_both_say_that_no_gateway_took_them(unused_port: Callable[[], int]) -> None:
    store = HBaseStore([Address("127.0.0.1", unused_port())], timeout=1)
    one, two = store.check_and_write_both(FIRST, SECOND)
    assert isinstance(one, StoreNotAppliedError)
    assert isinstance(two, StoreNotAppliedError)
    with pytest.raises(StoreNotAppliedError):
        store.write_and_read("t", [PUT], GETS)
    store.close()
    one, two = store.check_and_write_both(FIRST, SECOND)
    assert isinstance(one, ClosedError)
    assert isinstance(two, ClosedError)


def test_bad_values_of_both_are_refused_before_anything_is_sent(gateway: FakeGateway, store: HBaseStore) -> None:
    for check in (SECOND._replace(expected=b""), SECOND._replace(put=Put(b"r", [NewCell(b"d", b"q", b"x", -1)]))):
        with pytest.raises(Exception, match="empty value|timestamp"):
            store.check_and_write_both(FIRST, check)
    assert gateway.received == []


@pytest.mark.parametrize("pool_size", [1, 2])
def test_a_call_that_was_not_sent_does_not_wait_for_the_connection_of_the_other(pool_size: int) -> None:
    """The handshake of the first call's connection fails once."""
    with fake_gateway() as gateway:
        handshakes: list[int] = []

        def kind() -> int:
            handshakes.append(1)
            if len(handshakes) == 1:
                raise Close
            return THRIFT2

        gateway.kind = kind
        store = HBaseStore([Address("127.0.0.1", gateway.port)], timeout=20, pool_size=pool_size)
        assert store.check_and_write_both(FIRST, SECOND) == (True, True)
        assert sorted(received.request.table for received in gateway.received) == [b"t", b"u"]
        store.close()
