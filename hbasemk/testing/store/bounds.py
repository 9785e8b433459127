"""Tests of limits and closing: a store rejects invalid puts before it writes, and rejects calls after closing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from hbasemk.errors import ClosedError, LimitError, StoreUnusableError
from hbasemk.store.abc import (
    MAX_TIMESTAMP,
    CellVersion,
    CheckAndWrite,
    Decision,
    Delete,
    DeleteBelow,
    Get,
    NewCell,
    Page,
    Put,
    Scan,
    Store,
)
from hbasemk.testing.store.base import FLAG, Base, D, OpenStore, Tables, accept, put, read, values


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
        size = min(store.limits.cell, store.limits.together - len(row) - 1)
        value = b"\x00\xff" * (size // 2) + b"x" * (size % 2)
        store.write(tables.many.name, [put(row, {b"q": value, b"r": b"beside it"}, 1)])
        assert values(store, tables.many, row) == {b"q": value, b"r": b"beside it"}
        long = row + b"\xff" * (store.limits.row_key - len(row))
        store.write(tables.many.name, [put(long, {b"q": b"long"}, 1)])
        assert values(store, tables.many, long) == {b"q": b"long"}
        assert [found.key for found in store.scan(tables.many.name, Scan(long, None, 1))] == [long]

    def test_a_cell_that_is_too_large_with_its_key_is_rejected(self, store: Store, tables: Tables, row: bytes) -> None:
        limits = store.limits
        if limits.surely == limits.cell:
            pytest.skip("every value within its limit is accepted with every key")
        key, name = row + b"k" * (limits.row_key - len(row)), b"q" * limits.row_key
        value = bytes(limits.together - 2 * limits.row_key + 1)
        with pytest.raises(LimitError) as raised:
            store.write(tables.many.name, [put(row, {b"good": b"1"}, 1), put(key, {name: value}, 1)])
        found = raised.value
        assert (found.row, found.column, found.size) == (key, (D, name), limits.together + 1)
        assert values(store, tables.many, row) == {}

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
            "write_and_read": lambda: store.write_and_read(table, [put(b"r", {b"q": b"x"})], [Get(b"r")]),
            "check_and_write_then_read": lambda: store.check_and_write_then_read(
                CheckAndWrite(table, (D, b"q"), None, put(b"r", {b"q": b"x"})), table, Get(b"r")
            ),
        }

    def _calls_of_transactions(self, store: Store, table: str) -> dict[str, Callable[[], object]]:
        decision = Decision(table, FLAG, None, put(b"r", {b"flag": b"yes"}))
        return {
            "write_if": lambda: store.write_if(table, [], [], accept, decision),
            "arrivals": lambda: store.arrivals(table, 0, 1, (FLAG,)),
            "forget_arrivals": lambda: store.forget_arrivals(table, 0),
        }

    def test_a_call_on_a_missing_table_raises_an_error_that_names_it(
        self, store: Store, tables: Tables, prefix: str
    ) -> None:
        name = prefix + "nowhere"
        calls = self._calls(store, name)
        if store.supports_transactions:
            calls |= self._calls_of_transactions(store, name)
        for make in calls.values():
            with pytest.raises(StoreUnusableError, match=name):
                make()
        assert values(store, tables.many, b"nowhere") == {}

    def test_a_closed_store_rejects_every_call(self, open_store: OpenStore, tables: Tables, store: Store) -> None:
        closed = open_store()
        closed.read(tables.many.name, [Get(b"r")])
        closed.close()
        closed.close()
        name = tables.one.name
        calls = self._calls(closed, name) | {
            "create_tables": lambda: closed.create_tables([tables.many]),
            "verify": lambda: closed.verify([tables.many]),
            "drop_tables": lambda: closed.drop_tables([tables.many]),
            "read without gets": lambda: closed.read(name, []),
            "write without puts": lambda: closed.write(name, []),
            "delete of nothing": lambda: closed.delete(name, []),
            "deletion of no rows": lambda: closed.delete_rows(name, []),
        }
        if store.supports_transactions:
            calls |= self._calls_of_transactions(closed, name)
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

    def test_a_call_with_an_unknown_family_is_rejected(self, store: Store, tables: Tables, row: bytes) -> None:
        name, unknown = tables.many.name, b"x"
        one, bad = CellVersion(unknown, b"q", 1), put(row, {b"q": b"1"}, 1, unknown)
        calls: dict[str, Callable[[], object]] = {
            "a put": lambda: store.write(name, [bad]),
            "the put of a compare-and-set": lambda: store.check_and_write(name, (D, b"q"), None, bad),
            "the column of a compare-and-set": lambda: store.check_and_write(
                name, (unknown, b"q"), None, put(row, {b"q": b"1"})
            ),
            "families of a get": lambda: store.read(name, [Get(row, families=[unknown])]),
            "columns of a get": lambda: store.read(name, [Get(row, columns=[(unknown, b"q")])]),
            "the page of a get": lambda: store.read(name, [Get(row, page=Page(unknown, None, 1))]),
            "families of a scan": lambda: store.scan(name, Scan(row, row + b"\xff", 10, families=[unknown])),
            "columns of a scan": lambda: store.scan(name, Scan(row, row + b"\xff", 10, columns=[(unknown, b"q")])),
            "a delete": lambda: store.delete(name, [Delete(row, [one])]),
            "columns of a range of versions": lambda: store.delete_below(name, [DeleteBelow(row, [one])]),
            "families of a range of versions": lambda: store.delete_below(name, [DeleteBelow(row, (), [(unknown, 1)])]),
        }
        accepted = []
        for what, make in calls.items():
            with contextlib.suppress(StoreUnusableError):
                make()
                accepted.append(what)
        assert accepted == []
        assert values(store, tables.many, row) == {}
