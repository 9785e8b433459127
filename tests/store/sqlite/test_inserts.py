"""Tests of inserts of many cells: one statement of the SQLite store inserts up to 64 of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from hbasemk.store.abc import ALL_VERSIONS, NewCell, Put, Scan, Table
from hbasemk.store.alike import AlikeCells, Columns
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.store.sqlite.cells import BLOCKS, FEW_CELLS, SAME, Families, group

TABLES: Final = [
    Table("one", (b"c", b"d"), 1),
    Table("few", (b"c", b"d"), 3),
    Table("all", (b"c", b"d"), ALL_VERSIONS),
]
ALIKE: Final = Columns(b"c", [b"q"])
COUNTS: Final = (
    *range(1, FEW_CELLS + 2),
    *(block * n + more for block in BLOCKS for n in (1, 2) for more in (-1, 0, 1)),
    100,
    2 * SAME,
    2 * SAME + 40,
)


@pytest.mark.parametrize("table", [table.name for table in TABLES])
@pytest.mark.parametrize(("columns", "values", "stamps"), [(2, 1000, 8), (1000, 1000, 8), (10**6, 1, 1), (300, 1, 2)])
def test_any_number_of_cells_in_a_put_is_written_as_in_the_memory_store(
    path: Path, table: str, columns: int, values: int, stamps: int
) -> None:
    """With two columns, most statements write a column several times, also with the same timestamp.

    With one value, one statement writes cells that differ only in their columns.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}; repeat with it in place of random.randrange(2**32)")
    chance = random.Random(seed)
    stores = SqliteStore(str(path)), MemoryStore()
    for store in stores:
        store.create_tables(TABLES)
    for count in COUNTS:
        cells = [
            NewCell(
                chance.choice((b"c", b"d")),
                b"q%d" % chance.randrange(columns),
                b"%d" % (number % values),
                chance.randrange(stamps),
            )
            for number in range(count)
        ]
        puts = [Put(b"row %d" % count, cells), Put(b"row %d" % (count - 1), cells[: count // 2 + 1])]
        puts += [Put(b"alike %d" % number, AlikeCells(ALIKE, (b"%d" % count,)), count) for number in range(20)]
        for store in stores:
            store.write(table, puts)
        one, other = (store.scan(table, Scan(None, None, 1000, versions=ALL_VERSIONS)) for store in stores)
        assert one == other
    for store in stores:
        store.close()


def test_the_rows_of_a_write_are_inserted_in_the_order_of_their_keys() -> None:
    tables = Families("nodes", 1, [b"d"], ALL_VERSIONS)
    puts = [Put(row, [NewCell(b"d", b"q", value, 1)]) for row, value in ((b"b", b"1"), (b"c", b"2"), (b"a", b"3"))]

    ((_, parameters, *_),) = group(tables, puts, 1)

    assert [bytes(row) for row in parameters[::4] if isinstance(row, bytearray)] == [b"a", b"b", b"c"]


def test_the_last_of_two_puts_of_one_cell_wins() -> None:
    tables = Families("nodes", 1, [b"d"], ALL_VERSIONS)
    puts = [Put(row, [NewCell(b"d", b"q", value, 1)]) for row, value in ((b"b", b"1"), (b"a", b"2"), (b"b", b"3"))]

    ((_, parameters, *_),) = group(tables, puts, 1)

    assert [bytes(value) for value in parameters[3::4] if isinstance(value, bytearray)] == [b"2", b"1", b"3"]
