"""Rows in the order of their writes in an SQLite file: they are those of memory, and one statement reads them."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hbasemk import FormatError, connect
from hbasemk.store.abc import ALL_VERSIONS, NewCell, Put, Table
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.store.sqlite.many_rows import NAMED

NAMES = [b"%d" % number for number in range(NAMED + 2)]
NUMBERED = [
    Table("newest", (b"c", b"d"), 1, arrivals=True),
    Table("every", (b"c", b"d"), ALL_VERSIONS, arrivals=True),
]


@pytest.mark.parametrize("table", ["newest", "every"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_in_the_order_of_writes_are_those_of_memory(store: SqliteStore, table: str, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    memory = MemoryStore(lambda: 1, transactions=True)
    for into in (store, memory):
        into.create_tables(NUMBERED)
    for _ in range(60):
        keys = dict.fromkeys(b"%02d" % chance.randrange(20) for _ in range(chance.choice((1, 1, 2, 5))))
        names = chance.sample(NAMES, len(keys))
        cells = [
            NewCell(chance.choice((b"c", b"d")), name, b"%d" % chance.randrange(99), chance.randrange(1, 9))
            for name in names
        ]
        puts = [Put(key, [cell]) for key, cell in zip(keys, cells, strict=True)]
        is_delete = chance.random() < 0.1
        for into in (store, memory):
            if is_delete:
                into.delete_rows(table, list(keys))
            else:
                into.write(table, puts)
    for _ in range(100):
        columns = [
            (family, name)
            for family in chance.choice(((b"d",), (b"d",), (b"c",), (b"c", b"d")))
            for name in chance.sample(NAMES, chance.choice((0, 1, 2, 4, NAMED, NAMED + 1)))
        ]
        after, limit = chance.choice((0, 0, chance.randrange(200))), chance.choice((1, 2, 7, 64, 65, 1000))
        assert store.arrivals(table, after, limit, columns) == memory.arrivals(table, after, limit, columns)


@pytest.mark.parametrize("writes", [0, 1, 100])
def test_one_statement_reads_what_was_written(store: SqliteStore, writes: int) -> None:
    store.create_tables(NUMBERED)
    for number in range(writes):
        store.write("newest", [Put(b"%03d" % number, [NewCell(b"d", name, b"v") for name in NAMES[:6]])])
    made: list[str] = []
    with store._connections._idle[0].sql as sql:
        sql.set_trace_callback(made.append)
        found = store.arrivals("newest", 0, 200, [(b"d", name) for name in NAMES[2:6]])
        sql.set_trace_callback(None)
    assert len(made) == 1, made
    assert [len(row.cells) for row in found.rows] == [4] * writes
    assert found.complete


def test_a_repository_without_its_order_of_writes_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "content.db"
    with connect(f"sqlite:///{path}") as repo:
        repo.run(lambda tx: tx.add("/a", {}))
    with closing(sqlite3.connect(path)) as sql:
        (number,) = sql.execute("SELECT id FROM hbasemk_tables WHERE name = 'journal'").fetchone()
        sql.execute(f"DROP TABLE hbasemk_arrivals_{number}")
    with pytest.raises(FormatError, match="is damaged: the order of writes of table 'journal' is missing; restore it"):
        connect(f"sqlite:///{path}", create=False)
