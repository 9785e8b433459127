"""The counting store counts the rows, cells and bytes of calls, by table."""

from __future__ import annotations

from pathlib import Path

from hbasemk.store.abc import Decision, Get, NewCell, Put, Scan, Table
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import CountingStore, Traffic

TABLES = (Table("one", (b"d",), 3), Table("two", (b"d",), 1))


def test_writes_and_reads_are_counted() -> None:
    store = CountingStore(MemoryStore())
    store.create_tables(TABLES)
    store.write("one", [Put(b"row", [NewCell(b"d", b"q", b"12345", 7), NewCell(b"d", b"qq", b"", 7)])])
    # The row key, and the qualifier, value and timestamp of each cell.
    assert store.traffic() == Traffic(1, 0, 0, 0, 1, 2, 3 + (1 + 5 + 8) + (2 + 0 + 8))
    store.write("one", [Put(b"row", [NewCell(b"d", b"q", b"6", 8)])])
    store.traffic()
    assert len(store.read("one", [Get(b"row"), Get(b"none")])) == 2
    assert store.traffic() == Traffic(1, 1, 2, 3 + (1 + 1 + 8) + (2 + 0 + 8))
    store.scan("one", Scan(None, None, 10, versions=3))
    assert store.traffic() == Traffic(1, 1, 3, 3 + (1 + 1 + 8) + (1 + 5 + 8) + (2 + 0 + 8))
    assert store.traffic() == Traffic()


def test_a_compare_and_set_that_is_not_applied_is_counted() -> None:
    store = CountingStore(MemoryStore())
    store.create_tables(TABLES)
    put = Put(b"r", [NewCell(b"d", b"q", b"v", 1)])
    assert store.check_and_write("two", (b"d", b"q"), None, put)
    assert not store.check_and_write("two", (b"d", b"q"), None, put)
    store.write("one", [put])
    assert store.traffic("one") == Traffic(2, 0, 0, 0, 2, 2, 2 * (1 + 1 + 1 + 8))
    assert store.take() == {("check_and_write", "two"): 2, ("write", "one"): 1}


def test_a_store_transaction_is_one_call_that_reads_and_writes(tmp_path: Path) -> None:
    store = CountingStore(SqliteStore(str(tmp_path / "cells.db")))
    store.create_tables(TABLES)
    store.write("two", [Put(b"r", [NewCell(b"d", b"q", b"0", 1)])])
    store.traffic()
    store.take()
    puts = [Put(b"row", [NewCell(b"d", b"q", b"v", 1)])]
    decision = Decision("two", (b"d", b"q"), b"0", Put(b"r", [NewCell(b"d", b"q", b"1", 2)]))
    assert store.write_if("one", puts, [Get(b"row")], lambda rows: True, decision)
    first = store.traffic()
    assert (first.calls, first.rows_written, first.cells_written, first.bytes_written) == (1, 2, 2, 13 + 11)
    assert store.write_if("one", puts, [Get(b"row")], lambda rows: not rows[0].cells, decision) is None
    again = store.traffic()
    assert (again.calls, again.rows_read, again.cells_read, again.bytes_read) == (1, 1, 1, 13)
    assert store.take() == {("write_if", "one"): 2}
    store.close()
