"""Tests of limits and closing: a store rejects invalid puts before it writes, and rejects calls after closing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.errors import ClosedError, LimitError, StoreUnusableError
from hbasemk.store.abc import MAX_TIMESTAMP, CellVersion, Delete, DeleteBelow, Get, NewCell, Put, Scan, Store
from hbasemk.testing.store.base import Base, D, OpenStore, Tables, put, read, values


class Bounds(Base):
    """Tests of limits, unknown tables and closing."""

    def _invalid_puts(self, store: Store, row: bytes) -> dict[str, Put]:
        limits = store.limits
        return {
            "a cell over the limit": put(row, {b"q": bytes(limits.cell + 1)}, 1),
            "an empty row key": put(b"", {b"q": b"x"}, 1),
            "a row key over the limit": put(row + bytes(limits.row_key + 1 - len(row)), {b"q": b"x"}, 1),
            "a qualifier over the limit": put(row, {bytes(limits.row_key + 1): b"x"}, 1),
            "a put without cells": Put(row, []),
            "a negative timestamp": put(row, {b"q": b"x"}, -1),
            "the timestamp that means now": put(row, {b"q": b"x"}, MAX_TIMESTAMP),
            "a timestamp of 65 bits": put(row, {b"q": b"x"}, 2**64),
            "a put with a negative timestamp": Put(row, [NewCell(D, b"q", b"x", 1)], -1),
        }

    @pytest.mark.parametrize(
        "problem",
        [
            "a cell over the limit",
            "an empty row key",
            "a row key over the limit",
            "a qualifier over the limit",
            "a put without cells",
            "a negative timestamp",
            "the timestamp that means now",
            "a timestamp of 65 bits",
            "a put with a negative timestamp",
        ],
    )
    def test_an_invalid_put_is_rejected_before_anything_is_written(
        self, store: Store, tables: Tables, row: bytes, problem: str
    ) -> None:
        bad = self._invalid_puts(store, row)[problem]
        good = put(row, {b"good": b"x"}, 1)
        with pytest.raises(LimitError):
            store.write(tables.many.name, [good, bad])
        with pytest.raises(LimitError):
            store.check_and_write(tables.many.name, (D, b"good"), None, bad)
        if bad.cells and bad.row == row:
            with pytest.raises(LimitError):
                store.check_and_write(
                    tables.many.name, (D, b"good"), None, bad._replace(cells=[*good.cells, *bad.cells])
                )
        assert values(store, tables.many, row) == {}
        # The handle remains usable.
        store.write(tables.many.name, [good])
        assert values(store, tables.many, row) == {b"good": b"x"}

    def test_values_and_keys_at_the_limits_are_accepted(self, store: Store, tables: Tables, row: bytes) -> None:
        value = b"\x00\xff" * (store.limits.cell // 2) + b"x" * (store.limits.cell % 2)
        store.write(tables.many.name, [put(row, {b"q": value, b"r": b"beside it"}, 1)])
        assert values(store, tables.many, row) == {b"q": value, b"r": b"beside it"}
        long = row + b"\xff" * (store.limits.row_key - len(row))
        store.write(tables.many.name, [put(long, {b"q": b"long"}, 1)])
        assert values(store, tables.many, long) == {b"q": b"long"}
        assert [found.key for found in store.scan(tables.many.name, Scan(long, None, 1))] == [long]

    def test_a_long_qualifier_is_accepted(self, store: Store, tables: Tables, row: bytes) -> None:
        name = b"n" * (store.limits.row_key - len(row))
        store.write(tables.many.name, [Put(row, [NewCell(D, name, b"x", 1)])])
        assert [cell.qualifier for cell in read(store, tables.many, Get(row))] == [name]

    def _calls(self, store: Store, table: str) -> dict[str, Callable[[], object]]:
        return {
            "read": lambda: store.read(table, [Get(b"r")]),
            "scan": lambda: store.scan(table, Scan(None, None, 1)),
            "write": lambda: store.write(table, [put(b"r", {b"q": b"x"})]),
            "check_and_write": lambda: store.check_and_write(table, (D, b"q"), None, put(b"r", {b"q": b"x"})),
            "delete": lambda: store.delete(table, [Delete(b"r", [CellVersion(D, b"q", 1)])]),
            "delete_below": lambda: store.delete_below(table, [DeleteBelow(b"r", [CellVersion(D, b"q", 1)])]),
            "delete_rows": lambda: store.delete_rows(table, [b"r"]),
        }

    def test_a_call_on_a_missing_table_raises_an_error_that_names_it(
        self, store: Store, tables: Tables, prefix: str
    ) -> None:
        name = prefix + "nowhere"
        for make in self._calls(store, name).values():
            with pytest.raises(StoreUnusableError, match=name):
                make()
        assert values(store, tables.many, b"nowhere") == {}

    def test_a_closed_store_rejects_every_call(self, open_store: OpenStore, tables: Tables, store: Store) -> None:
        closed = open_store()
        closed.read(tables.many.name, [Get(b"r")])
        closed.close()
        closed.close()
        calls = self._calls(closed, tables.many.name) | {
            "create_tables": lambda: closed.create_tables([tables.many]),
            "verify": lambda: closed.verify([tables.many]),
            "drop_tables": lambda: closed.drop_tables([tables.many]),
        }
        for make in calls.values():
            with pytest.raises(ClosedError):
                make()
        # Other handles on the same data remain usable.
        store.verify(tables)

    def test_an_unused_store_can_be_closed(self, open_store: OpenStore, tables: Tables) -> None:
        closed = open_store()
        closed.close()
        with pytest.raises(ClosedError):
            closed.read(tables.many.name, [Get(b"r")])

    def test_a_store_reports_its_location_and_limits(self, store: Store) -> None:
        assert store.location
        assert store.batch_rows >= 1
        assert isinstance(store.supports_parallel_calls, bool)
        assert store.limits.cell >= 1024 * 1024
        assert store.limits.row_key >= 4096
