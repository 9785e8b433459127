"""Many rows in one read of a SQLite store: the cells are those of memory, and few statements read them."""

from __future__ import annotations

import random

import pytest

from hbasemk.store.abc import Get, NewCell, Page, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.store.sqlite.many_rows import NAMED
from tests.support.sqlite import statements

KEYS = [b"%03d" % number for number in range(150)]


def shape(chance: random.Random) -> Get:
    """Return a get of any row."""
    one = chance.choice(("column", "columns", "family", "families", "page", "later page", "all"))
    bounds = Get(b"", since=chance.choice((0, 0, 7)), before=chance.choice((20, 50)), versions=chance.choice((1, 1, 3)))
    if one == "column":
        return bounds._replace(columns=[(b"d", b"%d" % chance.randrange(4))])
    if one == "columns":
        others = [(b"d", b"%d" % chance.randrange(31)) for _ in range(chance.choice((0, 1, NAMED)))]
        return bounds._replace(columns=chance.choice(([(b"d", b"1"), (b"c", b"2")], [(b"d", b"2"), *others])))
    if one == "family":
        return bounds._replace(families=(b"d",))
    if one == "families":
        return bounds._replace(families=(b"d", b"c"))
    if one == "all":
        return bounds
    after = b"1" if one == "later page" else None
    return bounds._replace(page=Page(b"d", after, chance.choice((0, 1, 3, 100))), versions=1)


@pytest.mark.parametrize("seed", range(4))
def test_many_rows_are_read_as_in_memory(store: SqliteStore, memory: MemoryStore, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    puts = []
    for key in KEYS:
        # Most rows are narrow and have short histories.
        width = chance.choice((0, 1, 2, 3, 3, 3, 3, 30))
        for number in range(width):
            depth = chance.choice((1, 1, 1, 1, 2, 12)) if chance.random() < 0.2 else 1
            family = chance.choice((b"c", b"d", b"d"))
            versions = chance.sample(range(1, 60), depth)
            puts.append(Put(key, [NewCell(family, b"%d" % number, b"%d" % at, at) for at in versions]))
    for into in (store, memory):
        into.write("many", puts)
    for _ in range(60):
        gets: list[Get] = []
        for _ in range(chance.choice((1, 1, 2))):
            one = shape(chance)
            count = chance.choice((0, 1, 2, 7, 8, 9, 20, 64, 65, 150))
            gets += [one._replace(row=key) for key in chance.choices([*KEYS, b"absent"], k=count)]
        assert [(row.key, list(row.cells)) for row in store.read("many", gets)] == [
            (row.key, list(row.cells)) for row in memory.read("many", gets)
        ], gets


@pytest.mark.parametrize("seed", range(4))
def test_named_columns_with_one_version_are_read_as_in_memory(
    store: SqliteStore, memory: MemoryStore, seed: int
) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    for key in KEYS:
        width = chance.choice((0, 1, 2, 3, 3, 3, 3, 30))
        cells = [NewCell(b"d", b"%d" % number, b"v", chance.randrange(1, 60)) for number in range(width)]
        for into in (store, memory) if cells else ():
            into.write("one", [Put(key, cells)])
    for _ in range(60):
        columns = [(b"d", b"%d" % chance.randrange(31)) for _ in range(chance.choice((1, 2, 3, 4, NAMED, NAMED + 1)))]
        one = Get(b"", columns, since=chance.choice((0, 0, 30)), before=chance.choice((40, 60)))
        one = one._replace(versions=chance.choice((0, 1, 3)))
        gets = [one._replace(row=key) for key in chance.choices([*KEYS, b"absent"], k=chance.choice((7, 8, 64, 100)))]
        assert store.read("one", gets) == memory.read("one", gets), one


SHAPES = [
    Get(b"", families=(b"d",)),
    Get(b"", columns=[(b"d", b"0")]),
    Get(b"", page=Page(b"d", None, 5)),
]


@pytest.mark.parametrize("of_row", SHAPES, ids=["family", "column", "page"])
def test_one_statement_reads_many_rows(store: SqliteStore, of_row: Get) -> None:
    store.write("many", [Put(key, [NewCell(b"d", b"0", b"v", at) for at in (1, 2)]) for key in KEYS])
    gets = [of_row._replace(row=key) for key in KEYS]
    # Two of 64 rows, two of 8, and six of one.
    assert statements(store, gets) == 10
    assert statements(store, gets[:7]) == 7


def test_one_statement_reads_named_columns_of_many_rows(store: SqliteStore) -> None:
    store.write("one", [Put(key, [NewCell(b"d", b"%d" % number, b"v") for number in range(6)]) for key in KEYS])
    gets = [Get(key, [(b"d", b"1"), (b"d", b"2"), (b"d", b"5")]) for key in KEYS[:136]]
    assert statements(store, gets, "one") == 3
    # Where columns have several versions, a statement reads the newest of one column in many rows, ...
    assert statements(store, gets) == 9
    # ... or several versions of one column of a row.
    assert statements(store, [get._replace(versions=2) for get in gets[:8]]) == 24


def test_a_row_with_a_long_history_costs_no_more_than_its_group(store: SqliteStore) -> None:
    puts = [Put(key, [NewCell(b"d", b"0", b"v", at) for at in range(1, 2000 if key == KEYS[0] else 2)]) for key in KEYS]
    store.write("many", puts)
    gets = [Get(key, families=(b"d",)) for key in KEYS[:64]]
    # The statement of the group, and one or two for each of its rows.
    assert statements(store, gets) <= 1 + 64 + 1
    assert [len(row.cells) for row in store.read("many", gets)] == [1] * 64
