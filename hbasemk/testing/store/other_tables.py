"""Tests of transactions that concern several tables: rows of other tables, their last rows, their arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import LAST_ROW, Cell, Get, Row, Store, Table
from hbasemk.testing.store.base import Base, D, Tables, accept, last_number, plain, put, values

Rows = list[tuple[bytes, list[Cell]]]


class OtherTables(Base):
    """Tests of the tables that ``write_if`` names besides its own."""

    @pytest.fixture
    def other(self, store: Store, new_table: Table) -> Table:
        """Create an empty table that keeps arrivals."""
        table = new_table._replace(families=(D,), versions=1, arrivals=True)
        store.create_tables([table])
        return table

    def judged(self, store: Store, tables: Tables, gets: Sequence[Get], also: Sequence[tuple[str, Get]]) -> Rows:
        """Return the rows that a transaction passes to ``judge``."""
        seen: list[Rows] = []

        def no(rows: list[Row]) -> bool:
            seen.append(plain(rows))
            return False

        assert store.write_if(tables.many.name, [], gets, no, self.decision(tables, b"r"), also) is None
        return seen[-1]

    def test_a_transaction_also_passes_rows_of_other_tables_to_judge(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.many.name, [put(row, {b"a": b"many"}, 5)])
        store.write(tables.one.name, [put(row, {b"a": b"one", b"b": b"x"}, 6)])
        also = [
            (tables.one.name, Get(row, columns=[(D, b"a")])),
            (tables.one.name, Get(row + b"none")),
            (tables.many.name, Get(row)),
        ]
        many, one = [Cell(D, b"a", 5, b"many")], [Cell(D, b"a", 6, b"one")]
        assert self.judged(store, tables, [Get(row)], also) == [
            (row, many),
            (row, one),
            (row + b"none", []),
            (row, many),
        ]

    def test_a_transaction_also_passes_the_last_row_of_a_table_to_judge(
        self, store: Store, tables: Tables, other: Table
    ) -> None:
        last, keys = (other.name, Get(LAST_ROW)), (other.name, Get(LAST_ROW, columns=()))
        assert self.judged(store, tables, [], [last, keys]) == [(LAST_ROW, []), (LAST_ROW, [])]
        store.write(other.name, [put(key, {b"q": key}, 1) for key in (b"a", b"\xff\xff", b"b")])
        found = [Cell(D, b"q", 1, b"\xff\xff")]
        assert self.judged(store, tables, [], [last, keys]) == [(b"\xff\xff", found), (b"\xff\xff", [])]
        store.delete_rows(other.name, [b"\xff\xff"])
        assert self.judged(store, tables, [], [keys]) == [(b"b", [])]

    def test_a_transaction_compares_the_arrivals_of_the_named_table(
        self, store: Store, tables: Tables, row: bytes, other: Table
    ) -> None:
        def last() -> dict[str, int]:
            return {other.name: store.arrivals(other.name, 0, 10, ()).last, tables.one.name: last_number(store, tables)}

        for changed, unchanged in ((other.name, tables.one.name), (tables.one.name, other.name)):
            since = last()
            store.write(changed, [put(row, {b"q": changed.encode()})])
            for named, judged, decided in ((changed, None, False), (unchanged, 0, True)):
                unmet = self.decision(tables, row, b"another value")
                arrival = (named, since[named])
                assert (
                    store.write_if(tables.many.name, [], [], lambda _: False, unmet, unchanged_since=arrival) == judged
                ), f"{changed} has changed, and unchanged_since names {named}"
                decision = self.decision(tables, row + changed.encode(), None)._replace(unchanged=arrival)
                number = store.write_if(tables.many.name, [], [], accept, decision)
                assert bool(number) == decided, f"{changed} has changed, and the decision names {named}"

    def test_a_transaction_returns_1_if_its_table_keeps_no_arrivals(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        decision = self.decision(tables, row, None)._replace(table=tables.many.name)
        assert store.write_if(tables.one.name, [], [], accept, decision) == 1

    @pytest.mark.parametrize("place", ["table", "decision", "also", "unchanged_since"])
    def test_a_transaction_names_a_missing_table_and_writes_nothing(
        self, store: Store, tables: Tables, row: bytes, prefix: str, place: str
    ) -> None:
        name, many = prefix + "nowhere", tables.many.name
        puts, decision = [put(row, {b"a": b"1"}, 5)], self.decision(tables, row, None)
        calls: dict[str, Callable[[], object]] = {
            "table": lambda: store.write_if(name, puts, [Get(row)], accept, decision),
            "decision": lambda: store.write_if(many, puts, [], accept, decision._replace(table=name)),
            "also": lambda: store.write_if(many, puts, [], accept, decision, [(name, Get(row))]),
            "unchanged_since": lambda: store.write_if(many, puts, [], accept, decision, unchanged_since=(name, 1)),
        }
        with pytest.raises(StoreUnusableError, match=name):
            calls[place]()
        assert values(store, tables.many, row) == values(store, tables.one, row) == {}
