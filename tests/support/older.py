"""Repositories and processes of another format."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from hbasemk.format import schema
from hbasemk.kernel import settings
from hbasemk.store.abc import NewCell, Put, Scan, Store, scan_all

KEPT: Final = "field of another version"


def settings_fields(store: Store) -> dict[str, Any]:
    """Return the fields of the stored settings."""
    store.verify(schema.TABLES)
    (cell,) = store.read(schema.CLUSTER, [settings.CURRENT])[0].cells
    fields: dict[str, Any] = json.loads(cell.value)
    return fields


def set_format(store: Store, number: int) -> None:
    """Store another format number, and a field that only another version knows."""
    fields = {**settings_fields(store), "format": number, "kept": KEPT}
    put = Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, json.dumps(fields).encode())])
    store.write(schema.CLUSTER, [put])


def remove_arrivals(path: Path) -> None:
    """Remove all arrival numbers from a SQLite file, which versions with format 1 do not keep."""
    with closing(sqlite3.connect(path)) as db, db:
        tables = dict(db.execute("SELECT name, id FROM hbasemk_tables"))
        db.execute(f"DROP TABLE hbasemk_arrivals_{tables['journal']}")
        db.execute(f"DELETE FROM cluster_{tables['cluster']}_0 WHERE qualifier = ?", (schema.ARRIVAL[1],))


def work_as(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let this process work as a version with another format."""
    monkeypatch.setattr(settings, "FORMAT", number)


def dump(store: Store) -> dict[str, list[Any]]:
    """Return all cells of the repository."""
    store.verify(schema.TABLES)
    return {
        table.name: [(row.key, list(row.cells)) for row in scan_all(store, table.name, Scan(None, None, 1000))]
        for table in schema.TABLES
    }
