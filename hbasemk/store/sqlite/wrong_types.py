"""The search for a cell whose SQL type is wrong, after a read has failed because of one.

SQLite checks no types, so a damaged file may have a text or a number in the place of a key or a value.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from hbasemk.format.limits import shown
from hbasemk.store.abc import Column
from hbasemk.store.sqlite.cells import Families

_TYPES: Final = {"row": "blob", "qualifier": "blob", "ts": "integer", "value": "blob"}
_NAMES: Final = {"row": "a row key", "qualifier": "a qualifier", "ts": "a timestamp", "value": "a value"}


class WrongType(NamedTuple):
    """A cell, or an arrival number (without a column), of which a part has a wrong SQL type."""

    problem: str
    table: str
    row: bytes
    column: Column | None


def find(sql: sqlite3.Connection, tables: Sequence[Families]) -> WrongType | None:
    """Return the first wrong cell of some tables; None if there is none. Reads all their rows."""
    for table in tables:
        for family in table.all:
            found = _find(sql, family.table, [*_TYPES])
            if found is not None:
                part, kind, row, qualifier = found
                return _described(part, kind, table.name, row, (family.name, qualifier))
        found = _find(sql, table.arrivals, ["row"]) if table.keeps_arrivals else None
        if found is not None:
            return _described(found[0], found[1], table.name, found[2], None)
    return None


def _find(sql: sqlite3.Connection, table: str, columns: Sequence[str]) -> tuple[str, str, bytes, bytes] | None:
    """Return the column of the first wrong value, its SQL type, and the row and the qualifier as blobs."""
    wrong = " OR ".join(f"typeof({column}) <> '{_TYPES[column]}'" for column in columns)
    # Connections reject every text.
    kinds = ", ".join(f"CAST(typeof({column}) AS BLOB)" for column in columns)
    qualifier = "qualifier" if "qualifier" in columns else "x''"
    query = f"SELECT CAST(row AS BLOB), CAST({qualifier} AS BLOB), {kinds} FROM {table} WHERE {wrong} LIMIT 1"
    found = sql.execute(query).fetchone()
    if found is None:
        return None
    row, name, *types = found
    for column, kind in zip(columns, types, strict=True):
        if kind.decode() != _TYPES[column]:
            return column, kind.decode(), row or b"", name or b""
    return None


def _described(part: str, kind: str, table: str, row: bytes, column: Column | None) -> WrongType:
    where = f"table {table!r}, row {shown(row)}"
    where += ", arrival number" if column is None else f", column {column[0].decode()}:{shown(column[1])}"
    return WrongType(f"{_NAMES[part]} must be of SQL type {_TYPES[part]}, got {kind} ({where})", table, row, column)
