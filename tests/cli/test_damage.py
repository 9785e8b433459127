"""No command shows a traceback on damaged tables: each cell is damaged in turn, and foreign rows are added."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from hbasemk import connect
from hbasemk.cli.main import main
from hbasemk.format import paths, schema
from hbasemk.store.abc import Cell, NewCell, Put, Store
from hbasemk.store.sqlite import SqliteStore
from tests.support.commands import run_captured
from tests.support.contents import Contents, all_cells, fill

COMMANDS = (
    "ls -lr",
    "cat /a",
    "log --changes",
    "status",
    "nodes / -d 3",
    "diff {first}",
    "diff {first} --paths",
    "ls --at {branch}",
    "export / -f json",
    "blob get {blob}",
    "check",
    "set /a n 5",
    "mv /a /q",
    "branch --rebase {branch}",
    "merge {branch}",
    "recover --branches 0",
    "check --blobs --repair",
    "watch --timeout 0",
    "init",
)
GARBAGE = (b"\xff\x00", b"", b"{", b"\x01[[")
KEYS = (b"\xff\xff", b"\0\1/\xff\xfe", b"\0", b"\0\1nope", b"\0\0/\xff", b"\0\2/a/\xc3", b"\0\1/a\0")


class Base(NamedTuple):
    """A repository to damage copies of."""

    path: Path
    contents: Contents
    cells: list[tuple[str, bytes, Cell]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    path = tmp_path_factory.mktemp("damage") / "base.db"
    with connect(f"sqlite:///{path}", poll_interval=0) as repository:
        contents = fill(repository)
    with closing(SqliteStore(str(path))) as store:
        return Base(path, contents, all_cells(store))


def damages(base: Base) -> Iterator[tuple[str, Callable[[Store], None]]]:
    """Each damage to a copy: its description and the function that does it."""

    def write(table: str, key: bytes, cell: NewCell) -> Callable[[Store], None]:
        return lambda store: store.write(table, [Put(key, [cell])])

    for (table, key, cell), garbage in zip(base.cells, itertools.cycle(GARBAGE)):
        yield (
            f"{table} {key!r} {cell.qualifier!r} = {garbage!r}",
            write(table, key, NewCell(cell.family, cell.qualifier, garbage, cell.timestamp)),
        )
    newest = max(cell.timestamp for table, _, cell in base.cells if table == schema.NODES)
    samples = {table: cell for table, _, cell in base.cells}
    for (table, cell), key in itertools.product(samples.items(), KEYS):
        stamp = newest if table == schema.NODES else None
        yield f"{table} {key!r}", write(table, key, NewCell(cell.family, cell.qualifier, cell.value, stamp))
    key = paths.key("/a")
    for column, version in {
        ((cell.family, cell.qualifier), cell.timestamp)
        for table, row, cell in base.cells
        if (table, row) == (schema.NODES, key)
    }:
        family, qualifier = column
        bad = NewCell(family, qualifier[:1] + b"\xff\xfe", schema.PRESENT, version)
        yield f"/a {family!r} {qualifier[:1]!r} ff fe", write(schema.NODES, key, bad)


@pytest.mark.slow
def test_no_damage_of_the_tables_is_a_traceback(
    base: Base, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.db"
    monkeypatch.setenv("HBASEMK_URL", f"sqlite:///{copy}?durable=no")
    seen: list[str] = []
    errors = 0
    for what, damage in damages(base):
        for file in tmp_path.iterdir():
            file.unlink()
        shutil.copy(base.path, copy)
        store = SqliteStore(str(copy), durable=False)
        damage(store)
        store.close()
        for command in COMMANDS:
            words = [word.format(**base.contents._asdict()) if "{" in word else word for word in command.split()]
            try:
                main(words)
            except SystemExit as ended:
                assert ended.code in range(5), (what, command)
                errors += ended.code != 0
            except Exception as error:
                seen.append(f"{command}: {error!r} after {what}")
    # A damaged blob is written as it is.
    capfdbinary.readouterr()
    assert not seen, "\n".join(seen[:20])
    assert errors > 100


@pytest.mark.parametrize("change", ["value = 5", "value = 'abc'", "value = 5.5", "ts = 'x'", "row = CAST(row AS TEXT)"])
@pytest.mark.parametrize("table", ["nodes_1_0", "nodes_1_1", "journal_2_0", "cluster_3_0", "blobs_4_0"])
def test_no_cell_of_a_wrong_sql_type_is_a_traceback(
    base: Base, tmp_path: Path, capfd: pytest.CaptureFixture[str], table: str, change: str
) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(base.path, copy)
    with closing(sqlite3.connect(copy)) as sql, sql:
        sql.execute(f"UPDATE OR IGNORE {table} SET {change}")
    for command in (*COMMANDS, "collect --full --dry-run"):
        words = command.format(**base.contents._asdict()).split()
        code, out, err = run_captured(capfd, "--url", f"sqlite:///{copy}?durable=no", *words)
        assert code in (0, 1), (command, err)
        if command == "check --blobs --repair":
            assert code == 1
            assert "copy.db is damaged: a " in out + err
            assert "must be of SQL type" in out + err
