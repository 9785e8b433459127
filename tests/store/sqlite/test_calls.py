"""Tests of the calls of the SQLite store: interrupts, time stamps, the log, and connections."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from hbasemk.store.abc import Get, NewCell, Put, Table
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore, cells, log_size
from tests.support.sqlite import FLAG, TABLES, flag


@pytest.mark.parametrize("seed", range(4))
def test_many_named_columns_are_read_as_in_memory(store: SqliteStore, memory: MemoryStore, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [b"%03d" % number for number in range(200)]
    deep = chance.sample(names, 10)
    for name in names:
        versions = chance.sample(range(1, 40), chance.choice((0, 1, 2, 30)) if name in deep else 1)
        for into in (store, memory) if versions else ():
            into.write("many", [Put(b"r", [NewCell(b"d", name, b"%d" % at, at) for at in versions])])
    statements: list[str] = []
    with store._connections._idle[0].sql as sql:
        sql.set_trace_callback(statements.append)
    for _ in range(100):
        first = chance.randrange(len(names))
        among = chance.choice((names[first : first + chance.randrange(5, 60)], names, deep))
        columns = [(b"d", name) for name in chance.choices([*among, b"", b"0005", b"zz"], k=chance.randrange(1, 40))]
        get = Get(
            b"r", columns, since=chance.choice((0, 7)), before=chance.choice((20, 50)), versions=chance.choice((1, 3))
        )
        assert [list(row.cells) for row in store.read("many", [get])] == [
            list(row.cells) for row in memory.read("many", [get])
        ], get
    del statements[:]
    assert (
        len(store.read("many", [Get(b"r", [(b"d", name) for name in sorted({*names} - {*deep})[:100]])])[0].cells)
        == 100
    )
    assert len([one for one in statements if one.startswith("SELECT qualifier")]) <= 12, statements


def _raise_memory_error(*_: object) -> None:
    raise MemoryError


class TestCalls:
    def test_a_connection_that_could_not_truncate_the_log_does_not_wait_in_later_calls(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_size, "WRITES_PER_LOG_CHECK", 1)
        store._connections._log._limit = 0

        def authorize(action: int, name: str | None, *_: str | None) -> int:
            is_checkpoint = action == sqlite3.SQLITE_PRAGMA and name == "wal_checkpoint"
            return sqlite3.SQLITE_DENY if is_checkpoint else sqlite3.SQLITE_OK

        for connection in store._connections._idle:
            connection.sql.set_authorizer(authorize)
        store.write("one", [flag(b"r")])
        assert store.read("one", [Get(b"r")])[0].cells[0].value == b"1"
        waits = [one.sql.execute("PRAGMA busy_timeout").fetchone()[0] for one in store._connections._idle]
        assert waits == [0]

    @pytest.mark.parametrize("families", [[b"d"], [b"d", b"e"]], ids=["single statement", "transaction"])
    def test_an_error_within_a_read_keeps_no_old_state(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, families: list[bytes]
    ) -> None:
        tables = [Table("t", (b"d", b"e"), 1)]
        with closing(SqliteStore(str(path), busy_timeout=0.1)) as store, closing(SqliteStore(str(path))) as other:
            for one in (store, other):
                one.create_tables(tables)
            other.write("t", [Put(b"r", [NewCell(b"d", b"%d" % number, b"1", 1) for number in range(100)])])
            store.read("t", [Get(b"r")])
            get = Get(b"r", families=families)
            with monkeypatch.context() as patch:
                patch.setattr(cells, "new_cell", _raise_memory_error)
                with pytest.raises(MemoryError) as raised:
                    store.read("t", [get])
            # The error refers to the cursor of a statement that has not ended.
            assert raised.value.__traceback__ is not None
            other.write("t", [Put(b"r", [NewCell(b"d", b"0", b"2", 2)])])
            assert store.read("t", [get])[0].cells[0].value == b"2"
            store.write("t", [Put(b"r", [NewCell(b"d", b"0", b"3", 3)])])

    def test_an_interrupted_write_leaves_nothing_and_the_store_usable(self, path: Path) -> None:
        interrupted = [True]

        def clock() -> int:
            if interrupted:
                raise KeyboardInterrupt
            return 5

        store = SqliteStore(str(path), clock=clock)
        store.create_tables(TABLES)
        for call in (
            lambda: store.write("one", [flag(b"r")]),
            lambda: store.check_and_write("one", FLAG, None, flag(b"r")),
        ):
            with pytest.raises(KeyboardInterrupt):
                call()
        interrupted.clear()
        assert store.read("one", [Get(b"r")])[0].cells == []
        store.write("one", [flag(b"r")])
        assert store.read("one", [Get(b"r")])[0].cells[0].timestamp == 5
        store.close()

    def test_a_write_is_stamped_when_it_happens_not_when_it_begins_to_wait(self, path: Path) -> None:
        now = [1000]
        store = SqliteStore(str(path), clock=lambda: now[0])
        store.create_tables(TABLES)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        writer = threading.Thread(target=lambda: store.write("one", [flag(b"r")]))
        writer.start()
        now[0] = 2000
        holder.execute("COMMIT")
        holder.close()
        writer.join()
        assert store.read("one", [Get(b"r")])[0].cells[0].timestamp == 2000
        store.close()

    def test_the_log_is_bounded_although_there_is_always_a_reader(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bound = 400_000
        monkeypatch.setattr(store._connections._log, "_limit", bound)
        monkeypatch.setattr(log_size, "LOG_BOUND", bound)
        store._connections.reading(lambda found: found.sql.execute("PRAGMA wal_autocheckpoint=50"))
        readers = [sqlite3.connect(path, isolation_level=None, check_same_thread=False) for _ in range(2)]
        finished = threading.Event()

        def read() -> None:
            # Each read begins before the other ends, so there is always a reader of an old state.
            while True:
                for reader, other in (readers, readers[::-1]):
                    reader.execute("BEGIN")
                    reader.execute("SELECT count(*) FROM hbasemk_tables").fetchone()
                    if other.in_transaction:
                        other.execute("COMMIT")
                    if finished.wait(0.002):
                        return

        thread = threading.Thread(target=read)
        thread.start()
        largest = 0
        for number in range(3000):
            store.write("one", [flag(b"%d" % (number % 50), b"x" * 1000)], durable=False)
            largest = max(largest, os.path.getsize(f"{path}-wal"))
        finished.set()
        thread.join()
        for reader in readers:
            reader.close()
        assert bound < largest < 6 * bound

    def test_a_stuck_reader_does_not_stop_the_writers(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_size, "LOG_TIMEOUT_MS", 1)
        monkeypatch.setattr(store._connections._log, "_limit", 50_000)
        stuck = sqlite3.connect(path, isolation_level=None)
        stuck.execute("BEGIN")
        stuck.execute("SELECT count(*) FROM hbasemk_tables").fetchone()
        for number in range(300):
            store.write("one", [flag(b"r", b"%d" % number * 200)], durable=False)
        stuck.close()
        assert store.read("one", [Get(b"r")])[0].cells[0].value == b"299" * 200

    def test_connections_of_ended_threads_are_reused(self, store: SqliteStore) -> None:
        for _ in range(50):
            thread = threading.Thread(target=lambda: store.read("one", [Get(b"r")]))
            thread.start()
            thread.join()
        assert len(store._connections._idle) == 1

    def test_a_call_during_closing_succeeds_and_leaves_nothing_open(self, path: Path) -> None:
        running, closed = threading.Event(), threading.Event()

        def clock() -> int:
            running.set()
            closed.wait(60)
            return 7

        store = SqliteStore(str(path), clock=clock)
        store.create_tables(TABLES)
        thread = threading.Thread(target=lambda: store.write("one", [flag(b"r")]))
        thread.start()
        running.wait(60)
        store.close()
        closed.set()
        thread.join()
        again = SqliteStore(str(path))
        assert again.read("one", [Get(b"r")])[0].cells[0].timestamp == 7
        again.close()
        # The last connection to a file removes the log.
        assert sorted(entry.name for entry in path.parent.iterdir()) == ["content.db"]
