"""A host name with several addresses: those that do not answer leave time for the others."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.errors import StoreNotAppliedError, StoreUnusableError
from hbasemk.store.hbase import Address, HBaseStore, Transport
from tests.support.gateway import FakeGateway, fake_gateway
from tests.support.gateway_stores import error_of, read


class Network:
    """Resolves the name "gateway"; connecting to one of ``silent`` takes all the time that it may take, on a fake clock.

    After ``failing_after`` attempts no host has a route.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[str] = []
        self.silent: set[str] = set()
        self.attempts: list[tuple[str, float | None]] = []
        self.failing_after: int | None = None
        self.now = 1000.0
        resolve, connect = socket.getaddrinfo, socket.socket.connect

        def resolve_name(host: str, *rest: Any, **options: Any) -> list[Any]:
            hosts = self.addresses if host == "gateway" else [host]
            return [found for one in hosts for found in resolve(one, *rest, **options)]

        def connect_in_time(sock: socket.socket, place: tuple[str, int]) -> None:
            timeout = sock.gettimeout()
            self.attempts.append((place[0], timeout))
            if place[0] in self.silent:
                self.now += timeout or 0.0
                raise TimeoutError("timed out")
            if self.failing_after is not None and len(self.attempts) > self.failing_after:
                raise OSError(errno.EHOSTUNREACH, "No route to host")
            connect(sock, place)

        monkeypatch.setattr(socket, "getaddrinfo", resolve_name)
        monkeypatch.setattr(socket.socket, "connect", connect_in_time)

    def open(self, port: int, **options: Any) -> HBaseStore:
        return HBaseStore([Address("gateway", port)], clock=lambda: self.now, **options)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


def test_an_address_that_does_not_answer_leaves_time_for_the_next(gateway: FakeGateway, network: Network) -> None:
    network.addresses = ["127.0.0.9", "127.0.0.1"]
    network.silent = {"127.0.0.9"}
    store = network.open(gateway.port, timeout=20, connect_timeout=8)
    read(store)
    assert network.attempts == [("127.0.0.9", 4.0), ("127.0.0.1", 4.0)]
    store.close()


def test_addresses_that_do_not_answer_share_the_time(network: Network) -> None:
    network.addresses = ["127.0.0.7", "127.0.0.8", "127.0.0.9"]
    network.silent = set(network.addresses)
    store = network.open(9090, timeout=20, connect_timeout=6)
    with pytest.raises(StoreNotAppliedError, match="no connection within 6 s"):
        read(store)
    assert network.attempts == [("127.0.0.7", 2.0), ("127.0.0.8", 2.0), ("127.0.0.9", 2.0)]
    store.close()


def test_an_address_that_refuses_leaves_all_its_time_to_the_next(
    network: Network, unused_port: Callable[[], int]
) -> None:
    network.addresses = ["127.0.0.1", "127.0.0.9"]
    network.silent = {"127.0.0.9"}
    store = network.open(unused_port(), timeout=20, connect_timeout=6)
    with pytest.raises(StoreNotAppliedError, match="no connection within 6 s"):
        read(store)
    assert network.attempts == [("127.0.0.1", 3.0), ("127.0.0.9", 6.0)]
    store.close()


def test_the_error_is_that_of_the_last_address(network: Network, unused_port: Callable[[], int]) -> None:
    network.addresses = ["127.0.0.9", "127.0.0.1"]
    network.silent = {"127.0.0.9"}
    store = network.open(unused_port(), timeout=20, connect_timeout=6)
    with pytest.raises(StoreNotAppliedError, match="cannot be reached.*refused"):
        read(store)
    store.close()


@pytest.mark.usefixtures("long_diagnosis")
def test_a_diagnosis_reaches_the_next_address(network: Network) -> None:
    network.addresses = ["127.0.0.9", "127.0.0.1"]
    network.silent = {"127.0.0.9"}
    with fake_gateway(Transport("framed")) as framed:
        store = network.open(framed.port, timeout=200, connect_timeout=80)
        error = error_of(store)
        assert isinstance(error, StoreUnusableError)
        assert "write transport=framed&protocol=binary" in error.message
        store.close()


def test_a_network_that_fails_during_a_diagnosis_is_an_error_of_the_store(network: Network) -> None:
    network.addresses = ["127.0.0.1"]
    with fake_gateway(Transport("framed")) as framed:
        store = network.open(framed.port)
        network.failing_after = 1
        error = error_of(store)
        assert isinstance(error, StoreNotAppliedError)
        assert "being stopped or started" in error.message
        store.close()
