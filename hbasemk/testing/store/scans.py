"""Tests of scans: rows in key order, in both directions, over whole ranges, batch by batch."""

from __future__ import annotations

import itertools

import pytest

from hbasemk.store.abc import ALL_VERSIONS, Cell, CellVersion, Delete, Get, Row, Scan, Store, scan_all
from hbasemk.store.sizes import is_full, size_of_rows
from hbasemk.testing.store.base import Base, C, D, Tables, plain, put

TAILS = sorted(
    {b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\x01", b"A", b"a", b"a\x00", b"a\x00b", b"aa", b"a\xff", b"b"}
    | {b"\x7f", b"\x80", b"\xc3\xa4", b"\xfe\xff", b"\xff", b"\xff\x00", b"\xff\xff", b"\xff\xff\xff"}
)


class _Counting:
    """A wrapper that counts the scans of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.scans = 0

    def scan(self, table: str, scan: Scan) -> list[Row]:
        self.scans += 1
        return self.store.scan(table, scan)


class Scans(Base):
    """Tests of ranges of rows."""

    def _fill(self, store: Store, tables: Tables, row: bytes) -> list[bytes]:
        keys = [row + tail for tail in TAILS]
        store.write(tables.many.name, [put(key, {b"q": key}, 1) for key in reversed(keys)])
        return keys

    @pytest.mark.parametrize("reverse", [False, True])
    def test_rows_come_in_the_order_of_their_bytes(
        self, store: Store, tables: Tables, row: bytes, reverse: bool
    ) -> None:
        keys = self._fill(store, tables, row)
        bounds = (row + b"\xff" * 4, row[:-1]) if reverse else (row, row + b"\xff" * 4)
        found = store.scan(tables.many.name, Scan(*bounds, 1000, reverse=reverse))
        if reverse:
            keys.reverse()
        assert plain(found) == [(key, [Cell(D, b"q", 1, key)]) for key in keys]

    def test_the_start_is_included_and_the_stop_is_not_either_way(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        keys = self._fill(store, tables, row)
        edges = [*keys, row + b"\x00\x00\x00", row + b"aaa", row + b"q", row + b"\xff\xff\xff\xff"]
        for low in edges[::3]:
            for high in edges[::2]:
                if low > high:
                    continue
                forward = store.scan(tables.many.name, Scan(low, high, 1000))
                assert [found.key for found in forward] == [key for key in keys if low <= key < high]
                backward = store.scan(tables.many.name, Scan(high, low, 1000, reverse=True))
                assert [found.key for found in backward] == [key for key in keys[::-1] if low < key <= high]

    def test_an_empty_range_returns_no_rows(self, store: Store, tables: Tables, row: bytes) -> None:
        keys = self._fill(store, tables, row)
        for key in (keys[0], keys[7], keys[-1], row + b"missing"):
            assert store.scan(tables.many.name, Scan(key, key, 10)) == []
            assert store.scan(tables.many.name, Scan(key, key, 10, reverse=True)) == []

    def test_a_scan_returns_at_most_limit_rows_next_to_the_start(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        keys = self._fill(store, tables, row)
        end = row + b"\xff" * 4
        for limit in (1, 2, len(keys) - 1, len(keys), len(keys) + 1):
            forward = store.scan(tables.many.name, Scan(row, end, limit))
            assert [found.key for found in forward] == keys[:limit]
            backward = store.scan(tables.many.name, Scan(end, row[:-1], limit, reverse=True))
            assert [found.key for found in backward] == keys[::-1][:limit]

    def test_open_ends_reach_the_first_and_the_last_row(self, store: Store, tables: Tables) -> None:
        # No other test uses this table.
        keys = [tail for tail in TAILS if tail]
        store.write(tables.ends.name, [put(key, {b"q": key}, 1) for key in keys])

        def found(start: bytes | None, stop: bytes | None, limit: int, reverse: bool) -> list[bytes]:
            return [result.key for result in store.scan(tables.ends.name, Scan(start, stop, limit, reverse))]

        assert found(None, None, 1000, False) == keys
        assert found(None, None, 1000, True) == keys[::-1]
        assert found(None, None, 3, False) == keys[:3]
        assert found(None, None, 3, True) == keys[::-1][:3]
        assert found(None, b"b", 1000, False) == [key for key in keys if key < b"b"]
        assert found(b"b", None, 1000, False) == [key for key in keys if key >= b"b"]
        assert found(None, b"b", 1000, True) == [key for key in keys[::-1] if key > b"b"]
        assert found(b"b", None, 1000, True) == [key for key in keys[::-1] if key <= b"b"]
        for reverse in (False, True):
            for size in (1, 4, 1000):
                everything = scan_all(store, tables.ends.name, Scan(None, None, size, reverse))
                assert [result.key for result in everything] == (keys[::-1] if reverse else keys)

    @pytest.mark.parametrize("reverse", [False, True])
    def test_batches_together_give_the_whole_range(
        self, store: Store, tables: Tables, row: bytes, reverse: bool
    ) -> None:
        keys = self._fill(store, tables, row)
        bounds = (row + b"\xff" * 4, row[:-1]) if reverse else (row, row + b"\xff" * 4)
        whole = plain(store.scan(tables.many.name, Scan(*bounds, 1000, reverse=reverse)))
        assert len(whole) == len(keys)
        for size in (1, 2, 3, 7, len(keys) - 1, len(keys), len(keys) + 1):
            counting = _Counting(store)
            rows = scan_all(counting, tables.many.name, Scan(*bounds, size, reverse=reverse))  # type: ignore[arg-type]
            assert plain(list(rows)) == whole
            assert counting.scans == len(keys) // size + 1

    @pytest.mark.parametrize("families", [None, [D]])
    def test_a_batch_may_end_early_only_after_so_many_bytes(
        self, store: Store, tables: Tables, row: bytes, families: list[bytes] | None
    ) -> None:
        keys = [row + b"%02d" % number for number in range(40)]
        large = {key: key * 1000 for key in keys[5:30:3]}
        values = {key: {b"p": large.get(key, key), b"q": b""} for key in keys}
        store.write(tables.many.name, [put(key, value, 5) for key, value in values.items()])
        whole = Scan(row, row + b"\xff", 1000, families=families)
        expected = plain(store.scan(tables.many.name, whole))
        assert len(expected) == len(keys)
        size = len(large[keys[5]])
        for limit, most in itertools.product((1, 7, 40, 1000), (1, size, 2 * size, 100 * size)):
            scan = whole._replace(limit=limit, most_bytes=most)
            found: list[Row] = []
            more = True
            while more:
                rows = store.scan(tables.many.name, scan)
                assert len(rows) <= limit
                more = is_full(scan, rows, size_of_rows(rows))
                found += rows
                scan = scan._replace(start=found[-1].key + b"\0")
            assert plain(found) == expected

    @pytest.mark.parametrize("families", [None, [D]])
    def test_only_the_bytes_of_values_may_end_a_batch_early(
        self, store: Store, tables: Tables, row: bytes, families: list[bytes] | None
    ) -> None:
        keys = [row + b"k" * 100 + b"%02d" % number for number in range(40)]
        store.write(tables.many.name, [put(key, {b"q" * 100: b"ten bytes."}, 5) for key in keys])
        for most in (1, 100, 200, 399, 400, 401):
            scan = Scan(row, row + b"\xff", 1000, families=families, most_bytes=most)
            rows = store.scan(tables.many.name, scan)
            assert [one.key for one in rows] == keys[: len(rows)]
            assert len(rows) >= min(-(-most // 10), len(keys))

    def test_a_reverse_scan_does_not_end_early(self, store: Store, tables: Tables, row: bytes) -> None:
        keys = [row + b"%d" % number for number in range(5)]
        store.write(tables.many.name, [put(key, {b"q": bytes(100)}, 1) for key in keys])
        found = store.scan(tables.many.name, Scan(row + b"\xff", row[:-1], 10, reverse=True, most_bytes=1))
        assert [one.key for one in found] == keys[::-1]

    def test_rows_without_a_matching_cell_are_not_returned_and_do_not_count(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        keys = [row + b"%02d" % number for number in range(30)]
        store.write(tables.many.name, [put(key, {b"p": b"x"}, 5) for key in keys])
        store.write(tables.many.name, [put(key, {b"q": b"y"}, 9) for key in keys[3::5]])
        store.write(tables.many.name, [put(key, {b"k": b"z"}, 7, C) for key in keys[4::7]])
        selections = [
            (Scan(row, row + b"\xff", 3, columns=[(D, b"q")]), keys[3::5]),
            (Scan(row, row + b"\xff", 3, families=[C]), keys[4::7]),
            (Scan(row, row + b"\xff", 3, since=6), sorted({*keys[3::5], *keys[4::7]})),
            (Scan(row, row + b"\xff", 3, families=[D], since=6), keys[3::5]),
            (Scan(row, row + b"\xff", 3, before=8), keys),
            (Scan(row, row + b"\xff", 3, columns=[(D, b"none")]), []),
            (Scan(row, row + b"\xff", 3, since=100), []),
        ]
        for scan, expected in selections:
            assert [found.key for found in store.scan(tables.many.name, scan)] == expected[:3]
            assert [found.key for found in scan_all(store, tables.many.name, scan)] == expected
            backward = scan._replace(start=scan.stop, stop=row[:-1], reverse=True)
            assert [found.key for found in scan_all(store, tables.many.name, backward)] == expected[::-1]

    def test_a_scan_selects_cells_as_a_get_does(self, store: Store, tables: Tables, row: bytes) -> None:
        keys = [row + b"%d" % number for number in range(5)]
        for at in range(1, 8):
            store.write(tables.many.name, [put(key, {b"p": b"p%d" % at, b"q": b"q%d" % at}, at) for key in keys])
            store.write(tables.many.name, [put(key, {b"k": b"k%d" % at}, at, C) for key in keys[::2]])
        selections = [
            Get(row),
            Get(row, versions=ALL_VERSIONS),
            Get(row, versions=3, since=2, before=6),
            Get(row, columns=[(D, b"q"), (C, b"k")], versions=2),
            Get(row, columns=[(D, b"q")], before=4),
            Get(row, families=[D], before=7),
            Get(row, families=[C, D], versions=2),
            Get(row, families=[C], since=3, before=5, versions=ALL_VERSIONS),
        ]
        for get in selections:
            single = plain(store.read(tables.many.name, [get._replace(row=key) for key in keys]))
            expected = [(key, cells) for key, cells in single if cells]
            forward = Scan(row, row + b"\xff", 100, False, *get[1:3], *get[4:])
            assert plain(store.scan(tables.many.name, forward)) == expected, get
            backward = forward._replace(start=forward.stop, stop=row[:-1], reverse=True)
            assert plain(store.scan(tables.many.name, backward)) == expected[::-1], get

    def test_rows_with_long_histories_are_stepped_over(self, store: Store, tables: Tables, row: bytes) -> None:
        keys = [row + b"%d" % number for number in range(6)]
        for at in range(1, 101):
            store.write(tables.many.name, [put(key, {b"q": b"%d" % at, b"z": b"z"}, at) for key in keys[1::2]])
        store.write(tables.many.name, [put(key, {b"q": b"only"}, 50) for key in keys[::2]])
        for before in (50, 51, 100, 1000):
            scan = Scan(row, row + b"\xff", 10, families=[D], before=before)
            expected = [
                (key, {b"q": min(before - 1, 100), b"z": min(before - 1, 100)} if number % 2 else {b"q": 50})
                for number, key in enumerate(keys)
                if number % 2 or before > 50
            ]
            for wanted, some in ((expected, scan), (expected[::-1], None)):
                found = store.scan(
                    tables.many.name, some or scan._replace(start=scan.stop, stop=row[:-1], reverse=True)
                )
                assert [(got.key, {cell.qualifier: cell.timestamp for cell in got.cells}) for got in found] == wanted

    def test_deleted_rows_and_cells_are_not_returned(self, store: Store, tables: Tables, row: bytes) -> None:
        keys = [row + b"%d" % number for number in range(6)]
        store.write(tables.many.name, [put(key, {b"q": b"x"}, 3) for key in keys])
        store.delete_rows(tables.many.name, [keys[0], keys[3]])
        store.delete(tables.many.name, [Delete(keys[5], [CellVersion(D, b"q", 3)])])
        assert [got.key for got in store.scan(tables.many.name, Scan(row, row + b"\xff", 3))] == [
            keys[number] for number in (1, 2, 4)
        ]

    def test_one_batch_may_have_a_thousand_rows_in_both_directions(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        keys = [row + number.to_bytes(8, "big") for number in range(1000)]
        store.write(tables.one.name, [put(key, {b"committed": b"\x00", b"abort": b"\x00", b"m": key}) for key in keys])
        columns = [(D, b"committed"), (D, b"abort")]
        forward = Scan(row, row + b"\xff" * 9, 1000, columns=columns)
        found = store.scan(tables.one.name, forward)
        assert [(got.key, [cell.qualifier for cell in got.cells]) for got in found] == [
            (key, [b"abort", b"committed"]) for key in keys
        ]
        back = forward._replace(start=row + b"\xff" * 9, stop=keys[499], reverse=True)
        assert plain(store.scan(tables.one.name, back)) == plain(found)[:499:-1]
        whole = plain(store.scan(tables.one.name, forward._replace(columns=None)))
        assert [[cell.qualifier for cell in cells] for _, cells in whole] == [[b"abort", b"committed", b"m"]] * 1000
        assert plain(store.scan(tables.one.name, back._replace(columns=None))) == whole[:499:-1]
