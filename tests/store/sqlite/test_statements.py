"""The SQL of the store: parameters in the order of the text, except where the version of Python allows numbers.

Python 3.12.0 to 3.12.3 warns of numbered parameters (``?1``) whose values come in a sequence.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import benchmarks.systems
import hbasemk.store.sqlite
from hbasemk.store.abc import ALL_VERSIONS, NewCell, Put, Scan, Table
from hbasemk.store.alike import AlikeCells, Columns
from hbasemk.store.sqlite import SqliteStore, cells

FOLDERS = [Path(module.__file__ or "").parent for module in (hbasemk.store.sqlite, benchmarks.systems)]
SOURCES = sorted(path for folder in FOLDERS for path in folder.glob("*.py"))


def test_only_the_inserts_that_share_parameters_number_them() -> None:
    assert SOURCES
    found = {path.name for path in SOURCES if re.search(r"\?\d", path.read_text())}
    assert found == {"cells.py"}
    family = cells.Family(b"d", "table", 1)
    for statement in (family.insert_alike(2), family.insert_same):
        assert re.search(r"\?\d", statement)


@pytest.mark.parametrize("numbered", sorted({False, cells.NUMBERED}))
def test_where_parameters_have_no_numbers_no_cells_share_any(
    path: Path, monkeypatch: pytest.MonkeyPatch, numbered: bool
) -> None:
    monkeypatch.setattr(cells, "NUMBERED", numbered)
    columns = Columns(b"d", [b"p", b"q"])
    alike = [Put(b"%03d" % n, AlikeCells(columns, (b"%d" % n, b"x")), 5) for n in range(40)]
    wide = [Put(b"wide", [NewCell(b"d", b"%03d" % n, b"x") for n in range(100)], 5)]
    store = SqliteStore(str(path))
    store.create_tables([Table("t", (b"d",), ALL_VERSIONS)])
    for puts in (alike, wide):
        groups = cells.group(cells.Families("t", 1, [b"d"], ALL_VERSIONS), puts, 1)
        assert any(group.shared for group in groups) == numbered
        store.write("t", puts)
    rows = store.scan("t", Scan(None, None, 100))
    store.close()
    assert [[tuple(cell) for cell in row.cells] for row in rows] == [
        *([(b"d", b"p", 5, b"%d" % n), (b"d", b"q", 5, b"x")] for n in range(40)),
        [(b"d", b"%03d" % n, 5, b"x") for n in range(100)],
    ]
