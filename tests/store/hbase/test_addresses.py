"""A host name with several addresses: those that do not answer leave time for the others."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.errors import StoreNotAppliedError, StoreUnusableError
from hbasemk.store.hbase import Address, HBaseStore, Transport
from tests.support.forked import in_a_child
from tests.support.gateway import FakeGateway, fake_gateway
from tests.support.gateway_stores import error_of, gateways_of, read


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


class Resolver:
    """Resolves the name "gateway" only after :attr:`answers` is set, to an address or an error; counts the lookups."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.error: Exception | None = None
        self.lookups = 0
        resolve = socket.getaddrinfo

        def resolve_name(host: str, *rest: Any, **options: Any) -> Any:
            if host != "gateway" or options.get("flags"):
                return resolve(host, *rest, **options)
            self.lookups += 1
            self.answers.wait(60)
            if self.error is not None:
                raise self.error
            return resolve("127.0.0.1", *rest, **options)

        monkeypatch.setattr(socket, "getaddrinfo", resolve_name)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver(monkeypatch)
    yield made
    made.answers.set()
    # The next test must not wait for a lookup of this one.
    for thread in threading.enumerate():
        if thread.name == "hbasemk-resolver":
            thread.join(60)


def test_a_silent_name_server_leaves_the_call_its_time_limit(gateway: FakeGateway, resolver: Resolver) -> None:
    store = HBaseStore([Address("gateway", gateway.port)], timeout=20, connect_timeout=0.2)
    for _ in range(2):
        with pytest.raises(StoreNotAppliedError, match=r"the host name was not resolved within \S+ s; check the name"):
            read(store)
    assert resolver.lookups == 1
    resolver.answers.set()
    patient = HBaseStore([Address("gateway", gateway.port)], timeout=20)
    read(patient)
    for opened in (store, patient):
        opened.close()


def test_a_silent_name_server_leaves_time_for_another_gateway(gateway: FakeGateway, resolver: Resolver) -> None:
    addresses = [Address("gateway", 9090), Address("127.0.0.1", gateway.port)]
    for _ in range(4):
        store = HBaseStore(addresses, timeout=20, connect_timeout=0.2)
        # On a busy machine a connection to the other gateway may take longer.
        gateways_of(store)[1]._connect_timeout = 30
        read(store)
        store.close()
    assert resolver.lookups <= 1


def test_a_name_that_cannot_be_resolved_is_named(resolver: Resolver) -> None:
    resolver.answers.set()
    resolver.error = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    store = HBaseStore([Address("gateway", 9090)], timeout=20)
    for _ in range(2):
        error = error_of(store)
        assert isinstance(error, StoreNotAppliedError)
        assert "gateway:9090: the host name cannot be resolved ([Errno -3] Temporary failure" in error.message
        assert "thrift2" not in error.message
    assert resolver.lookups == 2
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_a_child_looks_a_name_up_itself(gateway: FakeGateway, resolver: Resolver) -> None:
    store = HBaseStore([Address("gateway", gateway.port)], timeout=20, connect_timeout=0.2)
    with pytest.raises(StoreNotAppliedError, match="not resolved"):
        read(store)

    def child() -> None:
        resolver.answers.set()
        own = HBaseStore([Address("gateway", gateway.port)], timeout=20)
        read(own)
        own.close()

    in_a_child(child)
    store.close()
