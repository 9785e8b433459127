"""Reading and writing cells in SQL tables: one for each column family, clustered by row, qualifier, newest first.

A read steps over a column's unwanted versions only a few at a time and then seeks past the rest, and a scan for single
columns seeks from row to row; so neither long histories nor wide rows cost more than what is asked of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import ALL_VERSIONS, Cell, Column, Get, Put, Row, Scan

PATIENCE: Final = 6
"""Unwanted versions of one column that are stepped over before seeking past them."""
KEYS: Final = 1000
"""How many row keys a scan for single columns looks up at once."""

_cell = tuple.__new__
"""Makes a Cell of a tuple of its four fields, at a third of the cost of calling the class."""


class Family:
    """The SQL table of one column family, and the statements on it."""

    __slots__ = ("delete", "delete_row", "exact", "first", "further", "insert", "name", "newest", "table", "trim")

    def __init__(self, name: bytes, table: str, versions: int) -> None:
        self.name = name
        self.table = table
        cells = f"SELECT qualifier, ts, value FROM {table} WHERE row = ?"
        self.first = f"{cells} ORDER BY qualifier, ts DESC"
        self.further = f"{cells} AND qualifier > ? ORDER BY qualifier, ts DESC"
        column = f"SELECT ts, value FROM {table} WHERE row = ? AND qualifier = ?"
        self.exact = f"{column} AND ts >= ? AND ts < ? ORDER BY ts DESC LIMIT ?"
        self.newest = f"{column} ORDER BY ts DESC LIMIT 1"
        into = f"INSERT INTO {table} (row, qualifier, ts, value) VALUES (?, ?, ?, ?) ON CONFLICT"
        if versions == 1:
            # One SQL row for a column, which only a version at least as new replaces.
            self.insert = (
                f"{into} (row, qualifier) DO UPDATE SET ts = excluded.ts, value = excluded.value "
                "WHERE excluded.ts >= ts"
            )
        else:
            self.insert = f"{into} (row, qualifier, ts) DO UPDATE SET value = excluded.value"
        self.trim: str | None = None
        if versions not in {1, ALL_VERSIONS}:
            self.trim = (
                f"DELETE FROM {table} WHERE row = ?1 AND qualifier = ?2 AND ts <= (SELECT ts FROM {table} "
                f"WHERE row = ?1 AND qualifier = ?2 ORDER BY ts DESC LIMIT 1 OFFSET {versions})"
            )
        self.delete = f"DELETE FROM {table} WHERE row = ? AND qualifier = ? AND ts = ?"
        self.delete_row = f"DELETE FROM {table} WHERE row = ?"


class Families:
    """The families of one table, in order."""

    def __init__(self, name: str, number: int, families: Iterable[bytes], versions: int) -> None:
        self.name = name
        self.versions = versions
        # The number makes the SQL tables of a table that is dropped and created again others than those before.
        readable = "".join(char if char.isascii() and char.isalnum() else "_" for char in name)
        self.by_name = {
            family: Family(family, f'"{readable}_{number}_{order}"', versions)
            for order, family in enumerate(sorted(families))
        }
        self.all = tuple(self.by_name.values())

    def create(self) -> Iterator[str]:
        """The statements that create the SQL tables."""
        key = "row, qualifier" if self.versions == 1 else "row, qualifier, ts DESC"
        for family in self.all:
            yield (
                f"CREATE TABLE {family.table} (row BLOB NOT NULL, qualifier BLOB NOT NULL, ts INTEGER NOT NULL, "
                f"value BLOB NOT NULL, PRIMARY KEY ({key})) WITHOUT ROWID"
            )

    def get(self, name: bytes) -> Family:
        """One family; raises StoreUnusableError naming it if there is none."""
        family = self.by_name.get(name)
        if family is None:
            raise StoreUnusableError(f"table {self.name!r} has no column family {name!r}; it has {list(self.by_name)}")
        return family

    def chosen(self, names: Sequence[bytes] | None) -> Sequence[Family]:
        """These families, or all, in order."""
        if names is None:
            return self.all
        if len(names) == 1:
            return (self.get(names[0]),)
        return [self.get(name) for name in sorted(set(names))]


# --- writing ---------------------------------------------------------------------------------------------------


def group(
    tables: Families, puts: Sequence[Put], now: int
) -> list[tuple[Family, list[tuple[bytes, bytes, int, bytes]]]]:
    """The cells of some puts by family; raises StoreUnusableError for a family that is not there."""
    found: dict[bytes, list[tuple[bytes, bytes, int, bytes]]] = {}
    for row, cells in puts:
        for family, qualifier, value, timestamp in cells:
            some = found.get(family)
            if some is None:
                some = found[family] = []
            some.append((row, qualifier, now if timestamp is None else timestamp, value))
    return [(tables.get(name), cells) for name, cells in found.items()]


def insert(sql: sqlite3.Connection, groups: list[tuple[Family, list[tuple[bytes, bytes, int, bytes]]]]) -> None:
    """Write cells, inside a transaction."""
    for family, cells in groups:
        sql.executemany(family.insert, cells)
        if family.trim is not None:
            sql.executemany(family.trim, {(row, qualifier) for row, qualifier, _, _ in cells})


# --- reading rows ----------------------------------------------------------------------------------------------


def is_one_statement(get: Get) -> bool:
    """Whether a get is read by one statement as a rule, so that it needs no transaction to be atomic."""
    return get.columns is not None and len(get.columns) == 1


def read(sql: sqlite3.Connection, tables: Families, get: Get) -> list[Cell]:
    """The cells of one row that a get asks for."""
    row, columns, names, page, since, before, versions = get
    cells: list[Cell] = []
    if columns is not None:
        for name, qualifier in columns if len(columns) == 1 else sorted(set(columns)):
            found = sql.execute(tables.get(name).exact, (row, qualifier, since, before, versions))
            cells += [_cell(Cell, (name, qualifier, ts, value)) for ts, value in found]
        return cells
    if page is not None:
        return _columns(sql, tables.get(page.family), row, since, before, versions, page.after, page.limit)
    for family in tables.chosen(names):
        cells += _columns(sql, family, row, since, before, versions, None, -1)
    return cells


def _columns(
    sql: sqlite3.Connection,
    family: Family,
    row: bytes,
    since: int,
    before: int,
    versions: int,
    after: bytes | None,
    limit: int,
) -> list[Cell]:
    """Cells of one family of one row, at most ``limit`` (negative: all), of qualifiers greater than ``after``."""
    cells: list[Cell] = []
    if limit == 0:
        return cells
    name = family.name
    current: bytes | None = None
    taken = skipped = 0
    found = sql.execute(family.first, (row,)) if after is None else sql.execute(family.further, (row, after))
    while True:
        for qualifier, ts, value in found:
            if qualifier != current:
                current = qualifier
                taken = skipped = 0
            if since <= ts < before and taken < versions:
                cells.append(_cell(Cell, (name, qualifier, ts, value)))
                if len(cells) == limit:
                    return cells
                taken += 1
                continue
            skipped += 1
            if skipped > PATIENCE:
                break
        else:
            return cells
        assert current is not None
        if not taken and ts >= before:
            wanted = versions if limit < 0 else min(versions, limit - len(cells))
            exact = sql.execute(family.exact, (row, current, since, before, wanted))
            cells += [_cell(Cell, (name, current, ts, value)) for ts, value in exact]
            if len(cells) == limit:
                return cells
        found = sql.execute(family.further, (row, current))


# --- scanning --------------------------------------------------------------------------------------------------


def scan(sql: sqlite3.Connection, tables: Families, scan: Scan) -> list[Row]:
    """The first rows of a range that have a matching cell."""
    if scan.limit <= 0:
        return []
    if scan.columns is not None:
        by_family: dict[bytes, list[Column]] = {}
        for column in scan.columns:
            by_family.setdefault(column[0], []).append(column)
        parts = [_scan_columns(sql, tables, tables.get(name), by_family[name], scan) for name in sorted(by_family)]
    else:
        parts = [_scan_family(sql, family, scan) for family in tables.chosen(scan.families)]
    if len(parts) == 1:
        return parts[0]
    # Each part has the first rows of its family, so together they have the first rows of all.
    rows: dict[bytes, list[Cell]] = {}
    for part in parts:
        for key, cells in part:
            rows.setdefault(key, []).extend(cells)
    return [Row(key, rows[key]) for key in sorted(rows, reverse=scan.reverse)[: scan.limit]]


def _bounds(scan: Scan, start: bytes | None, after: bool) -> tuple[str, list[bytes]]:
    """The condition on ``row`` that a scan means, from ``start`` (exclusive if ``after``) on, and its values."""
    above, below = ("<", ">") if scan.reverse else (">", "<")
    conditions: list[str] = []
    values: list[bytes] = []
    if start is not None:
        conditions.append(f"row {above}{'' if after else '='} ?")
        values.append(start)
    if scan.stop is not None:
        conditions.append(f"row {below} ?")
        values.append(scan.stop)
    return " AND ".join(conditions) or "1", values


def _scan_family(sql: sqlite3.Connection, family: Family, scan: Scan) -> list[Row]:
    """Step through one family in row order; rows with long histories are read by seeking instead."""
    _, _, limit, reverse, _, _, since, before, versions = scan
    name = family.name
    rows: list[Row] = []
    start, after = scan.start, False
    while True:
        where, values = _bounds(scan, start, after)
        order = "DESC" if reverse else "ASC"
        found = sql.execute(
            f"SELECT row, qualifier, ts, value FROM {family.table} WHERE {where} "
            f"ORDER BY row {order}, qualifier, ts DESC",
            values,
        )
        key: bytes | None = None
        current: bytes | None = None
        cells: list[Cell] = []
        taken = skipped = 0
        for row, qualifier, ts, value in found:
            if row != key:
                if cells and key is not None:
                    rows.append(Row(key, cells))
                    if len(rows) == limit:
                        return rows
                key, current, cells, taken, skipped = row, qualifier, [], 0, 0
            elif qualifier != current:
                current, taken = qualifier, 0
            if since <= ts < before and taken < versions:
                cells.append(_cell(Cell, (name, qualifier, ts, value)))
                taken += 1
            else:
                skipped += 1
                if skipped > 4 * PATIENCE:
                    break
        else:
            if cells and key is not None:
                rows.append(Row(key, cells))
            return rows
        assert key is not None
        cells = _columns(sql, family, key, since, before, versions, None, -1)
        if cells:
            rows.append(Row(key, cells))
            if len(rows) == limit:
                return rows
        start, after = key, True


def _scan_columns(
    sql: sqlite3.Connection, tables: Families, family: Family, columns: Sequence[Column], scan: Scan
) -> list[Row]:
    """Seek from row to row, and read the columns of each; never steps through a row."""
    rows: list[Row] = []
    start, after = scan.start, False
    while True:
        size = min(scan.limit - len(rows), KEYS)
        keys = _keys(sql, family, scan, start, after, size)
        for key in keys:
            get = Get(key, columns, None, None, scan.since, scan.before, scan.versions)
            cells = read(sql, tables, get)
            if cells:
                rows.append(Row(key, cells))
        if len(keys) < size or len(rows) == scan.limit:
            return rows
        start, after = keys[-1], True


def _keys(
    sql: sqlite3.Connection, family: Family, scan: Scan, start: bytes | None, after: bool, size: int
) -> list[bytes]:
    """The next keys of a range, at most ``size``, each found by one seek from the one before."""
    where, values = _bounds(scan, start, after)
    stop = values[-1:] if scan.stop is not None else []
    step = f"row {'<' if scan.reverse else '>'} keys.row" + (
        f" AND row {'>' if scan.reverse else '<'} ?" if stop else ""
    )
    edge = "max" if scan.reverse else "min"
    statement = (
        f"WITH RECURSIVE keys (row) AS (SELECT {edge}(row) FROM {family.table} WHERE {where} UNION ALL "
        f"SELECT (SELECT {edge}(row) FROM {family.table} WHERE {step}) FROM keys WHERE row IS NOT NULL LIMIT ?) "
        "SELECT row FROM keys WHERE row IS NOT NULL"
    )
    return [key for (key,) in sql.execute(statement, (*values, *stop, size + 1))][:size]
