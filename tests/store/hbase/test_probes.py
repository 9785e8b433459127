"""A gateway that failed is tried again later, by one probe at a time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.errors import ClosedError
from hbasemk.store.hbase import Address, HBaseStore, failover
from hbasemk.store.hbase.failover import FIRST_PAUSE, LONGEST_PAUSE
from hbasemk.store.hbase.handshake import open_connection
from hbasemk.testing.store.base import together
from tests.support.gateway import Clock, FakeGateway, speaker
from tests.support.gateway_stores import (
    closes,
    gateways_of,
    read,
    until_probed,
    until_used,
)

Open = Callable[..., HBaseStore]


def test_a_failed_gateway_is_used_again_when_it_answers(
    one: FakeGateway, two: FakeGateway, open_on: Open, clock: Clock
) -> None:
    clock.stop()
    store = open_on(one, two)
    one.script = closes
    read(store)
    one.script = lambda received: None
    connections = len(one.connections)
    read(store)
    assert len(one.connections) == connections
    clock.ahead += 2 * FIRST_PAUSE
    # This call starts the probe and uses the other gateway.
    read(store, b"starts")
    until_used(gateways_of(store)[0])
    read(store, b"again")
    assert len(one.connections) == connections + 1
    assert one.received[-1].request.what.row == b"again"
    assert two.received[-1].request.what.row == b"starts"


def test_one_probe_at_a_time_and_no_caller_waits_for_it(
    two: FakeGateway, open_on: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    answered: list[int] = []
    began, stop = threading.Event(), threading.Event()

    def counted(address: Address, *rest: Any) -> Any:
        if address.port == port:
            tried.append(1)
            began.set()
        return open_connection(address, *rest)

    def hang(sock: socket.socket) -> None:
        answered.append(1)
        if len(answered) > 1:
            stop.wait(30)

    monkeypatch.setattr(failover, "open_connection", counted)
    with speaker(hang) as port:
        # The first connection is closed at once, and its diagnosis opens another one.
        store = open_on(port, two, connect_timeout=0.2)
        # On a busy machine a connection to the other gateway may take longer.
        gateways_of(store)[1]._connect_timeout = 30
        read(store)
        stop.set()
        until_probed(gateways_of(store)[0])
        stop.clear()
        began.clear()
        before = len(tried)
        gateways_of(store)[0]._connect_timeout = 30
        clock.ahead += 2 * LONGEST_PAUSE
        together([lambda: read(store)] * 8)
        assert began.wait(30)
        together([lambda: read(store)] * 8)
        assert len(tried) == before + 1
        stop.set()
        store.close()
    assert len(two.received) == 17


def test_a_gateway_may_answer_one_thread_while_another_leaves_it_out(
    one: FakeGateway, two: FakeGateway, open_on: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = gateways_of(open_on(one, two))
    close_idle = first.pool.close_idle

    def answered_meanwhile() -> None:
        close_idle()
        first.succeeded()

    monkeypatch.setattr(first.pool, "close_idle", answered_meanwhile)
    first.failed(ClosedError("closed"), 0.0, waited_in_vain=False)
    assert first.resumes_at() is None


def test_pauses_grow_up_to_a_limit(
    two: FakeGateway, open_on: Open, clock: Clock, unused_port: Callable[[], int]
) -> None:
    clock.stop()
    store = open_on(unused_port(), two)
    first, _ = gateways_of(store)
    read(store)
    pauses = []
    for _ in range(12):
        resume_at = first.resumes_at()
        assert resume_at is not None
        pauses.append(resume_at - clock())
        clock.ahead += pauses[-1] + 0.001
        while first.resumes_at() == resume_at:
            read(store)
            until_probed(first)
    # Jitter: half to one and a half of the pause.
    assert 0 < pauses[0] < 1.5 * FIRST_PAUSE
    assert all(0.4 * LONGEST_PAUSE < pause <= 1.5 * LONGEST_PAUSE for pause in pauses[8:])


def test_a_gateway_that_accepts_connections_but_answers_no_call_has_growing_pauses(
    one: FakeGateway, two: FakeGateway, open_on: Open, clock: Clock
) -> None:
    store = open_on(one, two)
    first, _ = gateways_of(store)
    one.script = closes
    for failures in range(1, 5):
        read(store)
        assert first._mine().failures == failures
        clock.ahead += 2 * LONGEST_PAUSE
        read(store)
        until_used(first)
    one.script = lambda received: None
    read(store)
    assert first._mine().failures == 0


def test_a_call_succeeds_when_the_interpreter_starts_no_more_threads(
    one: FakeGateway, two: FakeGateway, open_on: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_on(one, two)
    one.script = closes
    read(store)
    clock.ahead += 2 * FIRST_PAUSE

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patched:
        patched.setattr("hbasemk.store.hbase.failover.start_thread", refuse)
        read(store)
    one.script = lambda received: None
    read(store)
    until_used(gateways_of(store)[0])


def test_closing_ends_a_probe(two: FakeGateway, open_on: Open, clock: Clock) -> None:
    held, stop = threading.Event(), threading.Event()
    tried: list[int] = []

    def hang(sock: socket.socket) -> None:
        tried.append(1)
        if len(tried) > 2:
            held.set()
            stop.wait(30)

    with speaker(hang) as port:
        store = open_on(port, two, connect_timeout=30)
        read(store)
        clock.ahead += 2 * FIRST_PAUSE
        read(store)
        assert held.wait(30)
        store.close()
        until_probed(gateways_of(store)[0])
        stop.set()
    with pytest.raises(ClosedError):
        read(store)
