"""Columns with many versions in one read of a SQLite store: the cells are those of memory, few statements read them."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from hbasemk.store.abc import Cell, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore, cells
from tests.support.sqlite import statements


@pytest.mark.parametrize("seed", range(6))
def test_columns_with_many_versions_are_read_as_in_memory(store: SqliteStore, memory: MemoryStore, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    for row in (b"q", b"r", b"s"):
        # Some parts of a row have only deep columns, some hardly any.
        share = 0.0
        for number in range(chance.choice((3, 20, 200))):
            if number % 25 == 0:
                share = chance.choice((0.05, 0.5, 1.0))
            depth = chance.randrange(2, 40) if chance.random() < share else 1
            versions = chance.sample(range(60), depth)
            put = Put(row, [NewCell(b"d", b"%03d" % number, b"%d" % at, at) for at in versions])
            for into in (store, memory):
                into.write("many", [put])
    for _ in range(60):
        bounds = Get(
            chance.choice((b"q", b"r", b"s")),
            families=(b"d",),
            since=chance.choice((0, 0, 0, 7)),
            before=chance.choice((1, 20, 59, 60, 1000)),
            versions=chance.choice((1, 1, 1, 3)),
        )
        assert store.read("many", [bounds]) == memory.read("many", [bounds]), bounds


@pytest.mark.parametrize(("deep", "most"), [(1, 2), (2, 4), (8, 4), (60, 4), (130, 6)])
def test_few_statements_read_columns_with_many_versions(store: SqliteStore, deep: int, most: int) -> None:
    cells = [NewCell(b"d", b"%03d" % number, b"v", at) for number in range(deep) for at in range(1, 30)]
    cells += [NewCell(b"d", b"e%03d" % number, b"v", 1) for number in range(100)]
    store.write("many", [Put(b"r", cells)])
    get = Get(b"r", families=(b"d",))
    assert len(store.read("many", [get])[0].cells) == deep + 100
    assert statements(store, [get]) <= most


def test_a_read_of_columns_with_many_versions_sees_one_state(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [b"%03d" % number for number in range(200)]
    write = [Put(b"r", [NewCell(b"d", name, b"v", at) for name in names for at in range(1, 12)])]
    store.write("many", write)
    other = SqliteStore(str(path))
    created = cells.new_cell
    made: list[object] = []

    def while_another_writes(kind: type[Cell], fields: tuple[object, ...]) -> Cell:
        made.append(fields)
        if len(made) % 40 == 1:
            at = 20 + len(made)
            other.write("many", [Put(b"r", [NewCell(b"d", names[0], b"w", at), NewCell(b"d", names[-1], b"w", at)])])
        return created(kind, fields)

    monkeypatch.setattr(cells, "new_cell", while_another_writes)
    with closing(other):
        (row,) = store.read("many", [Get(b"r", families=(b"d",))])
    assert [cell.timestamp for cell in row.cells] == [11] * len(names)
