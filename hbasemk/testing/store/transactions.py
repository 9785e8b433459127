"""Tests of transactions, for stores that support them: all or nothing, isolated from other calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pytest

from hbasemk.errors import LimitError, StoreUnusableError
from hbasemk.store.abc import Arrivals, Cell, Decision, Get, NewCell, Put, Row, Store
from hbasemk.testing.store.base import Base, D, Tables, put, read, together, values

FLAG = (D, b"flag")


def accept(_: list[Row]) -> bool:
    """Accept any rows."""
    return True


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

    @pytest.fixture(autouse=True)
    def _supported(self, request: pytest.FixtureRequest, store: Store) -> None:
        if "transaction" in request.node.name and not store.supports_transactions:
            pytest.skip("this store does not support transactions")

    def decision(self, tables: Tables, row: bytes, expected: bytes = b"no") -> Decision:
        """Return a decision that sets the flag of a row to "yes" if it is ``expected``."""
        return Decision(tables.one.name, FLAG, expected, put(row, {b"flag": b"yes"}))

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

    def test_another_row_of_a_decision_in_a_transaction_is_newer_than_what_it_replaces(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"}), put(row + b"2", {b"a": b"old"}, 2**61)])
        decision = self.decision(tables, row)._replace(with_puts=[put(row + b"2", {b"a": b"new"})])
        assert store.write_if(tables.many.name, [], [], accept, decision)
        assert values(store, tables.one, row + b"2") == {b"a": b"new"}

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


def news(store: Store, tables: Tables, after: int = 0, limit: int = 1000) -> Arrivals:
    """Return what was written to the table ``one`` after an arrival number, with the column ``flag``."""
    return store.arrivals(tables.one.name, after, limit, (FLAG,))


def last_number(store: Store, tables: Tables) -> int:
    """Return the number of the last write to the table ``one``."""
    number, complete = 0, False
    while not complete:
        number, _, complete = news(store, tables, number)
    return number


class OrderOfWrites(Base):
    """Tests of ``arrivals``; a store without transactions runs only the test of the error that it raises."""

    @pytest.fixture(autouse=True)
    def _keeps_order(self, request: pytest.FixtureRequest, store: Store) -> None:
        if "arrival" in request.node.name and not store.supports_transactions:
            pytest.skip("this store does not keep the order of writes")

    def test_order_of_writes_raises_where_it_is_not_kept(self, store: Store, tables: Tables) -> None:
        if not store.supports_transactions:
            with pytest.raises(NotImplementedError):
                news(store, tables)

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
