"""Tests of tables: concurrent creation, verification by name and setting, and dropping."""

from __future__ import annotations

from functools import partial

import pytest

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import ALL_VERSIONS, Get, NewCell, Put, Store, Table
from hbasemk.testing.store.base import Base, C, D, Tables, put, together, values


class Schema(Base):
    """Tests of ``create_tables``, ``verify`` and ``drop_tables``."""

    def test_creating_tables_again_keeps_their_contents(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"q": b"x"}, 1)])
        store.create_tables(tables)
        assert values(store, tables.many, row) == {b"q": b"x"}
        store.verify(tables)

    def test_tables_created_concurrently_are_visible_to_all_handles(
        self, store: Store, handles: list[Store], tables: Tables, new_table: Table
    ) -> None:
        def create(number: int) -> None:
            handle = handles[number % len(handles)]
            handle.create_tables([new_table, tables.many])
            handle.write(new_table.name, [put(b"row%d" % number, {b"q": b"%d" % number}, 1)])

        together([partial(create, number) for number in range(8)])
        found = store.read(new_table.name, [Get(b"row%d" % number) for number in range(8)])
        assert [[cell.value for cell in got.cells] for got in found] == [[b"%d" % number] for number in range(8)]

    def test_a_missing_table_is_named(self, store: Store, tables: Tables, new_table: Table) -> None:
        with pytest.raises(StoreUnusableError, match=new_table.name):
            store.verify([*tables, new_table])

    def test_too_few_versions_are_named(self, store: Store, tables: Tables) -> None:
        for check in (store.verify, store.create_tables):
            with pytest.raises(StoreUnusableError, match=r"(?i)versions") as raised:
                check([tables.many, tables.one._replace(versions=ALL_VERSIONS)])
            assert tables.one.name in str(raised.value)
        store.verify(tables)

    def test_too_many_versions_are_named(self, store: Store, tables: Tables) -> None:
        for check in (store.verify, store.create_tables):
            with pytest.raises(StoreUnusableError, match=r"(?i)versions") as raised:
                check([tables.one, tables.many._replace(versions=1)])
            assert tables.many.name in str(raised.value)
        store.verify(tables)

    def test_a_missing_family_is_named(self, store: Store, tables: Tables) -> None:
        for check in (store.verify, store.create_tables):
            with pytest.raises(StoreUnusableError, match=r"(?i)famil") as raised:
                check([tables.many, tables.one._replace(families=(D, b"extra"))])
            assert tables.one.name in str(raised.value)
            assert "extra" in str(raised.value)
        store.verify(tables)

    def test_a_dropped_table_is_gone_and_can_be_created_with_other_settings(
        self, store: Store, handles: list[Store], new_table: Table
    ) -> None:
        store.drop_tables([new_table])
        store.create_tables([new_table])
        for handle in handles:
            handle.write(new_table.name, [Put(b"r", [NewCell(D, b"q", b"old", 5), NewCell(C, b"k", b"old", 5)])])
        store.drop_tables([new_table])
        for handle in handles:
            with pytest.raises(StoreUnusableError, match=new_table.name):
                handle.verify([new_table])
            with pytest.raises(StoreUnusableError, match=new_table.name):
                handle.read(new_table.name, [Get(b"r")])
        other = Table(new_table.name, (D,), 1)
        store.create_tables([other])
        for handle in handles:
            assert values(handle, other, b"r") == {}
        for at in (1, 2):
            handles[-1].write(new_table.name, [put(b"r", {b"q": b"%d" % at}, at)])
        for handle in handles:
            found = handle.read(new_table.name, [Get(b"r", versions=ALL_VERSIONS)])
            assert [cell.timestamp for cell in found[0].cells] == [2]
            with pytest.raises(StoreUnusableError):
                handle.write(new_table.name, [Put(b"r", [NewCell(C, b"k", b"x", 3)])])
