"""Tests of puts of many cells with one value, as a node with many new children writes them."""

from __future__ import annotations

import pytest

from hbasemk.errors import LimitError, StoreUnusableError
from hbasemk.store.abc import ALL_VERSIONS, Cell, Get, NewCell, Put, Store
from hbasemk.testing.store.base import Base, C, D, Tables, plain, read, values


def cells(count: int, *, value: bytes = b"1") -> list[NewCell]:
    """Return cells of one value, and every tenth time another one."""
    found = []
    for number in range(count):
        found.append(NewCell(C, b"%04d" % number, value))
        if number % 10 == 9:
            found.append(NewCell(D, b"%04d" % number, b"other %d" % number))
    return found


class SameValues(Base):
    """Tests of puts most of whose cells have the same value: a store may write them in another way."""

    @pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 200])
    def test_all_cells_are_written(self, store: Store, tables: Tables, row: bytes, count: int) -> None:
        for at, value in ((5, b"replaced"), (5, b""), (7, b"1")):
            store.write(tables.many.name, [Put(row, cells(count, value=value), at), Put(row + b"x", cells(3), 6)])
        found = read(store, tables.many, Get(row, versions=ALL_VERSIONS))
        expected = [
            Cell(*cell[:2], at, cell[2]) for at, value in ((7, b"1"), (5, b"")) for cell in cells(count, value=value)
        ]
        assert found == sorted(expected, key=lambda cell: (*cell[:2], -cell.timestamp))
        assert len(read(store, tables.many, Get(row + b"x"))) == 3

    def test_cells_have_their_own_timestamps(self, store: Store, tables: Tables, row: bytes) -> None:
        written = [one._replace(timestamp=9 if number % 2 else None) for number, one in enumerate(cells(300))]
        store.write(tables.many.name, [Put(row, written, 5)])
        found = {cell[:2]: cell.timestamp for cell in read(store, tables.many, Get(row))}
        assert found == {cell[:2]: cell.timestamp or 5 for cell in written}

    def test_the_server_stamps_many_in_one_row(self, store: Store, tables: Tables, row: bytes) -> None:
        written = [NewCell(D, b"%03d" % number, b"1") for number in range(100)]
        store.write(tables.one.name, [Put(row, written)])
        before = read(store, tables.one, Get(row))
        store.write(tables.one.name, [Put(row, [one._replace(value=b"2") for one in written])])
        after = read(store, tables.one, Get(row))
        assert [one[:2] for one in after] == [one[:2] for one in before] == [one[:2] for one in written]
        assert {one.value for one in after} == {b"2"}
        assert min(one.timestamp for one in after) >= max(one.timestamp for one in before)

    @pytest.mark.parametrize("last", [b"1", b"2"])
    def test_the_last_cell_of_a_column_counts(self, store: Store, tables: Tables, row: bytes, last: bytes) -> None:
        first = b"1" if last == b"2" else b"2"
        names = [b"%03d" % number for number in range(150)]
        written = [NewCell(C, name, value) for value in (first, last) for name in names]
        store.write(tables.many.name, [Put(row, written, 5)])
        assert values(store, tables.many, row) == dict.fromkeys(names, last)

    def test_a_limit_or_an_unknown_family_writes_nothing(self, store: Store, tables: Tables, row: bytes) -> None:
        with pytest.raises(LimitError):
            store.write(
                tables.many.name, [Put(row, [*cells(200), NewCell(C, bytes(store.limits.row_key + 1), b"1")], 5)]
            )
        with pytest.raises(StoreUnusableError):
            store.write(tables.many.name, [Put(row, [NewCell(b"x", cell[1], b"1") for cell in cells(200)], 5)])
        assert plain(store.read(tables.many.name, [Get(row)])) == [(row, [])]
