"""Answers that cannot be decoded, or that lack a part: each is an error of the store."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from thriftpy2.thrift import TMessageType

from hbasemk.errors import StoreError
from hbasemk.store.abc import CheckAndWrite, Get, Scan
from hbasemk.store.hbase import HBaseStore, Transport
from hbasemk.store.hbase.gateway import idl
from hbasemk.store.hbase.wire import Wire
from tests.support.gateway import Close, FakeGateway, ReceivedCall, fake_gateway
from tests.support.gateway_stores import PLAIN, PUT

Open = Callable[..., HBaseStore]
CHECK = CheckAndWrite("t", (b"d", b"q"), None, PUT)


class SentBytes:
    """A wire that keeps what is written."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        pass


ROW = idl.Result(b"r", [idl.ColumnValue(b"d", b"q%d" % number, b"value", number) for number in range(3)])


def encoded(transport: Transport, method: str, success: Any, number: int = 2) -> bytes:
    """Return the bytes of the answer to a request; the handshake has number 1."""
    sent = SentBytes()
    through, protocol = transport.on(cast(Wire, sent))
    reply = getattr(idl.Gateway, f"{method}_result")()
    reply.success = success
    protocol.write_message_begin(method, TMessageType.REPLY, number)
    protocol.write_struct(reply)
    through.flush()
    return bytes(sent.data)


@pytest.mark.parametrize(("framing", "protocol"), PLAIN)
def test_a_garbled_answer_is_an_error_of_the_store(framing: Any, protocol: Any, open_over: Open) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    transport = Transport(framing, protocol)
    with fake_gateway(transport) as gateway:

        def script(received: ReceivedCall) -> None:
            answer = bytearray(chance.choice(answers))
            for _ in range(chance.randrange(1, 4)):
                answer[chance.randrange(len(answer))] = chance.randrange(256)
            gateway.connections[received.connection].sendall(answer)
            raise Close

        store = open_over(gateway.port, transport)
        answers = [encoded(transport, "get", ROW), encoded(transport, "getMultiple", [ROW, ROW])]
        gateway.script = script
        raised = 0
        for number in range(150):
            try:
                store.read("t", [Get(b"r")] * (number % 2 + 1))
            except StoreError:
                raised += 1
        assert raised > 20


def read_two(store: HBaseStore) -> object:
    return store.read("t", [Get(b"r"), Get(b"s")])


def write_and_read_two(store: HBaseStore) -> object:
    return store.write_and_read("t", [PUT], [Get(b"r"), Get(b"s")])


NO_NAME = idl.Result(b"r", [idl.ColumnValue(b"d", None, b"value", 1)])
NO_TIME = idl.Result(b"r", [idl.ColumnValue(b"d", b"q", b"value", None)])


@pytest.mark.parametrize(
    ("call", "method", "success", "missing"),
    [
        (read_two, "getMultiple", [], "it has 0 rows for 2 gets"),
        (read_two, "getMultiple", [ROW] * 3, "it has 3 rows for 2 gets"),
        (read_two, "getMultiple", [ROW, NO_NAME], "qualifier"),
        (lambda store: store.read("t", [Get(b"r")]), "get", NO_TIME, "timestamp"),
        (lambda store: store.scan("t", Scan(None, None, 10)), "getScannerResults", [NO_NAME], "qualifier"),
        (lambda store: store.scan("t", Scan(None, None, 10)), "getScannerResults", [idl.Result(None, [])], "no key"),
        (write_and_read_two, "getMultiple", [ROW], "it has 1 rows for 2 gets"),
        (lambda store: store.check_and_write_then_read(CHECK, "t", Get(b"r")), "get", NO_TIME, "timestamp"),
    ],
)
def test_an_incomplete_answer_is_an_error_of_the_store(
    call: Callable[[HBaseStore], object], method: str, success: Any, missing: str, gateway: FakeGateway, open_over: Open
) -> None:
    def script(received: ReceivedCall) -> bytes | None:
        return encoded(Transport(), method, success, len(gateway.received) + 1) if received.method == method else None

    gateway.script = script
    with pytest.raises(
        StoreError, match=f"{method} on table 't': the gateway failed .an incomplete answer: .*{missing}"
    ):
        call(open_over(gateway.port, Transport()))
