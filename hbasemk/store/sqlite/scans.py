"""Scans over ranges of rows in SQL tables, in row order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from hbasemk.store.abc import Cell, Column, Get, Row, Scan
from hbasemk.store.sizes import size_of
from hbasemk.store.sqlite.cells import MAX_SKIPPED, Families, Family, WrongTypeError, new_cell, read

_UNBOUNDED: Final = 1 << 62


def scan(sql: sqlite3.Connection, tables: Families, scan: Scan) -> list[Row]:
    """Return the first rows of a range that have a matching cell."""
    if scan.limit <= 0:
        return []
    parts: list[tuple[Family, Sequence[Column] | None]]
    if scan.columns is not None:
        by_family: dict[bytes, list[Column]] = {}
        for column in scan.columns:
            by_family.setdefault(column[0], []).append(column)
        parts = [(tables.get(name), by_family[name]) for name in sorted(by_family)]
    else:
        parts = [(family, None) for family in tables.chosen(scan.families)]
    if len(parts) == 1:
        return _scan_family(sql, tables, *parts[0], scan)
    scan = scan._replace(most_bytes=None)
    # Each part holds the first rows of its family, so the first rows of all families are among them.
    rows: dict[bytes, list[Cell]] = {}
    for part in parts:
        for key, cells in _scan_family(sql, tables, *part, scan):
            rows.setdefault(key, []).extend(cells)
    return [Row(key, rows[key]) for key in sorted(rows, reverse=scan.reverse)[: scan.limit]]


def _bounds(scan: Scan, start: bytes | None, after: bool) -> tuple[str, list[bytes]]:
    """Return the SQL condition on ``row`` for a scan from ``start`` (exclusive if ``after``), and its values."""
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


def _scan_family(
    sql: sqlite3.Connection, tables: Families, family: Family, columns: Sequence[Column] | None, scan: Scan
) -> list[Row]:
    """Scan one family in row order, as far as the scan's limits allow."""
    return list(islice(_rows(sql, tables, family, columns, scan), scan.limit))


def _rows(
    sql: sqlite3.Connection, tables: Families, family: Family, columns: Sequence[Column] | None, scan: Scan
) -> Iterator[Row]:
    """Yield the rows of one family in order, up to the bytes that the scan allows.

    Reads a row with many unwanted cells by seeking instead.
    """
    left = _UNBOUNDED if scan.most_bytes is None or scan.reverse else scan.most_bytes
    since, before, versions = scan.since, scan.before, scan.versions
    name = family.name
    wanted = None if columns is None else frozenset(qualifier for _, qualifier in columns)
    # A reverse scan would make SQLite sort each row. If columns have one version, reversing the cells is enough.
    reversed_rows = scan.reverse and tables.versions == 1
    start, after = scan.start, False
    while True:
        found = _step(sql, family, wanted, scan, start, after, reversed_rows)
        key: bytes | None = None
        current = b""
        cells: list[Cell] = []
        taken = skipped = 0
        for row, qualifier, ts, value in found:
            if row != key:
                if cells and key is not None:
                    yield Row(key, cells[::-1] if reversed_rows else cells)
                    if left <= 0:
                        return
                if row.__class__ is not bytes or qualifier.__class__ is not bytes:
                    raise WrongTypeError
                key, current, cells, taken, skipped = row, qualifier, [], 0, 0
            # Values of different types cannot be ordered, so this finds a qualifier of a wrong type.
            elif qualifier > current or qualifier != current:
                current, taken = qualifier, 0
            if since <= ts < before and taken < versions and (wanted is None or qualifier in wanted):
                if value.__class__ is not bytes or ts.__class__ is not int:
                    raise WrongTypeError
                cells.append(new_cell(Cell, (name, qualifier, ts, value)))
                left -= len(value)
                taken += 1
            else:
                skipped += 1
                if skipped > 4 * MAX_SKIPPED:
                    break
        else:
            if cells and key is not None:
                yield Row(key, cells[::-1] if reversed_rows else cells)
            return
        assert key is not None
        get = Get(key, columns, None if columns else [name], None, since, before, versions)
        cells = read(sql, tables, get)
        if cells:
            yield Row(key, cells)
            left -= size_of(cells)
            if left <= 0:
                return
        start, after = key, True


def _step(
    sql: sqlite3.Connection,
    family: Family,
    wanted: frozenset[bytes] | None,
    scan: Scan,
    start: bytes | None,
    after: bool,
    reversed_rows: bool,
) -> Iterator[tuple[bytes, bytes, int, bytes]]:
    """Yield all cells of a range of rows; load values (which may be large) only for wanted qualifiers."""
    value = "value"
    values: list[bytes] = []
    if wanted is not None:
        value = f"CASE WHEN qualifier IN ({', '.join('?' * len(wanted))}) THEN value END"
        values += wanted
    where, bounds = _bounds(scan, start, after)
    if reversed_rows:
        order = "row DESC, qualifier DESC"
    else:
        order = f"row {'DESC' if scan.reverse else 'ASC'}, qualifier, ts DESC"
    return sql.execute(
        f"SELECT row, qualifier, ts, {value} FROM {family.table} WHERE {where} ORDER BY {order}", [*values, *bounds]
    )
