"""Tests of the change counter, for stores that have one: it shows every change, and nothing while there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hbasemk.errors import ClosedError
from hbasemk.store.abc import CellVersion, CheckAndWrite, Decision, Delete, DeleteBelow, Get, Scan, Store, Table
from hbasemk.testing.store.base import (
    FLAG,
    Base,
    D,
    OpenStore,
    Tables,
    accept,
    last_number,
    put,
    together,
    values,
)

CHANGES: dict[str, Callable[[Store, Tables, bytes], object]] = {
    "write": lambda store, tables, row: store.write(tables.many.name, [put(row, {b"b": b"1"})]),
    "write that is not durable": lambda store, tables, row: store.write(
        tables.many.name, [put(row, {b"b": b"1"})], durable=False
    ),
    "compare-and-set": lambda store, tables, row: store.check_and_write(
        tables.one.name, FLAG, b"no", put(row, {b"flag": b"yes"})
    ),
    "write and read": lambda store, tables, row: store.write_and_read(
        tables.many.name, [put(row, {b"b": b"1"})], [Get(row)]
    ),
    "compare-and-set and read": lambda store, tables, row: store.check_and_write_then_read(
        CheckAndWrite(tables.one.name, FLAG, b"no", put(row, {b"flag": b"yes"})), tables.many.name, Get(row)
    ),
    "deletion of a version": lambda store, tables, row: store.delete(
        tables.many.name, [Delete(row, [CellVersion(D, b"a", 5)])]
    ),
    "deletion of older versions": lambda store, tables, row: store.delete_below(
        tables.many.name, [DeleteBelow(row, [CellVersion(D, b"a", 6)])]
    ),
    "deletion of a row": lambda store, tables, row: store.delete_rows(tables.many.name, [row]),
    "forgotten arrival": lambda store, tables, _: store.forget_arrivals(tables.one.name, last_number(store, tables)),
    "transaction": lambda store, tables, row: store.write_if(
        tables.many.name,
        [put(row, {b"b": b"1"})],
        [],
        accept,
        Decision(tables.one.name, FLAG, b"no", put(row, {b"flag": b"yes"})),
    ),
}


def counter(store: Store) -> int:
    """Return the change counter of a store that has one."""
    found = store.change_counter()
    assert found is not None
    return found


class Changes(Base):
    """Tests of ``change_counter``; a store without one skips them."""

    @pytest.fixture(autouse=True)
    def _counts(self, request: pytest.FixtureRequest, store: Store) -> None:
        if "change_counter" in request.node.name and store.change_counter() is None:
            pytest.skip("this store has no change counter")

    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize("writer", [0, 1])
    def test_the_change_counter_shows_each_change_of_every_handle(
        self, handles: list[Store], tables: Tables, row: bytes, change: str, writer: int
    ) -> None:
        handles[0].write(tables.one.name, [put(row + b"2", {b"flag": b"no"}), put(row, {b"flag": b"no"})])
        handles[0].write(tables.many.name, [put(row, {b"a": b"0"}, 5)])
        before = [counter(handle) for handle in handles]
        CHANGES[change](handles[writer], tables, row)
        assert all(counter(handle) != old for handle, old in zip(handles, before, strict=True))

    def test_reading_keeps_the_change_counter(self, handles: list[Store], tables: Tables, row: bytes) -> None:
        handles[1].write(tables.many.name, [put(row, {b"a": b"1"})])
        before = counter(handles[0])
        for handle in handles:
            handle.read(tables.many.name, [Get(row)])
            handle.scan(tables.many.name, Scan(row, None, 1))
            counter(handle)
        assert counter(handles[0]) == before

    def test_the_change_counter_shows_that_a_table_was_dropped(self, handles: list[Store], new_table: Table) -> None:
        handles[0].create_tables([new_table])
        handles[0].write(new_table.name, [put(b"r", {b"a": b"1"})])
        before = [counter(handle) for handle in handles]
        handles[0].drop_tables([new_table])
        assert all(counter(handle) != old for handle, old in zip(handles, before, strict=True))

    def test_equal_change_counters_enclose_equal_data(self, handles: list[Store], tables: Tables, row: bytes) -> None:
        handles[1].write(tables.one.name, [put(row, {b"n": b"0"})])
        seen: dict[int, bytes] = {}
        over = threading.Event()

        def write() -> None:
            try:
                for number in range(1, 200):
                    handles[1].write(tables.one.name, [put(row, {b"n": b"%d" % number})], durable=False)
            finally:
                over.set()

        def watch() -> None:
            while not over.is_set():
                before = counter(handles[0])
                found = values(handles[0], tables.one, row)[b"n"]
                if counter(handles[0]) == before:
                    assert seen.setdefault(before, found) == found

        together([write, watch])
        assert seen.get(counter(handles[0]), b"199") == b"199"

    def test_the_change_counter_of_a_closed_store_raises(self, open_store: OpenStore, tables: Tables) -> None:
        store = open_store()
        store.verify(tables)
        counter(store)
        store.close()
        with pytest.raises(ClosedError):
            store.change_counter()
