"""Stores on fake gateways: calls, scripts of the gateways, and the state of each gateway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hbasemk.errors import (
    StoreError,
)
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.store.hbase import HBaseStore
from hbasemk.store.hbase.failover import Gateway
from tests.support.gateway import Close, FakeGateway, ReceivedCall

PUT = Put(b"r", [NewCell(b"d", b"q", b"x")])
PLAIN = [
    ("buffered", "binary"),
    ("framed", "binary"),
    ("buffered", "compact"),
    ("framed", "compact"),
]
"""Framings and protocols without TLS and HTTP."""


def gateways_of(store: HBaseStore) -> list[Gateway]:
    """The gateways of a store, in the order of its addresses, which this process now prefers."""
    gateways = store._client._gateways
    gateways._order()
    gateways._in_order = gateways._all
    return gateways._all


def read(store: HBaseStore, row: bytes = b"r") -> bytes:
    """Read a row, whose only cell holds its key; return the value."""
    value = store.read("t", [Get(row)])[0].cells[0].value
    assert value == row
    return value


BRIEF = 1.5
"""A timeout in seconds, for calls that get no answer. It is longer than the wait that says something about a gateway."""


@contextmanager
def brief(store: HBaseStore) -> Iterator[None]:
    """Bound each call of the block by :data:`BRIEF`.

    A test opens the connection before the block. Then nothing that must succeed in the block depends on the speed of the machine.
    """
    usual, store._client._timeout = store._client._timeout, BRIEF
    try:
        yield
    finally:
        store._client._timeout = usual


def silent_for(gateway: FakeGateway, *methods: str) -> None:
    def script(received: ReceivedCall) -> None:
        if received.method in methods:
            gateway.stopping.wait(30)

    gateway.script = script


def closes(_: ReceivedCall) -> None:
    raise Close


def until_used(gateway: Gateway) -> None:
    """Wait for the end of a probe, and for its success."""
    with gateway._mine().probe:
        assert gateway.resumes_at() is None


def until_probed(gateway: Gateway) -> None:
    with gateway._mine().probe:
        pass


def error_of(store: HBaseStore) -> StoreError:
    """Return the error of a write."""
    with pytest.raises(StoreError) as raised:
        store.write("t", [PUT])
    assert "HBase gateway at " in raised.value.message
    return raised.value


def errors_of_closing(store: HBaseStore, wait_until_begun: Callable[[], object]) -> list[type[BaseException]]:
    """Close a store while a thread waits in a read; return the types of the errors of that read, after its end."""
    raised: list[type[BaseException]] = []

    def call() -> None:
        try:
            read(store)
        except BaseException as error:
            raised.append(type(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    wait_until_begun()
    store.close()
    thread.join(10)
    return raised
