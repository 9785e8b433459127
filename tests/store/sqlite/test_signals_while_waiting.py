"""The handler of a signal that arrives while a call waits for the file runs when the call has given everything back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from hbasemk.store.sqlite import SqliteStore
from tests.support.sqlite import TABLES, flag


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "content.db", busy_timeout=30)
    made.create_tables(TABLES)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def handler_comes_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, before)


def test_a_handler_may_wait_for_a_thread_that_writes(store: SqliteStore) -> None:
    """As a program does that ends its threads after SIGTERM."""
    writing, over = threading.Event(), threading.Event()

    def hold() -> None:
        def call(_: object) -> None:
            writing.set()
            over.wait(20)

        store._connections.writing(call)
        store.write("one", [flag(b"thread")])

    thread = threading.Thread(target=hold)
    ended: list[bool] = []

    def handle(number: int, frame: FrameType | None) -> None:
        over.set()
        thread.join(20)
        ended.append(not thread.is_alive())

    signal.signal(signal.SIGALRM, handle)
    thread.start()
    assert writing.wait(20)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGALRM)).start()
    store.write("one", [flag(b"main")])
    assert ended == [True]


def test_a_handler_finds_no_connection_in_use_while_another_process_writes(store: SqliteStore, tmp_path: Path) -> None:
    locked, over = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            other = SqliteStore(tmp_path / "content.db", busy_timeout=30)

            def call(_: object) -> None:
                os.write(locked[1], b"x")
                os.read(over[0], 1)

            other._connections.writing(call)
            other.close()
            code = 0
        finally:
            os._exit(code)
    assert os.read(locked[0], 1) == b"x"
    found: list[tuple[int, bool]] = []

    def handle(number: int, frame: FrameType | None) -> None:
        found.append((store._connections._in_use, store._connections._writing.locked()))
        # A fork waits until no connection is in use.
        forked = os.fork()
        if not forked:
            os._exit(0)
        assert os.waitpid(forked, 0)[1] == 0
        os.write(over[1], b"x")

    signal.signal(signal.SIGALRM, handle)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGALRM)).start()
    store.write("one", [flag(b"main")])
    assert found == [(0, False)]
    assert os.waitpid(child, 0)[1] == 0
