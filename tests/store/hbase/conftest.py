"""Fixtures of the tests of the HBase backend: fake gateways, and stores on them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from hbasemk.store.hbase import Address, HBaseStore, Transport, failover, handshake
from tests.support.gateway import Clock, FakeGateway, fake_gateway
from tests.support.gateway_stores import gateways_of

Open = Callable[..., HBaseStore]


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with fake_gateway() as gateway:
        yield gateway


@pytest.fixture
def one() -> Iterator[FakeGateway]:
    with fake_gateway() as gateway:
        yield gateway


@pytest.fixture
def two() -> Iterator[FakeGateway]:
    with fake_gateway() as gateway:
        yield gateway


@pytest.fixture
def unused_port() -> Iterator[Callable[[], int]]:
    """Each call returns another port that refuses connections, and that no process can take before the end of the test."""
    with ExitStack() as stack:

        def reserve() -> int:
            reserved = stack.enter_context(socket.socket())
            reserved.bind(("127.0.0.1", 0))
            return int(reserved.getsockname()[1])

        yield reserve


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that failed stays left out until the end of the test, however slow the machine is."""
    monkeypatch.setattr(failover, "FIRST_PAUSE", 3600)
    monkeypatch.setattr(failover, "LONGEST_PAUSE", 3600)


@pytest.fixture
def long_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that closes a connection is asked for its settings for as long as a slow machine needs."""
    monkeypatch.setattr(handshake, "_DIAGNOSIS_SECONDS", 60)


@pytest.fixture
def open_on(clock: Clock) -> Iterator[Open]:
    opened: list[HBaseStore] = []

    def open_one(*gateways: FakeGateway | int, **options: Any) -> HBaseStore:
        """Open a store that prefers the gateways in this order."""
        ports = [gateway if isinstance(gateway, int) else gateway.port for gateway in gateways]
        store = HBaseStore([Address("127.0.0.1", port) for port in ports], clock=clock, **options)
        gateways_of(store)  # fixes the order
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def open_store(gateway: FakeGateway, open_on: Open) -> Open:
    return partial(open_on, gateway)


@pytest.fixture
def store(open_store: Callable[..., HBaseStore]) -> HBaseStore:
    return open_store()


@pytest.fixture
def open_over() -> Iterator[Callable[..., HBaseStore]]:
    opened: list[HBaseStore] = []

    def open_one(port: int, transport: Transport, host: str = "127.0.0.1", **options: Any) -> HBaseStore:
        opened.append(HBaseStore([Address(host, port)], transport=transport, **{"timeout": 10, **options}))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
