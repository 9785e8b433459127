"""Tests of transactions, for stores that support them: all or nothing, isolated from other calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pytest

from hbasemk.errors import LimitError, StoreUnusableError
from hbasemk.store.abc import Cell, Decision, Get, NewCell, Put, Row, Store
from hbasemk.testing.store.base import (
    FLAG,
    Base,
    D,
    Tables,
    accept,
    last_number,
    news,
    put,
    read,
    together,
    values,
)


class MadeLater(Iterable[Get]):
    """Gets that count how often a store iterates over them."""

    def __init__(self, gets: Sequence[Get]) -> None:
        self.gets = gets
        self.iterations = 0

    def __iter__(self) -> Iterator[Get]:
        self.iterations += 1
        return iter(self.gets)


class Transactions(Base):
    """Tests of ``write_if``; a store without transactions runs only the test of the error that it raises."""

    def test_write_if_raises_where_it_is_not_supported(self, store: Store, tables: Tables, row: bytes) -> None:
        if not store.supports_transactions:
            with pytest.raises(NotImplementedError):
                store.write_if(tables.many.name, [put(row, {b"a": b"1"}, 5)], [], accept, self.decision(tables, row))

    def test_a_transaction_writes_all_puts(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        puts = [put(row, {b"a": b"1"}, 5), put(row + b"2", {b"b": b"2"}, 5)]
        assert store.write_if(tables.many.name, puts, [], accept, self.decision(tables, row))
        assert values(store, tables.one, row) == {b"flag": b"yes"}
        assert values(store, tables.many, row) == {b"a": b"1"}
        assert values(store, tables.many, row + b"2") == {b"b": b"2"}

    def test_a_transaction_may_be_repeated(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no", b"other": b"no"})])
        decision = Decision(tables.one.name, (D, b"other"), b"no", put(row, {b"flag": b"yes"}))
        for _ in range(2):
            assert store.write_if(tables.many.name, [put(row, {b"a": b"1"}, 5)], [], accept, decision)
        assert values(store, tables.one, row) == {b"flag": b"yes", b"other": b"no"}
        assert values(store, tables.many, row) == {b"a": b"1"}

    def test_a_transaction_whose_compare_and_set_fails_writes_nothing(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"gone"})])
        puts = [put(row, {b"a": b"1"}, 5)]
        assert store.write_if(tables.many.name, puts, [], accept, self.decision(tables, row)) == 0
        assert store.write_if(tables.many.name, puts, [], accept, self.decision(tables, row + b"absent")) == 0
        assert values(store, tables.one, row) == {b"flag": b"gone"}
        assert values(store, tables.many, row) == {}

    def test_a_transaction_passes_the_previous_state_to_judge(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        store.write(tables.many.name, [put(row, {b"a": b"old"}, 3)])
        gets = [Get(row, columns=[(D, b"a")], since=2), Get(row + b"absent")]
        seen: list[list[Row]] = []

        def no(rows: list[Row]) -> bool:
            seen.append(rows)
            return False

        puts = [put(row, {b"a": b"new"}, 5)]
        assert store.write_if(tables.many.name, puts, gets, no, self.decision(tables, row)) is None
        assert [[cell.value for cell in found.cells] for found in seen[0]] == [[b"old"], []]
        assert values(store, tables.many, row) == {b"a": b"old"}
        assert values(store, tables.one, row) == {b"flag": b"no"}

    def test_a_transaction_takes_the_gets_from_one_iteration_when_it_reads(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        name = tables.one.name
        store.write(name, [put(row, {b"flag": b"no"})])
        store.write(tables.many.name, [put(row, {b"a": b"old"}, 3)])
        gets = MadeLater([Get(row), Get(row + b"absent")])
        seen: list[list[bytes]] = []

        def judge(rows: list[Row]) -> bool:
            assert gets.iterations == len(seen) + 1
            seen.append([found.key for found in rows])
            return False

        for number in range(2):
            assert store.write_if(tables.many.name, [], gets, judge, self.decision(tables, row)) is None
            assert gets.iterations == number + 1
        assert seen == [[row, row + b"absent"]] * 2
        since = (name, last_number(store, tables))
        assert store.write_if(tables.many.name, [], gets, judge, self.decision(tables, row), unchanged_since=since)
        assert gets.iterations == 2

    def test_an_error_in_the_gets_of_a_transaction_writes_nothing(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])

        def broken() -> Iterator[Get]:
            yield Get(row)
            raise ZeroDivisionError

        puts, decision = [put(row, {b"a": b"1"}, 5)], self.decision(tables, row)
        with pytest.raises(ZeroDivisionError):
            store.write_if(tables.many.name, puts, broken(), accept, decision)
        assert values(store, tables.many, row) == {}
        assert store.write_if(tables.many.name, puts, [Get(row)], accept, decision)
        assert values(store, tables.many, row) == {b"a": b"1"}

    def test_a_transaction_also_writes_the_other_rows_of_its_decision(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"}), put(row + b"2", {b"a": b"old"})])
        others = [put(row + b"2", {b"a": b"new", b"b": b"2"}), put(row + b"3", {b"a": b"3"}, 5)]
        puts = [put(row, {b"a": b"1"}, 5)]
        decision = self.decision(tables, row)._replace(with_puts=others)
        assert store.write_if(tables.many.name, puts, [], lambda _: False, decision) is None
        assert store.write_if(tables.many.name, puts, [], accept, decision._replace(expected=b"yes")) == 0
        assert values(store, tables.one, row + b"2") == {b"a": b"old"}
        before = last_number(store, tables)
        assert store.write_if(tables.many.name, puts, [], accept, decision) == before + 1
        assert values(store, tables.one, row) == {b"flag": b"yes"}
        assert values(store, tables.one, row + b"2") == {b"a": b"new", b"b": b"2"}
        assert values(store, tables.one, row + b"3") == {b"a": b"3"}
        assert [found.key for found in news(store, tables, before).rows] == [row, row + b"2", row + b"3"]
        assert store.write_if(tables.many.name, puts, [], accept, decision) == 0

    def test_a_transaction_checks_the_other_rows_of_its_decision_before_it_writes(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        large, unknown = put(row, {b"a": bytes(store.limits.cell + 1)}), put(row, {b"a": b"1"}, 5, family=b"x")
        for other, error in ((large, LimitError), (unknown, StoreUnusableError)):
            decision = self.decision(tables, row)._replace(with_puts=[other])
            with pytest.raises(error):
                store.write_if(tables.many.name, [put(row, {b"a": b"1"}, 5)], [], accept, decision)
        assert values(store, tables.one, row) == {b"flag": b"no"}
        assert values(store, tables.many, row) == {}

    def test_an_error_in_the_judge_of_a_transaction_writes_nothing(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])

        def broken(_: list[Row]) -> bool:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.write_if(tables.many.name, [put(row, {b"a": b"1"}, 5)], [], broken, self.decision(tables, row))
        assert values(store, tables.many, row) == {}
        store.write(tables.many.name, [put(row, {b"a": b"2"}, 5)])
        assert values(store, tables.many, row) == {b"a": b"2"}

    def test_a_transaction_writes_cells_with_the_timestamp_of_their_put(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        cells = [NewCell(D, b"a", b"1"), NewCell(D, b"b", b"2", 7)]
        decision = self.decision(tables, row)
        also = Put(row + b"also", [NewCell(D, b"c", b"3")], 2**52)
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        assert store.write_if(tables.many.name, [Put(row, cells, 5)], [], accept, decision._replace(with_puts=(also,)))
        assert read(store, tables.many, Get(row)) == [Cell(D, b"a", 5, b"1"), Cell(D, b"b", 7, b"2")]
        assert read(store, tables.one, Get(also.row)) == [Cell(D, b"c", 2**52, b"3")]

    def test_a_transaction_rejects_invalid_puts_before_it_writes(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        large = put(row, {b"a": bytes(store.limits.cell + 1)}, 5)
        with pytest.raises(LimitError):
            store.write_if(tables.many.name, [large], [], accept, self.decision(tables, row))
        unknown = put(row, {b"a": b"1"}, 5, family=b"x")
        with pytest.raises(StoreUnusableError):
            store.write_if(tables.many.name, [unknown], [], accept, self.decision(tables, row))
        assert values(store, tables.one, row) == {b"flag": b"no"}

    def test_a_transaction_reads_only_if_a_table_has_changed_since_an_arrival(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        name = tables.one.name
        store.write(name, [put(row, {b"flag": b"no"})])
        since = last_number(store, tables)
        calls: list[list[Row]] = []

        def no(rows: list[Row]) -> bool:
            calls.append(rows)
            return False

        def commit(number: int, decided: Decision) -> int | None:
            puts = [put(row, {b"a": b"1"}, 5)]
            return store.write_if(tables.many.name, puts, [Get(row)], no, decided, unchanged_since=(name, number))

        assert commit(since - 1, self.decision(tables, row)) is None
        assert len(calls) == 1
        assert commit(since, self.decision(tables, row, b"other")) == 0
        assert commit(since, self.decision(tables, row)) == since + 1
        assert len(calls) == 1
        assert values(store, tables.many, row) == {b"a": b"1"}
        assert commit(since, self.decision(tables, row, b"yes")) is None
        assert len(calls) == 2

    def test_exactly_one_of_many_concurrent_transactions_decides(
        self, handles: list[Store], store: Store, tables: Tables, row: bytes
    ) -> None:
        for turn in range(5):
            key = row + bytes([turn])
            store.write(tables.one.name, [put(key, {b"flag": b"no"})])

            def race(number: int, key: bytes = key) -> int | None:
                puts = [put(key, {b"winner": bytes([number])}, 5)]
                handle = handles[number % len(handles)]
                return handle.write_if(tables.many.name, puts, [], accept, self.decision(tables, key))

            results = together([partial(race, number) for number in range(6)])
            assert sorted(bool(result) for result in results) == [False] * 5 + [True]
            assert values(store, tables.many, key) == {
                b"winner": bytes([results.index(max(result or 0 for result in results))])
            }

    def test_a_transaction_may_create_the_row_that_it_decides_on(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        decision = Decision(tables.one.name, FLAG, None, put(row, {b"flag": b"yes"}))
        assert store.write_if(tables.many.name, [put(row, {b"a": b"1"}, 5)], [], accept, decision)
        assert store.write_if(tables.many.name, [put(row, {b"a": b"2"}, 6)], [], accept, decision) == 0
        assert values(store, tables.one, row) == {b"flag": b"yes"}
        assert values(store, tables.many, row) == {b"a": b"1"}
