"""Reading cells out of SQLite tables: one SQL table per column family, clustered by row, qualifier, newest first.

Python steps through a column's versions only a few at a time and then seeks past the rest, so that reading the newest
version costs the same however many there are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from hbasemk.store.abc import Cell, Get, Row, Scan

PATIENCE: Final = 8
"""Cells of one column that are stepped over before seeking past them."""


class Families:
    """The SQL tables of one table's families."""

    def __init__(self, name: str, families: Sequence[bytes], versions: int) -> None:
        self.name = name
        self.families = tuple(sorted(families))
        self.versions = versions
        self.sql = {family: f'"cells_{name}_{family.hex()}"' for family in families}

    def create(self) -> Iterator[str]:
        """The statements that create the SQL tables."""
        for table in self.sql.values():
            key = "row, qualifier" if self.versions == 1 else "row, qualifier, ts DESC"
            yield (
                f"CREATE TABLE IF NOT EXISTS {table} (row BLOB NOT NULL, qualifier BLOB NOT NULL, ts INTEGER NOT NULL, "
                f"value BLOB NOT NULL, PRIMARY KEY ({key})) WITHOUT ROWID"
            )

    def insert(self, family: bytes) -> str:
        """The statement that writes one cell; a table with one version keeps the newest."""
        into = f"INSERT INTO {self.sql[family]} (row, qualifier, ts, value) VALUES (?, ?, ?, ?)"
        if self.versions == 1:
            return (
                f"{into} ON CONFLICT (row, qualifier) DO UPDATE SET ts = excluded.ts, value = excluded.value "
                "WHERE excluded.ts >= ts"
            )
        return f"{into} ON CONFLICT (row, qualifier, ts) DO UPDATE SET value = excluded.value"


def read(sql: sqlite3.Connection, tables: Families, get: Get) -> list[Cell]:
    """The cells of one row that a get asks for."""
    cells: list[Cell] = []
    if get.columns is not None:
        for family, qualifier in sorted(set(get.columns)):
            if family not in tables.sql:
                continue
            query = (
                f"SELECT ts, value FROM {tables.sql[family]} WHERE row = ? AND qualifier = ? AND ts >= ? AND ts < ? "
                "ORDER BY ts DESC LIMIT ?"
            )
            found = sql.execute(query, (get.row, qualifier, get.since, get.before, get.versions))
            cells += [Cell(family, qualifier, ts, value) for ts, value in found]
        return cells
    if get.page is not None:
        family, after, limit = get.page
        return _columns(sql, tables, family, get, after, limit) if family in tables.sql else []
    for family in tables.families:
        if get.families is None or family in get.families:
            cells += _columns(sql, tables, family, get, None, -1)
    return cells


def _columns(
    sql: sqlite3.Connection, tables: Families, family: bytes, get: Get, after: bytes | None, limit: int
) -> list[Cell]:
    """Cells of one family of one row, at most ``limit`` (negative: all), of qualifiers greater than ``after``."""
    table = tables.sql[family]
    first = f"SELECT qualifier, ts, value FROM {table} WHERE row = ? ORDER BY qualifier, ts DESC"
    further = f"SELECT qualifier, ts, value FROM {table} WHERE row = ? AND qualifier > ? ORDER BY qualifier, ts DESC"
    exact = (
        f"SELECT ts, value FROM {table} WHERE row = ? AND qualifier = ? AND ts >= ? AND ts < ? ORDER BY ts DESC LIMIT ?"
    )
    since, before, versions = get.since, get.before, get.versions
    cells: list[Cell] = []
    current: bytes | None = None
    taken = skipped = 0
    rows = sql.execute(first, (get.row,)) if after is None else sql.execute(further, (get.row, after))
    while limit:
        cell = rows.fetchone()
        if cell is None:
            return cells
        qualifier, ts, value = cell
        if qualifier != current:
            current, taken, skipped = qualifier, 0, 0
        if taken < versions and since <= ts < before:
            cells.append(Cell(family, qualifier, ts, value))
            taken += 1
            limit -= 1
            continue
        skipped += 1
        if skipped >= PATIENCE:
            if not taken and ts >= before:
                wanted = versions if limit < 0 else min(versions, limit)
                for ts, value in sql.execute(exact, (get.row, qualifier, since, before, wanted)):
                    cells.append(Cell(family, qualifier, ts, value))
                    limit -= 1
            rows = sql.execute(further, (get.row, qualifier))
    return cells


def scan(sql: sqlite3.Connection, tables: Families, scan: Scan) -> list[Row]:
    """The first rows of a range that have a matching cell."""
    if scan.columns is not None:
        families = sorted({family for family, _ in scan.columns})
    else:
        families = list(tables.families if scan.families is None else sorted(scan.families))
    known = [family for family in families if family in tables.sql]
    if scan.columns is not None or len(known) != 1:
        return _scan_by_key(sql, tables, known, scan)
    return _scan_family(sql, tables, known[0], scan)


def _bounds(scan: Scan, start: bytes | None, after: bool) -> tuple[str, list[bytes]]:
    """The condition on ``row`` that a scan means, from ``start`` (exclusive if ``after``) on."""
    conditions: list[str] = []
    values: list[bytes] = []
    if start is not None:
        above = "<" if scan.reverse else ">"
        conditions.append(f"row {above}{'' if after else '='} ?")
        values.append(start)
    if scan.stop is not None:
        conditions.append(f"row {'>' if scan.reverse else '<'} ?")
        values.append(scan.stop)
    return " AND ".join(conditions) or "1", values


def _scan_by_key(sql: sqlite3.Connection, tables: Families, families: Iterable[bytes], scan: Scan) -> list[Row]:
    """Find the row keys first, then read each row: for several families, or for some columns only."""
    found: list[Row] = []
    start, after = scan.start, False
    direction = "DESC" if scan.reverse else "ASC"
    while len(found) < scan.limit:
        where, values = _bounds(scan, start, after)
        size = min(scan.limit - len(found), 1000) + 1
        keys: set[bytes] = set()
        complete = True
        for family in families:
            query = f"SELECT DISTINCT row FROM {tables.sql[family]} WHERE {where} ORDER BY row {direction} LIMIT {size}"
            some = [key for (key,) in sql.execute(query, values)]
            complete = complete and len(some) < size
            keys.update(some)
        ordered = sorted(keys, reverse=scan.reverse)[:size]
        for key in ordered:
            get = Get(key, scan.columns, scan.families, None, scan.since, scan.before, scan.versions)
            cells = read(sql, tables, get)
            if cells:
                found.append(Row(key, cells))
                if len(found) == scan.limit:
                    return found
        if complete and len(ordered) == len(keys):
            return found
        start, after = ordered[-1], True
    return found


def _scan_family(sql: sqlite3.Connection, tables: Families, family: bytes, scan: Scan) -> list[Row]:
    """Step through one family in row order; rows with long histories are read by seeking instead."""
    table = tables.sql[family]
    direction = "DESC" if scan.reverse else "ASC"
    order = f"row {direction}, qualifier, ts DESC"
    found: list[Row] = []
    start, after = scan.start, False
    while True:
        where, values = _bounds(scan, start, after)
        query = f"SELECT row, qualifier, ts, value FROM {table} WHERE {where} ORDER BY {order}"
        reseek = False
        for key, group in groupby(sql.execute(query, values), key=lambda cell: cell[0]):
            cells, long = _step(family, group, scan)
            if long:
                cells = _columns(
                    sql, tables, family, Get(key, None, None, None, scan.since, scan.before, scan.versions), None, -1
                )
            if cells:
                found.append(Row(key, cells))
                if len(found) == scan.limit:
                    return found
            if long:
                start, after, reseek = key, True, True
                break
        if not reseek:
            return found


def _step(family: bytes, group: Iterable[tuple[bytes, bytes, int, bytes]], scan: Scan) -> tuple[list[Cell], bool]:
    """The wanted cells of one row; True if it has so many unwanted versions that seeking is cheaper."""
    cells: list[Cell] = []
    current: bytes | None = None
    taken = skipped = 0
    since, before, versions = scan.since, scan.before, scan.versions
    for _, qualifier, ts, value in group:
        if qualifier != current:
            current, taken = qualifier, 0
        if taken < versions and since <= ts < before:
            cells.append(Cell(family, qualifier, ts, value))
            taken += 1
        else:
            skipped += 1
            if skipped > 4 * PATIENCE:
                return cells, True
    return cells, False
