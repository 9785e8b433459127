"""Tests of single rows: reads return cells as written; versions, time ranges, selections, exact deletion."""

from __future__ import annotations

import itertools

import pytest

from hbasemk.store.abc import (
    ALL_VERSIONS,
    MAX_TIMESTAMP,
    Cell,
    CellVersion,
    Delete,
    DeleteBelow,
    Get,
    NewCell,
    Page,
    Put,
    Row,
    Scan,
    Store,
)
from hbasemk.testing.store.base import Base, C, D, Tables, plain, put, read, values


class Cells(Base):
    """Tests that read and write single rows."""

    # --- values ----------------------------------------------------------------------------------------------

    def test_a_row_that_was_never_written_has_no_cells(self, store: Store, tables: Tables, row: bytes) -> None:
        assert plain(store.read(tables.many.name, [Get(row)])) == [(row, [])]

    def test_a_cell_comes_back_with_its_column_timestamp_and_value(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.many.name, [Put(row, [NewCell(D, b"q", b"value", 42)])])
        found = store.read(tables.many.name, [Get(row)])
        assert plain(found) == [(row, [Cell(D, b"q", 42, b"value")])]
        assert isinstance(found[0], Row)
        assert isinstance(found[0].cells[0], Cell)

    def test_a_read_with_a_write_returns_what_was_written(self, store: Store, tables: Tables, row: bytes) -> None:
        table = tables.many.name
        store.write(table, [put(row, {b"q": b"before"}, 1)])
        assert plain(store.write_and_read(table, [put(row, {b"q": b"after"}, 2)], [Get(row, versions=2)])) == [
            (row, [Cell(D, b"q", 2, b"after"), Cell(D, b"q", 1, b"before")])
        ]
        several = [put(row + name, {b"q": name}, 3) for name in (b"a", b"b")]
        gets = [Get(row + b"b"), Get(row + b"none"), Get(row + b"a", columns=[(D, b"none")]), Get(row)]
        assert plain(store.write_and_read(table, several, gets, durable=False)) == [
            (row + b"b", [Cell(D, b"q", 3, b"b")]),
            (row + b"none", []),
            (row + b"a", []),
            (row, [Cell(D, b"q", 2, b"after")]),
        ]
        assert store.write_and_read(table, [put(row, {b"q": b"last"}, 4)], []) == []
        assert plain(store.write_and_read(table, [], [Get(row)])) == [(row, [Cell(D, b"q", 4, b"last")])]

    def test_a_read_without_gets_returns_no_rows(self, store: Store, tables: Tables) -> None:
        assert store.read(tables.many.name, []) == []

    def test_empty_batches_of_puts_and_deletes_are_not_an_error(self, store: Store, tables: Tables) -> None:
        store.write(tables.many.name, [])
        store.delete(tables.many.name, [])
        store.delete_below(tables.many.name, [])
        store.delete_below(tables.many.name, [DeleteBelow(b"r")])
        store.delete_rows(tables.many.name, [])

    def test_rows_are_returned_in_the_order_of_the_gets_with_duplicates_and_missing_ones(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        store.write(tables.many.name, [put(row + name, {b"q": name}, 1) for name in (b"a", b"b", b"c")])
        order = [b"c", b"missing", b"a", b"a", b"b", b"c", b"also missing", b"a"]
        found = store.read(tables.many.name, [Get(row + name) for name in order])
        assert [result.key for result in found] == [row + name for name in order]
        assert [[cell.value for cell in result.cells] for result in found] == [
            [name] if len(name) == 1 else [] for name in order
        ]

    def test_the_first_rows_of_a_read_are_its_beginning(self, store: Store, tables: Tables, row: bytes) -> None:
        table = tables.many.name
        keys = [row + b"%03d" % number for number in range(100)]
        store.write(table, [put(key, {b"q": key[-1:], b"r": b""}, 1) for key in keys])
        for key in keys[::9]:
            store.write(table, [put(key, {b"q": key * 1000}, 2), put(key, {b"c": b""}, 2, C)])
        for version in range(3, 200):
            store.write(table, [put(keys[50], {b"r": b"%d" % version}, version)])
        of_data = [Get(key, families=[D], before=4) for key in keys]
        of_data[30:30] = [Get(row + b"none", families=[D]), of_data[0], of_data[0]]
        mixed = [Get(key, columns=[(D, b"q")]) if number % 2 else Get(key) for number, key in enumerate(keys)]
        size = len(keys[0]) * 1000
        for gets, most in itertools.product((of_data, mixed, of_data[:1]), (1, 50, size, 3 * size, 100 * size)):
            expected = plain(store.read(table, gets))
            found: list[Row] = []
            while len(found) < len(gets):
                rows = store.read_first(table, gets[len(found) :], most)
                assert rows
                found += rows
            assert plain(found) == expected

    def test_the_first_rows_of_a_read_are_all_rows_if_their_values_are_small(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        keys = [row + b"k" * 100 + b"%02d" % number for number in range(40)]
        store.write(tables.many.name, [put(key, {b"q" * 100: b"ten bytes."}, 5) for key in keys])
        for get in (Get(row), Get(row, families=[D]), Get(row, columns=[(D, b"q" * 100)])):
            gets = [get._replace(row=key) for key in keys]
            assert [one.key for one in store.read_first(tables.many.name, gets, 400)] == keys

    def test_gets_of_one_batch_may_differ_in_every_respect(self, store: Store, tables: Tables, row: bytes) -> None:
        for at in (1, 2, 3):
            store.write(tables.many.name, [put(row, {b"p": b"p%d" % at, b"q": b"q%d" % at}, at)])
        store.write(tables.many.name, [put(row, {b"k": b"child"}, 2, C)])
        found = store.read(
            tables.many.name,
            [
                Get(row, columns=[(D, b"q")], versions=2),
                Get(row, families=[C]),
                Get(row, page=Page(D, b"p", 1)),
                Get(row, before=2, versions=ALL_VERSIONS),
                Get(row, columns=[(C, b"k"), (D, b"p")], since=3),
            ],
        )
        assert [list(result.cells) for result in found] == [
            [Cell(D, b"q", 3, b"q3"), Cell(D, b"q", 2, b"q2")],
            [Cell(C, b"k", 2, b"child")],
            [Cell(D, b"q", 3, b"q3")],
            [Cell(D, b"p", 1, b"p1"), Cell(D, b"q", 1, b"q1")],
            [Cell(D, b"p", 3, b"p3")],
        ]

    def test_many_gets_and_many_puts_in_one_batch(self, store: Store, tables: Tables, row: bytes) -> None:
        keys = [row + b"%04d" % number for number in range(store.batch_rows)]
        store.write(tables.many.name, [put(key, {b"q": key}, 7) for key in keys])
        found = store.read(tables.many.name, [Get(key, families=[D]) for key in reversed(keys)])
        assert plain(found) == [(key, [Cell(D, b"q", 7, key)]) for key in reversed(keys)]

    def test_cells_are_ordered_by_family_then_qualifier_then_newest_first(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        qualifiers = [b"a", b"aa", b"a\x00", b"a\xff", b"B", b"\x00", b"\xff", b"\x7f", b"\x80", b"b"]
        for at in (2, 1, 3):
            store.write(tables.many.name, [put(row, dict.fromkeys(qualifiers, b"v"), at, family) for family in (D, C)])
        found = read(store, tables.many, Get(row, versions=ALL_VERSIONS))
        assert [(cell.family, cell.qualifier, cell.timestamp) for cell in found] == [
            (family, qualifier, at) for family in (C, D) for qualifier in sorted(qualifiers) for at in (3, 2, 1)
        ]

    def test_cells_without_a_timestamp_have_that_of_their_put(self, store: Store, tables: Tables, row: bytes) -> None:
        cells = [NewCell(D, b"a", b"1"), NewCell(C, b"b", b"2"), NewCell(D, b"c", b"3", 7)]
        expected = [Cell(C, b"b", 5, b"2"), Cell(D, b"a", 5, b"1"), Cell(D, b"c", 7, b"3")]
        store.write(tables.many.name, [Put(row, cells, 5), Put(row + b"2", [NewCell(D, b"a", b"1")], 0)])
        assert read(store, tables.many, Get(row)) == expected
        assert read(store, tables.many, Get(row + b"2")) == [Cell(D, b"a", 0, b"1")]
        assert store.check_and_write(tables.many.name, (D, b"flag"), None, Put(row + b"3", cells, 5))
        assert read(store, tables.many, Get(row + b"3")) == expected

    def test_keys_qualifiers_and_values_may_contain_every_byte(self, store: Store, tables: Tables, row: bytes) -> None:
        singles = [bytes([byte]) for byte in range(256)]
        store.write(tables.many.name, [put(row + byte, {byte: byte + row}, 5) for byte in singles])
        found = store.read(tables.many.name, [Get(row + byte, columns=[(D, byte)]) for byte in singles])
        assert plain(found) == [(row + byte, [Cell(D, byte, 5, byte + row)]) for byte in singles]
        everything = bytes(range(256))
        store.write(tables.many.name, [put(row + everything, {everything: everything[::-1] * 10}, 5)])
        assert read(store, tables.many, Get(row + everything)) == [Cell(D, everything, 5, everything[::-1] * 10)]

    def test_keys_differ_by_trailing_zeros_and_by_case(self, store: Store, tables: Tables, row: bytes) -> None:
        keys = [row + tail for tail in (b"a", b"a\x00", b"a\x00\x00", b"A", b"a ", b"\xc3\xa4", b"a\xcc\x88")]
        store.write(tables.many.name, [put(key, {b"q": key}, 1) for key in keys])
        for key in keys:
            assert values(store, tables.many, key) == {b"q": key}

    def test_a_value_may_be_empty(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"empty": b"", b"full": b"x"}, 1)])
        assert read(store, tables.many, Get(row)) == [Cell(D, b"empty", 1, b""), Cell(D, b"full", 1, b"x")]

    def test_a_value_may_be_large(self, store: Store, tables: Tables, row: bytes) -> None:
        value = (bytes(range(256)) * 4096)[: store.limits.surely]
        store.write(tables.many.name, [put(row, {b"q": value, b"r": b"small"}, 1)])
        assert values(store, tables.many, row) == {b"q": value, b"r": b"small"}

    def test_a_call_that_is_not_durable_is_visible_like_any_other(
        self, store: Store, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        store.write(tables.one.name, [put(row, {b"q": b"1"})], durable=False)
        assert [values(handle, tables.one, row) for handle in handles] == [{b"q": b"1"}] * len(handles)
        assert store.check_and_write(tables.one.name, (D, b"q"), b"1", put(row, {b"q": b"2"}), durable=False)
        assert [values(handle, tables.one, row) for handle in handles] == [{b"q": b"2"}] * len(handles)

    # --- versions and time -----------------------------------------------------------------------------------

    def test_a_read_returns_the_requested_number_of_versions_newest_first(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        order = [5, 1, 9, 3, 7, 2, 8, 4, 6, 10]
        for at in order:
            store.write(tables.many.name, [put(row, {b"p": b"%d" % at, b"q": b"%d" % -at}, at)])
        for versions in (1, 2, 9, 10, 11, ALL_VERSIONS):
            found = read(store, tables.many, Get(row, versions=versions))
            newest = sorted(order, reverse=True)[:versions]
            assert [cell.timestamp for cell in found] == newest * 2
            assert [cell.value for cell in found] == [b"%d" % at for at in newest] + [b"%d" % -at for at in newest]

    @pytest.mark.parametrize("versions", [1, 2, ALL_VERSIONS])
    def test_a_time_range_includes_its_start_and_not_its_end(
        self, store: Store, tables: Tables, row: bytes, versions: int
    ) -> None:
        for at in range(10, 60, 10):
            store.write(tables.many.name, [put(row, {b"q": b"%d" % at}, at)])
        for since, before in [(0, 10), (0, 11), (10, 11), (10, 20), (11, 20), (20, 51), (20, 50), (51, 90), (30, 30)]:
            expected = [at for at in (50, 40, 30, 20, 10) if since <= at < before][:versions]
            for columns in (None, [(D, b"q")]):
                get = Get(row, columns=columns, since=since, before=before, versions=versions)
                found = [cell.timestamp for cell in read(store, tables.many, get)]
                assert found == expected, get

    def test_versions_are_counted_inside_the_time_range(self, store: Store, tables: Tables, row: bytes) -> None:
        for at in range(1, 21):
            store.write(tables.many.name, [put(row, {b"q": b"%d" % at, b"r": b"x"}, at)])
        found = read(store, tables.many, Get(row, columns=[(D, b"q")], since=5, before=11, versions=3))
        assert [cell.timestamp for cell in found] == [10, 9, 8]

    def test_each_column_has_its_own_history(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"old": b"1"}, 1), put(row, {b"new": b"9"}, 9)])
        assert [cell.qualifier for cell in read(store, tables.many, Get(row, before=5))] == [b"old"]
        assert [cell.qualifier for cell in read(store, tables.many, Get(row, since=5))] == [b"new"]
        assert [cell.qualifier for cell in read(store, tables.many, Get(row))] == [b"new", b"old"]

    def test_timestamps_may_be_as_large_as_revision_ids_and_larger(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        stamps = [0, 1, 2**31, 2**32, 2**53 + 1, 7_350_000_000_000_000_001, MAX_TIMESTAMP - 1]
        for at in stamps:
            store.write(tables.many.name, [put(row, {b"q": b"%d" % at}, at)])
        found = read(store, tables.many, Get(row, versions=ALL_VERSIONS))
        assert [cell.timestamp for cell in found] == stamps[::-1]
        assert [cell.value for cell in found] == [b"%d" % at for at in stamps[::-1]]
        get = Get(row, since=2**53 + 1, before=7_350_000_000_000_000_001, versions=ALL_VERSIONS)
        assert [cell.timestamp for cell in read(store, tables.many, get)] == [2**53 + 1]

    def test_a_long_history_is_read_at_any_depth(self, store: Store, tables: Tables, row: bytes) -> None:
        for first in range(0, 300, 100):
            store.write(
                tables.many.name,
                [Put(row, [NewCell(D, b"m", b"%d" % at, at) for at in range(first + 1, first + 101)])],
            )
        store.write(tables.many.name, [put(row, {b"a": b"a", b"z": b"z"}, 150)])
        for before in (1, 2, 150, 151, 300, 301, 1000):
            expected = {b"m": min(before - 1, 300)} if before > 1 else {}
            if before > 150:
                expected |= {b"a": 150, b"z": 150}
            for families in (None, [D]):
                found = read(store, tables.many, Get(row, families=families, before=before))
                assert {cell.qualifier: cell.timestamp for cell in found} == expected
                assert [cell.qualifier for cell in found] == sorted(expected)
        found = read(store, tables.many, Get(row, since=290, before=299, versions=4))
        assert [(cell.qualifier, cell.timestamp) for cell in found] == [(b"m", at) for at in (298, 297, 296, 295)]

    def test_a_put_of_the_same_version_replaces_it(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"q": b"old"}, 5), put(row, {b"q": b"first"}, 3)])
        store.write(tables.many.name, [put(row, {b"q": b"new"}, 5)])
        found = read(store, tables.many, Get(row, versions=ALL_VERSIONS))
        assert found == [Cell(D, b"q", 5, b"new"), Cell(D, b"q", 3, b"first")]

    def test_a_repeated_put_has_no_further_effect(self, store: Store, tables: Tables, row: bytes) -> None:
        batch = [put(row + b"1", {b"p": b"1", b"q": b"2"}, 5), put(row + b"2", {b"q": b"3"}, 6)]
        gets = [Get(row + b"1", versions=ALL_VERSIONS), Get(row + b"2", versions=ALL_VERSIONS)]
        store.write(tables.many.name, batch)
        once = plain(store.read(tables.many.name, gets))
        store.write(tables.many.name, batch)
        assert plain(store.read(tables.many.name, gets)) == once
        assert [len(cells) for _, cells in once] == [2, 1]

    def test_an_older_version_does_not_hide_a_newer_one(self, store: Store, tables: Tables, row: bytes) -> None:
        for table in (tables.many, tables.one):
            store.write(table.name, [put(row, {b"q": b"new"}, 9)])
            store.write(table.name, [put(row, {b"q": b"old"}, 3)])
            assert values(store, table, row) == {b"q": b"new"}

    def test_a_table_of_one_version_keeps_the_newest(self, store: Store, tables: Tables, row: bytes) -> None:
        for at in (2, 1, 3):
            store.write(tables.one.name, [put(row, {b"q": b"%d" % at}, at)])
        found = read(store, tables.one, Get(row, versions=ALL_VERSIONS))
        assert found == [Cell(D, b"q", 3, b"3")]
        assert read(store, tables.one, Get(row, since=3)) == [Cell(D, b"q", 3, b"3")]
        assert read(store, tables.one, Get(row, since=4)) == []

    # --- selections --------------------------------------------------------------------------------------------

    def test_columns_select_exactly_those(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(
            tables.many.name,
            [put(row, {b"p": b"1", b"q": b"2", b"pq": b"3"}, 1), put(row, {b"p": b"4", b"q": b"5"}, 1, C)],
        )
        get = Get(row, columns=[(D, b"q"), (C, b"p"), (D, b"p"), (D, b"none"), (D, b"q")])
        assert read(store, tables.many, get) == [Cell(C, b"p", 1, b"4"), Cell(D, b"p", 1, b"1"), Cell(D, b"q", 1, b"2")]

    def test_families_select_whole_families(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"p": b"1", b"q": b"2"}, 1), put(row, {b"k": b"3"}, 1, C)])
        assert [cell.qualifier for cell in read(store, tables.many, Get(row, families=[D]))] == [b"p", b"q"]
        assert [cell.qualifier for cell in read(store, tables.many, Get(row, families=[C]))] == [b"k"]
        assert [cell.qualifier for cell in read(store, tables.many, Get(row, families=[D, C]))] == [b"k", b"p", b"q"]
        assert [cell.qualifier for cell in read(store, tables.many, Get(row))] == [b"k", b"p", b"q"]

    def test_no_columns_and_no_families_select_nothing(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"q": b"1"}, 1)])
        for empty in (Get(row, columns=[]), Get(row, families=[])):
            assert read(store, tables.many, empty) == []
            scan = Scan(row, row + b"\xff", 10, columns=empty.columns, families=empty.families)
            assert store.scan(tables.many.name, scan) == []

    # --- deletion ----------------------------------------------------------------------------------------------

    def test_deleting_a_version_leaves_older_and_newer_ones(self, store: Store, tables: Tables, row: bytes) -> None:
        for at in (1, 2, 3, 4):
            store.write(tables.many.name, [put(row, {b"p": b"%d" % at, b"q": b"%d" % at}, at)])
        store.delete(tables.many.name, [Delete(row, [CellVersion(D, b"q", 2)])])
        found = read(store, tables.many, Get(row, versions=ALL_VERSIONS))
        assert [cell.timestamp for cell in found if cell.qualifier == b"q"] == [4, 3, 1]
        assert [cell.timestamp for cell in found if cell.qualifier == b"p"] == [4, 3, 2, 1]

    def test_deleting_the_newest_version_uncovers_the_previous_one(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        for at in (1, 2, 3):
            store.write(tables.many.name, [put(row, {b"q": b"%d" % at}, at)])
        store.delete(tables.many.name, [Delete(row, [CellVersion(D, b"q", 3)])])
        assert values(store, tables.many, row) == {b"q": b"2"}
        store.delete(tables.many.name, [Delete(row, [CellVersion(D, b"q", 2), CellVersion(D, b"q", 1)])])
        assert values(store, tables.many, row) == {}

    def test_deleting_missing_versions_is_not_an_error(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"q": b"1"}, 1)])
        store.delete(
            tables.many.name,
            [
                Delete(row, [CellVersion(D, b"q", 2), CellVersion(D, b"none", 1), CellVersion(C, b"q", 1)]),
                Delete(row + b"missing", [CellVersion(D, b"q", 1)]),
            ],
        )
        assert values(store, tables.many, row) == {b"q": b"1"}
        assert values(store, tables.many, row + b"missing") == {}

    def test_deleting_many_versions_of_many_rows_in_one_batch(self, store: Store, tables: Tables, row: bytes) -> None:
        keys = [row + b"%03d" % number for number in range(100)]
        for at in (1, 2):
            store.write(tables.many.name, [put(key, {b"p": b"x", b"q": b"x"}, at) for key in keys])
            store.write(tables.many.name, [put(key, {b"k": b"x"}, at, C) for key in keys])
        exact = [CellVersion(D, b"p", 2), CellVersion(C, b"k", 2), CellVersion(D, b"q", 1)]
        store.delete(tables.many.name, [Delete(key, exact) for key in keys])
        store.delete(tables.many.name, [Delete(key, exact) for key in keys])
        found = store.read(tables.many.name, [Get(key, versions=ALL_VERSIONS) for key in keys])
        left = [Cell(C, b"k", 1, b"x"), Cell(D, b"p", 1, b"x"), Cell(D, b"q", 2, b"x")]
        assert plain(found) == [(key, left) for key in keys]

    def test_deleting_below_a_timestamp_spares_that_version_and_newer_ones(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        future = 7_350_000_000_000_000_000
        for at in (0, 1, future, future + 1):
            store.write(tables.many.name, [put(row, {b"p": b"x", b"q": b"x", b"qq": b"x"}, at)])
            store.write(tables.many.name, [put(row, {b"q": b"x", b"r": b"x"}, at, C)])
        cells = [CellVersion(D, b"q", future), CellVersion(D, b"p", 0), CellVersion(C, b"r", 1), CellVersion(D, b"", 9)]
        for _ in range(2):
            store.delete_below(tables.many.name, [DeleteBelow(row, cells), DeleteBelow(row + b"missing", cells)])
        (found,) = store.read(tables.many.name, [Get(row, versions=ALL_VERSIONS)])
        left: dict[tuple[bytes, bytes], list[int]] = {}
        for cell in found.cells:
            left.setdefault((cell.family, cell.qualifier), []).append(cell.timestamp)
        both, one = [future + 1, future], [future + 1, future, 1]
        assert left == {
            (C, b"q"): [*one, 0],
            (C, b"r"): one,
            (D, b"p"): [*one, 0],
            (D, b"q"): both,
            (D, b"qq"): [*one, 0],
        }
        store.write(tables.many.name, [put(row, {b"q": b"new"}, future + 2)])
        assert values(store, tables.many, row)[b"q"] == b"new"

    def test_deleting_a_family_below_a_timestamp_spares_other_families_and_newer_versions(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        names = [b"k%03d" % number for number in range(100)]
        for at in (5, 6, 7):
            store.write(tables.many.name, [put(row, dict.fromkeys(names, b"x"), at, C)])
            store.write(tables.many.name, [put(row + b"b", {b"k": b"x"}, at, C), put(row, {b"p": b"x"}, at)])
        store.delete_below(
            tables.many.name,
            [DeleteBelow(row, [CellVersion(D, b"p", 6)], [(C, 7)]), DeleteBelow(row + b"b", (), [(C, 99), (D, 99)])],
        )
        gets = [Get(row, versions=ALL_VERSIONS), Get(row + b"b", versions=ALL_VERSIONS)]
        left = [*(Cell(C, name, 7, b"x") for name in names), Cell(D, b"p", 7, b"x"), Cell(D, b"p", 6, b"x")]
        assert plain(store.read(tables.many.name, gets)) == [(row, left), (row + b"b", [])]
        store.delete_below(tables.many.name, [DeleteBelow(row, (), [(C, 8), (D, 8)])])
        assert plain(store.read(tables.many.name, gets[:1])) == [(row, [])]
        assert store.scan(tables.many.name, Scan(row, row + b"c", 10)) == []

    def test_deleting_rows_removes_all_their_cells_and_no_others(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        future = 7_350_000_000_000_000_001
        names = (b"a", b"b", b"b\x00", b"c")
        for at in (1, future):
            store.write(tables.many.name, [put(row + name, {b"p": b"x", b"q": b"y"}, at) for name in names])
            store.write(tables.many.name, [put(row + name, {b"k": b"x"}, at, C) for name in names])
        store.delete_rows(tables.many.name, [row + b"b", row + b"missing", row + b"c"])
        gets = [Get(row + name, versions=ALL_VERSIONS) for name in names]
        assert [len(found.cells) for found in store.read(tables.many.name, gets)] == [6, 0, 6, 0]
        found = store.scan(tables.many.name, Scan(row, row + b"\xff", 10))
        assert [result.key for result in found] == [row + b"a", row + b"b\x00"]
