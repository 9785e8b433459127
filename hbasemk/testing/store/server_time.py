"""Tests of cells that the server stamps with its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from hbasemk.store.abc import Cell, Get, NewCell, Put, Store
from hbasemk.testing.store.base import FLAG, Base, D, Tables, accept, put, read, values

CLOCKS_DIFFER_MS: Final = 60_000
"""The largest difference between the server's clock and that of the test, in ms."""


def now_ms() -> int:
    """Return the test's clock in ms since 1970."""
    return time.time_ns() // 1_000_000


class ServerTime(Base):
    """Tests of puts without timestamps."""

    @pytest.mark.parametrize("how", ["write", "check_and_write"])
    def test_a_cell_without_timestamp_gets_the_servers_time(
        self, store: Store, tables: Tables, row: bytes, how: str
    ) -> None:
        calls: dict[str, Callable[[Put], object]] = {
            "write": lambda one: store.write(tables.one.name, [one]),
            "check_and_write": lambda one: store.check_and_write(tables.one.name, FLAG, None, one),
        }
        before = now_ms() - CLOCKS_DIFFER_MS
        calls[how](put(row, {b"q": b"x"}))
        assert before <= read(store, tables.one, Get(row))[0].timestamp <= now_ms() + CLOCKS_DIFFER_MS

    def test_the_server_stamps_cells_with_the_clock_of_the_store(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        before = store.clock_ms()
        if before is None:
            pytest.skip("this store's clock takes a round trip")
        store.write(tables.one.name, [put(row, {b"q": b"x"})])
        after = store.clock_ms()
        assert after is not None
        assert before <= read(store, tables.one, Get(row))[0].timestamp <= after

    def test_one_put_may_mix_given_and_servers_timestamps(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [Put(row, [NewCell(D, b"given", b"1", 77), NewCell(D, b"now", b"2")])])
        given, now = read(store, tables.many, Get(row))
        assert given == Cell(D, b"given", 77, b"1")
        assert now.value == b"2"
        assert now.timestamp > 1_500_000_000_000

    def test_an_immediate_overwrite_hides_the_first_value(self, store: Store, tables: Tables, row: bytes) -> None:
        for number in range(20):
            store.write(tables.one.name, [put(row, {b"q": b"%d" % number})])
            assert values(store, tables.one, row) == {b"q": b"%d" % number}

    def test_a_set_with_the_servers_time_is_never_older_than_the_checked_cell(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        ahead = now_ms() + 3_600_000
        for table in (tables.one, tables.many):
            store.write(table.name, [put(row, {b"flag": b"future"}, ahead)])
            assert store.check_and_write(table.name, FLAG, b"future", put(row, {b"flag": b"next", b"p": b"x"}))
            assert values(store, table, row) == {b"flag": b"next", b"p": b"x"}
            stamps = {cell.qualifier: cell.timestamp for cell in read(store, table, Get(row))}
            assert stamps[b"flag"] >= ahead

    @pytest.mark.parametrize("how", ["write", "check_and_write", "write_if", "decision", "with_puts"])
    def test_in_a_store_with_transactions_a_put_is_never_older_than_what_it_replaces(
        self, store: Store, tables: Tables, row: bytes, how: str
    ) -> None:
        for table in (tables.one, tables.many):
            flag = row + b"flag of " + table.name.encode()
            decision = self.decision(tables, flag, None)._replace(table=table.name)
            calls: dict[str, Callable[[Put], object]] = {
                "write": lambda one: store.write(table.name, [one]),  # noqa: B023 - called at once
                "check_and_write": lambda one: store.check_and_write(table.name, FLAG, b"no", one),  # noqa: B023
                "write_if": lambda one: store.write_if(table.name, [one], [], accept, decision),  # noqa: B023
                "decision": lambda one: store.write_if(
                    tables.many.name,
                    [],
                    [],
                    accept,
                    decision._replace(expected=b"no", put=one),  # noqa: B023
                ),
                "with_puts": lambda one: store.write_if(
                    tables.many.name,
                    [],
                    [],
                    accept,
                    decision._replace(with_puts=[one]),  # noqa: B023
                ),
            }
            store.write(table.name, [put(row, {b"a": b"old", b"flag": b"no"}, 2**61)])
            calls[how](put(row, {b"a": b"new"}))
            assert values(store, table, row) == {b"a": b"new", b"flag": b"no"}
