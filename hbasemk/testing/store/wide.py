"""Tests of wide rows: a row with 100,000 columns can be read by pages and in parts, without reading it whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbasemk.store.abc import ALL_VERSIONS, Cell, Get, Page, Scan, Store
from hbasemk.testing.store.base import Base, C, D, Tables, plain, put, read

BATCH = 5_000


class Wide(Base):
    """Tests of wide rows."""

    WIDTH = 100_000
    """The number of columns of the wide row."""

    @pytest.fixture(scope="class")
    @classmethod
    def wide(cls, store: Store, tables: Tables, numbers: Iterator[int]) -> bytes:
        """Write a row of ``WIDTH`` columns in one family and two in the other, between two small rows; return its key."""
        key = b"wide%06d/" % next(numbers)
        for first in range(0, cls.WIDTH, BATCH):
            columns = {b"%08d" % number: b"v%d" % number for number in range(first, min(first + BATCH, cls.WIDTH))}
            store.write(tables.many.name, [put(key, columns, 5, C)])
        store.write(
            tables.many.name,
            [put(key, {b"p": b"1", b"q": b"2"}, 5), put(key + b"0", {b"p": b"0"}, 5), put(key[:-1], {b"p": b"9"}, 5)],
        )
        return key

    def test_pages_cover_every_column_once_in_order(self, store: Store, tables: Tables, wide: bytes) -> None:
        size = self.WIDTH // 10 - 1
        after: bytes | None = None
        seen = 0
        pages = 0
        while True:
            cells = read(store, tables.many, Get(wide, page=Page(C, after, size)))
            pages += 1
            for cell in cells:
                assert cell == Cell(C, b"%08d" % seen, 5, b"v%d" % seen)
                seen += 1
            if len(cells) < size:
                break
            after = cells[-1].qualifier
        assert (seen, pages) == (self.WIDTH, 11)

    def test_a_page_may_start_anywhere(self, store: Store, tables: Tables, wide: bytes) -> None:
        middle = self.WIDTH // 2
        for after, first in [
            (b"%08d" % middle, middle + 1),
            (b"%08d" % middle + b"\x00", middle + 1),
            (b"%08d" % (middle - 1) + b"\xff", middle),
            (b"", 0),
            (b"\x00", 0),
        ]:
            cells = read(store, tables.many, Get(wide, page=Page(C, after, 100)))
            assert [cell.qualifier for cell in cells] == [b"%08d" % number for number in range(first, first + 100)]

    def test_the_last_page_is_short_and_the_next_is_empty(self, store: Store, tables: Tables, wide: bytes) -> None:
        cells = read(store, tables.many, Get(wide, page=Page(C, b"%08d" % (self.WIDTH - 4), 100)))
        assert [cell.value for cell in cells] == [b"v%d" % number for number in range(self.WIDTH - 3, self.WIDTH)]
        assert read(store, tables.many, Get(wide, page=Page(C, b"%08d" % (self.WIDTH - 1), 100))) == []
        assert read(store, tables.many, Get(wide, page=Page(C, b"\xff", 100))) == []

    def test_one_batch_may_read_pages_of_several_rows(self, store: Store, tables: Tables, wide: bytes) -> None:
        found = store.read(
            tables.many.name,
            [
                Get(wide, page=Page(C, None, 2)),
                Get(wide + b"missing", page=Page(C, None, 2)),
                Get(wide, columns=[(D, b"p")]),
            ],
        )
        assert [[cell.value for cell in got.cells] for got in found] == [[b"v0", b"v1"], [], [b"1"]]

    def test_single_columns_of_a_wide_row_can_be_read(self, store: Store, tables: Tables, wide: bytes) -> None:
        numbers = [0, self.WIDTH // 3, self.WIDTH - 1]
        columns = [(C, b"%08d" % number) for number in numbers]
        assert [cell.value for cell in read(store, tables.many, Get(wide, columns=columns))] == [
            b"v%d" % number for number in numbers
        ]
        found = store.scan(tables.many.name, Scan(wide, wide + b"\x00", 10, columns=[*columns, (D, b"q")]))
        assert [[cell.value for cell in got.cells] for got in found] == [
            [*(b"v%d" % number for number in numbers), b"2"]
        ]

    def test_the_other_family_of_a_wide_row_can_be_read(self, store: Store, tables: Tables, wide: bytes) -> None:
        expected = [Cell(D, b"p", 5, b"1"), Cell(D, b"q", 5, b"2")]
        assert read(store, tables.many, Get(wide, families=[D])) == expected
        found = store.scan(tables.many.name, Scan(wide[:-1], wide + b"\xff", 10, families=[D]))
        assert [got.key for got in found] == [wide[:-1], wide, wide + b"0"]
        assert list(found[1].cells) == expected

    def test_a_wide_row_can_be_read_whole(self, store: Store, tables: Tables, wide: bytes) -> None:
        cells = read(store, tables.many, Get(wide))
        assert len(cells) == self.WIDTH + 2
        assert cells[-1] == Cell(D, b"q", 5, b"2")

    def test_columns_outside_the_time_range_do_not_fill_a_page(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"%03d" % number: b"old" for number in range(0, 300, 3)}, 1, C)])
        store.write(tables.many.name, [put(row, {b"%03d" % number: b"new" for number in range(300)}, 9, C)])
        for after, first in ((None, 0), (b"150", 153)):
            cells = read(store, tables.many, Get(row, page=Page(C, after, 20), before=5))
            assert cells == [Cell(C, b"%03d" % number, 1, b"old") for number in range(first, first + 60, 3)]
        assert len(read(store, tables.many, Get(row, page=Page(C, None, 1000), before=5))) == 100
        assert read(store, tables.many, Get(row, page=Page(C, None, 10), since=2, before=9)) == []

    def test_pages_respect_a_time_range(self, store: Store, tables: Tables, row: bytes) -> None:
        for at, step in ((1, 1), (5, 7), (6, 14), (9, 2)):
            store.write(tables.many.name, [put(row, {b"%03d" % n: b"%d" % at for n in range(0, 300, step)}, at, C)])
        expected = [Cell(C, b"%03d" % n, 5 + (n % 2 == 0), b"%d" % (5 + (n % 2 == 0))) for n in range(0, 300, 7)]
        found: list[Cell] = []
        while len(found) % 10 == 0 and len(found) <= len(expected):
            page = Page(C, found[-1].qualifier if found else None, 10)
            found += read(store, tables.many, Get(row, page=page, since=5, before=9))
        assert found == expected

    def test_a_page_may_have_columns_with_long_histories(self, store: Store, tables: Tables, row: bytes) -> None:
        for at in range(1, 41):
            store.write(tables.many.name, [put(row, {b"%02d" % number: b"%d" % at for number in range(20)}, at, C)])
        for before, newest in ((1000, 40), (20, 19), (2, 1)):
            cells = read(store, tables.many, Get(row, page=Page(C, b"04", 10), before=before))
            assert cells == [Cell(C, b"%02d" % number, newest, b"%d" % newest) for number in range(5, 15)]

    def test_pages_may_have_qualifiers_of_every_byte(self, store: Store, tables: Tables, row: bytes) -> None:
        names = sorted(
            {bytes([byte]) for byte in range(256)}
            | {b"'", b"''", b"'a", b"a'", b"a'b'", b'"', b"\\", b"\\'", b"%", b",false,'", b"')", b"a\x00", b"\xff\xff"}
        )
        store.write(tables.many.name, [put(row, dict.fromkeys(names, b"x"), 1, C)])
        for number, name in enumerate(names):
            cells = read(store, tables.many, Get(row, page=Page(C, name, 3)))
            assert [cell.qualifier for cell in cells] == names[number + 1 : number + 4]

    def test_many_rows_may_have_a_hundred_columns_with_many_versions(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        columns = [b"%03d" % number for number in range(100)]
        for at in range(1, 11):
            store.write(
                tables.many.name, [put(row + b"%d" % n, dict.fromkeys(columns, b"%d" % at), at) for n in range(3)]
            )
        expected = [
            (row + b"%d" % n, [Cell(D, name, at, b"%d" % at) for name in columns for at in (7, 6)]) for n in range(3)
        ]
        assert plain(store.scan(tables.many.name, Scan(row, row + b"\xff", 10, before=8, versions=2))) == expected
        found = read(store, tables.many, Get(row + b"1", versions=ALL_VERSIONS))
        assert len(found) == 1000
