"""Tests of transactions, for stores that support them: all or nothing, isolated from other calls."""

from __future__ import annotations

from functools import partial

import pytest

from hbasemk.errors import LimitError, StoreUnusableError
from hbasemk.store.abc import Decision, Get, Row, Store
from hbasemk.testing.store.base import Base, D, Tables, put, together, values

FLAG = (D, b"flag")


def accept(_: list[Row]) -> bool:
    """Accept any rows."""
    return True


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
        assert store.write_if(tables.many.name, puts, [], accept, self.decision(tables, row)) is True
        assert values(store, tables.one, row) == {b"flag": b"yes"}
        assert values(store, tables.many, row) == {b"a": b"1"}
        assert values(store, tables.many, row + b"2") == {b"b": b"2"}

    def test_a_transaction_may_be_repeated(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no", b"other": b"no"})])
        decision = Decision(tables.one.name, (D, b"other"), b"no", put(row, {b"flag": b"yes"}))
        for _ in range(2):
            assert store.write_if(tables.many.name, [put(row, {b"a": b"1"}, 5)], [], accept, decision) is True
        assert values(store, tables.one, row) == {b"flag": b"yes", b"other": b"no"}
        assert values(store, tables.many, row) == {b"a": b"1"}

    def test_a_transaction_whose_compare_and_set_fails_writes_nothing(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"gone"})])
        puts = [put(row, {b"a": b"1"}, 5)]
        assert store.write_if(tables.many.name, puts, [], accept, self.decision(tables, row)) is False
        assert store.write_if(tables.many.name, puts, [], accept, self.decision(tables, row + b"absent")) is False
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

    def test_exactly_one_of_many_concurrent_transactions_decides(
        self, handles: list[Store], store: Store, tables: Tables, row: bytes
    ) -> None:
        for turn in range(5):
            key = row + bytes([turn])
            store.write(tables.one.name, [put(key, {b"flag": b"no"})])

            def race(number: int, key: bytes = key) -> bool | None:
                puts = [put(key, {b"winner": bytes([number])}, 5)]
                handle = handles[number % len(handles)]
                return handle.write_if(tables.many.name, puts, [], accept, self.decision(tables, key))

            results = together([partial(race, number) for number in range(6)])
            assert sorted(result is True for result in results) == [False] * 5 + [True]
            assert values(store, tables.many, key) == {b"winner": bytes([results.index(True)])}
