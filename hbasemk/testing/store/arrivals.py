"""Tests of the order of writes, for stores that keep it: each write has a number, and nothing is missed."""

from __future__ import annotations

from functools import partial

import pytest

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import Arrivals, CellVersion, Decision, Delete, DeleteBelow, Row, Store
from hbasemk.testing.store.base import FLAG, Base, D, Tables, accept, last_number, news, plain, put, together


class OrderOfWrites(Base):
    """Tests of ``arrivals``; a store without transactions runs only the test of the error that it raises."""

    def test_order_of_writes_raises_where_it_is_not_kept(self, store: Store, tables: Tables) -> None:
        if not store.supports_transactions:
            with pytest.raises(NotImplementedError):
                news(store, tables)
            with pytest.raises(NotImplementedError):
                store.forget_arrivals(tables.one.name, 1)

    def test_arrivals_of_a_table_that_keeps_none_raise_an_error(self, store: Store, tables: Tables) -> None:
        with pytest.raises((NotImplementedError, StoreUnusableError)):
            store.arrivals(tables.many.name, 0, 10, (FLAG,))

    def test_arrivals_list_rows_in_the_order_of_their_writes(self, store: Store, tables: Tables, row: bytes) -> None:
        begin = last_number(store, tables)
        store.write(tables.one.name, [put(row + b"2", {b"flag": b"a"}), put(row + b"1", {b"flag": b"b"})])
        assert store.check_and_write(tables.one.name, FLAG, b"b", put(row + b"1", {b"flag": b"c"}))
        store.write(tables.one.name, [put(row + b"0", {b"flag": b"d", b"other": b"x"})])
        found = news(store, tables, begin)
        assert [(one.key, [cell.value for cell in one.cells]) for one in found.rows] == [
            (row + b"2", [b"a"]),
            (row + b"1", [b"c"]),
            (row + b"0", [b"d"]),
        ]
        assert found.complete
        assert found.last == begin + 4
        assert news(store, tables, found.last) == Arrivals(found.last, [], complete=True)

    def test_arrivals_of_many_writes_come_in_parts(self, store: Store, tables: Tables, row: bytes) -> None:
        begin = last_number(store, tables)
        for number in range(5):
            store.write(tables.one.name, [put(row + bytes([number % 3]), {b"flag": bytes([65 + number])})])
        first = news(store, tables, begin, 3)
        assert [one.key[-1] for one in first.rows] == [0, 1, 2]
        assert not first.complete
        rest = news(store, tables, first.last, 3)
        assert [one.key[-1] for one in rest.rows] == [0, 1]
        assert rest.complete
        assert [one.key[-1] for one in news(store, tables, begin, 5).rows] == [2, 0, 1]

    def test_arrivals_number_only_what_was_written(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        begin = last_number(store, tables)
        assert not store.check_and_write(tables.one.name, FLAG, b"yes", put(row, {b"flag": b"maybe"}))
        decision = Decision(tables.one.name, FLAG, b"no", put(row, {b"flag": b"yes"}))
        assert store.write_if(tables.many.name, [], [], lambda _: False, decision) is None
        store.delete_rows(tables.one.name, [row + b"absent"])
        assert last_number(store, tables) == begin
        assert store.write_if(tables.many.name, [], [], accept, decision) == begin + 1
        assert last_number(store, tables) == begin + 1

    def test_arrivals_show_deleted_rows_without_cells(self, store: Store, tables: Tables, row: bytes) -> None:
        begin = last_number(store, tables)
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        store.delete_rows(tables.one.name, [row])
        assert news(store, tables, begin).rows == [Row(row, [])]
        assert last_number(store, tables) == begin + 1

    def test_arrivals_keep_rows_whose_cells_are_deleted(self, store: Store, tables: Tables, row: bytes) -> None:
        begin = last_number(store, tables)
        store.write(tables.one.name, [put(row + name, {b"flag": b"x"}, 5) for name in (b"1", b"2")])
        store.delete(tables.one.name, [Delete(row + b"1", [CellVersion(D, b"flag", 5)])])
        store.delete_below(tables.one.name, [DeleteBelow(row + b"2", (), [(D, 9)])])
        assert plain(news(store, tables, begin).rows) == [(row + b"1", []), (row + b"2", [])]
        assert last_number(store, tables) == begin + 2

    def test_arrivals_that_are_forgotten_keep_their_numbers(self, store: Store, tables: Tables, row: bytes) -> None:
        begin = last_number(store, tables)
        for number in range(3):
            store.write(tables.one.name, [put(row + bytes([number]), {b"flag": b"a"})])
        store.forget_arrivals(tables.one.name, begin + 2)
        rest = news(store, tables, begin)
        assert ([one.key for one in rest.rows], rest.last, rest.complete) == ([row + b"\x02"], begin + 3, True)
        assert news(store, tables, begin + 1) == rest == news(store, tables)
        # The last number stays, so that the next one is new.
        store.forget_arrivals(tables.one.name, begin + 9)
        assert news(store, tables) == rest
        store.write(tables.one.name, [put(row, {b"flag": b"b"})])
        store.forget_arrivals(tables.one.name, begin + 3)
        last = news(store, tables)
        assert ([one.key for one in last.rows], last.last) == ([row], begin + 4)
        decision = Decision(tables.one.name, FLAG, b"b", put(row, {b"flag": b"c"}), (tables.one.name, begin + 3))
        assert store.write_if(tables.many.name, [], [], accept, decision) == 0
        assert store.write_if(
            tables.many.name, [], [], accept, decision._replace(unchanged=(tables.one.name, begin + 4))
        )

    def test_arrivals_reach_every_handle_once_and_in_one_order(
        self, handles: list[Store], store: Store, tables: Tables, row: bytes
    ) -> None:
        begin = last_number(store, tables)
        each = 20

        def write(number: int) -> list[bytes]:
            for turn in range(each):
                key = row + bytes([number, turn])
                decision = Decision(tables.one.name, FLAG, None, put(key, {b"flag": b"yes"}))
                handle = handles[number % len(handles)]
                if turn % 2:
                    assert handle.write_if(tables.many.name, [put(key, {b"a": b"1"}, 5)], [], accept, decision)
                else:
                    handle.write(tables.one.name, [put(key, {b"flag": b"yes"})])
            return []

        def follow(number: int) -> list[bytes]:
            seen: list[bytes] = []
            cursor = begin
            while len(seen) < 3 * each:
                found = news(handles[number % len(handles)], tables, cursor, 7)
                cursor = found.last
                assert all(one.cells for one in found.rows)
                seen += [one.key for one in found.rows]
            return seen

        calls = [partial(write, number) for number in range(3)]
        calls += [partial(follow, number) for number in range(3)]
        orders = together(calls)[3:]
        assert orders[0] == orders[1] == orders[2]
        assert len(set(orders[0])) == 3 * each
