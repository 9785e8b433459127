"""Tests of tables that keep one version: ranges of time and deletes compare its timestamp."""

from __future__ import annotations

from hbasemk.store.abc import CellVersion, Delete, DeleteBelow, Get, Scan, Store
from hbasemk.testing.store.base import Base, D, Tables, put, read, values


class OneVersion(Base):
    """Tests of a table that keeps the newest version."""

    def test_a_time_range_includes_its_start_and_not_its_end_in_a_table_of_one_version(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        name = tables.one.name
        store.write(name, [put(row, {b"a": b"x"}, 5)])
        for since, before, count in ((0, 5, 0), (0, 6, 1), (5, 9, 1), (6, 9, 0), (5, 5, 0)):
            forward = Scan(row, row + b"\x00", 1, since=since, before=before)
            backward = forward._replace(start=row, stop=row[:-1], reverse=True)
            assert len(read(store, tables.one, Get(row, since=since, before=before))) == count, (since, before)
            assert [len(store.scan(name, scan)) for scan in (forward, backward)] == [count, count], (since, before)

    def test_a_delete_of_another_version_spares_the_only_one(self, store: Store, tables: Tables, row: bytes) -> None:
        name = tables.one.name
        store.write(name, [put(row, {b"a": b"x", b"b": b"y"}, 5)])
        store.delete(name, [Delete(row, [CellVersion(D, b"a", 4), CellVersion(D, b"b", 6)])])
        store.delete_below(name, [DeleteBelow(row, [CellVersion(D, b"a", 5)], [(D, 5)])])
        assert values(store, tables.one, row) == {b"a": b"x", b"b": b"y"}

    def test_the_only_version_can_be_deleted(self, store: Store, tables: Tables, row: bytes) -> None:
        name = tables.one.name
        store.write(name, [put(row, {b"a": b"x", b"b": b"y", b"c": b"z"}, 5)])
        store.delete(name, [Delete(row, [CellVersion(D, b"a", 5)])])
        assert values(store, tables.one, row) == {b"b": b"y", b"c": b"z"}
        store.delete_below(name, [DeleteBelow(row, [CellVersion(D, b"b", 6)])])
        assert values(store, tables.one, row) == {b"c": b"z"}
        store.delete_below(name, [DeleteBelow(row, (), [(D, 6)])])
        assert values(store, tables.one, row) == {}
