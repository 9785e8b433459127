"""Several calls at one moment, where a store says that it can: all or nothing, and nobody in between."""

from __future__ import annotations

import pytest

from hbasemk.errors import LimitError, StoreUnusableError
from hbasemk.store.abc import Decision, Get, Row, Store
from hbasemk.testing.store.base import Base, D, Tables, put, together, values

FLAG = (D, b"flag")


def yes(_: list[Row]) -> bool:
    """Whatever was read is good."""
    return True


class Transactions(Base):
    """``write_if``; skipped for a store without it, but for the error that it then raises."""

    @pytest.fixture(autouse=True)
    def _able(self, request: pytest.FixtureRequest, store: Store) -> None:
        if "transaction" in request.node.name and not store.supports_transactions:
            pytest.skip("this store does not do several calls at one moment")

    def decision(self, tables: Tables, row: bytes, expected: bytes = b"no") -> Decision:
        """If the flag of a row is ``expected``, it becomes yes."""
        return Decision(tables.one.name, FLAG, expected, put(row, {b"flag": b"yes"}))

    def test_where_it_is_not_supported_it_says_so(self, store: Store, tables: Tables, row: bytes) -> None:
        if not store.supports_transactions:
            with pytest.raises(NotImplementedError):
                store.write_if(tables.many.name, [put(row, {b"a": b"1"}, 5)], [], yes, self.decision(tables, row))

    def test_a_transaction_writes_all(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        puts = [put(row, {b"a": b"1"}, 5), put(row + b"2", {b"b": b"2"}, 5)]
        assert store.write_if(tables.many.name, puts, [], yes, self.decision(tables, row)) is True
        assert values(store, tables.one, row) == {b"flag": b"yes"}
        assert values(store, tables.many, row) == {b"a": b"1"}
        assert values(store, tables.many, row + b"2") == {b"b": b"2"}

    def test_a_transaction_may_be_made_again(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no", b"other": b"no"})])
        decision = Decision(tables.one.name, (D, b"other"), b"no", put(row, {b"flag": b"yes"}))
        for _ in range(2):
            assert store.write_if(tables.many.name, [put(row, {b"a": b"1"}, 5)], [], yes, decision) is True
        assert values(store, tables.one, row) == {b"flag": b"yes", b"other": b"no"}
        assert values(store, tables.many, row) == {b"a": b"1"}

    def test_a_transaction_whose_compare_and_set_fails_writes_nothing(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"gone"})])
        puts = [put(row, {b"a": b"1"}, 5)]
        assert store.write_if(tables.many.name, puts, [], yes, self.decision(tables, row)) is False
        assert store.write_if(tables.many.name, puts, [], yes, self.decision(tables, row + b"absent")) is False
        assert values(store, tables.one, row) == {b"flag": b"gone"}
        assert values(store, tables.many, row) == {}

    def test_a_transaction_is_judged_by_what_was_there_before(self, store: Store, tables: Tables, row: bytes) -> None:
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

    def test_an_error_while_a_transaction_is_judged_writes_nothing(
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

    def test_what_a_transaction_cannot_keep_is_refused_before(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"no"})])
        large = put(row, {b"a": bytes(store.limits.cell + 1)}, 5)
        with pytest.raises(LimitError):
            store.write_if(tables.many.name, [large], [], yes, self.decision(tables, row))
        unknown = put(row, {b"a": b"1"}, 5, family=b"x")
        with pytest.raises(StoreUnusableError):
            store.write_if(tables.many.name, [unknown], [], yes, self.decision(tables, row))
        assert values(store, tables.one, row) == {b"flag": b"no"}

    def test_of_many_transactions_at_once_one_decides(
        self, handles: list[Store], store: Store, tables: Tables, row: bytes
    ) -> None:
        for turn in range(5):
            key = row + bytes([turn])
            store.write(tables.one.name, [put(key, {b"flag": b"no"})])

            def race(number: int, key: bytes = key) -> bool | None:
                puts = [put(key, {b"winner": bytes([number])}, 5)]
                handle = handles[number % len(handles)]
                return handle.write_if(tables.many.name, puts, [], yes, self.decision(tables, key))

            results = together([lambda number=number: race(number) for number in range(6)])  # type: ignore[misc]
            assert sorted(result is True for result in results) == [False] * 5 + [True]
            assert values(store, tables.many, key) == {b"winner": bytes([results.index(True)])}
