"""Forked children and their connections to a gateway."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from hbasemk.errors import ClosedError
from hbasemk.store.hbase import HBaseStore
from hbasemk.testing.store.base import together
from tests.support.gateway import Clock, FakeGateway
from tests.support.gateway_stores import (
    closes,
    gateways_of,
    read,
)

Open = Callable[..., HBaseStore]


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
def test_a_child_that_does_not_use_the_store_closes_the_descriptors_too(
    gateway: FakeGateway, store: HBaseStore
) -> None:
    read(store)
    ours = next(iter(store._client._gateways._all[0].pool._pool.wires)).sock.fileno()

    def child() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(ours)

    in_child(child)
    assert read(store, b"parent") == b"parent"
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


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_judges_the_gateways_itself(
    one: FakeGateway, two: FakeGateway, open_on: Open, clock: Clock
) -> None:
    store = open_on(one, two)
    first, _ = gateways_of(store)
    one.script = closes
    read(store)
    one.script = lambda received: None
    first._mine().probe.acquire()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        gateways_of(store)
        read(store, b"child")
        os._exit(0 if first.resumes_at() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert one.received[-1].request.what.row == b"child"
    assert first.resumes_at() is not None
