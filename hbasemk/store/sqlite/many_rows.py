"""Reads of many rows with one SQL statement for a group of them.

A statement for each row would cost more than its result: nearly all rows have few columns with few versions. One
statement reads the rows of a group until it meets a row that is wider or has a longer history than wanted. This row and
the rest of its group are then read one by one, so the cost still depends only on the requested cells.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from hbasemk.store.abc import Cell, Get, Row
from hbasemk.store.sizes import size_of, size_of_rows
from hbasemk.store.sqlite.cells import MAX_SKIPPED, Families, Family, WrongTypeError, blob, new_cell, parameters, read

GROUPS: Final = (64, 8)
"""The numbers of rows in one statement. There are few of them, so that SQLite keeps the compiled statements."""
NAMED: Final = 16
"""The largest number of named columns that one statement reads in many rows."""
UNBOUNDED: Final = 1 << 62
"""No answer has so many bytes."""


def read_rows(sql: sqlite3.Connection, tables: Families, gets: Sequence[Get], most_bytes: int = UNBOUNDED) -> list[Row]:
    """Return the row of each get, or those of the first gets: their values then have ``most_bytes``."""
    rows: list[Row] = []
    left = most_bytes
    while len(rows) < len(gets) and (left > 0 or not rows):
        family = _family(tables, gets[len(rows)])
        if family:
            found = _group(sql, tables, family, gets, len(rows), left)
        else:
            found = [_one(sql, tables, gets[len(rows)])]
        rows += found
        if most_bytes < UNBOUNDED:
            left -= size_of_rows(found)
    return rows


def _one(sql: sqlite3.Connection, tables: Families, get: Get) -> Row:
    return Row(get.row, read(sql, tables, get))


def _family(tables: Families, get: Get) -> Family | None:
    """Return the family that a get reads, if a statement for many rows can read it; else None."""
    if get.columns is not None:
        names = {name for name, _ in get.columns}
        if len(names) != 1 or get.versions < 1:
            return None
        # Where columns have several versions, a statement seeks the newest one, and would step over all others.
        few = len(get.columns) <= NAMED and (tables.versions == 1 or get.versions == 1)
        return tables.get(*names) if few else None
    if get.page is not None:
        return tables.get(get.page.family) if get.page.after is None and get.page.limit else None
    chosen = tables.chosen(get.families)
    return chosen[0] if len(chosen) == 1 else None


def _group(
    sql: sqlite3.Connection, tables: Families, family: Family, gets: Sequence[Get], first: int, left: int
) -> list[Row]:
    """Return the rows of some gets from ``first`` on; those differ only in their rows if there are several.

    Only a statement that reads named columns may return more than ``left`` bytes and one row.
    """
    shape = gets[first][1:]
    for size in GROUPS:
        group = gets[first : first + size]
        if len(group) == size and all(get[1:] == shape for get in group):
            break
    else:
        return [_one(sql, tables, gets[first])]
    keys = [get.row for get in group]
    get = group[0]
    if get.columns is not None and tables.versions == 1:
        found = _named(sql, family, keys, get)
    elif get.columns is not None:
        found = [[] for _ in keys]
        for _, qualifier in sorted(set(get.columns)):
            for cells, newest in zip(found, _newest(sql, family, keys, qualifier, get), strict=True):
                cells += newest
    else:
        found = _cells(sql, family, keys, get, left)
    rows = [Row(key, cells) for key, cells in zip(keys, found, strict=False)]
    if len(rows) < len(group):
        left -= size_of_rows(rows)
        for one in group[len(rows) :]:
            if left <= 0 and rows:
                break
            rows.append(_one(sql, tables, one))
            left -= size_of(rows[-1].cells)
    return rows


# --- named columns with one version each -----------------------------------------------------------------------


def _named(sql: sqlite3.Connection, family: Family, keys: Sequence[bytes], get: Get) -> list[list[Cell]]:
    """Return the cells of named columns in each row."""
    found: list[list[Cell]] = [[] for _ in keys]
    name = family.name
    wanted = [blob(qualifier) for _, qualifier in get.columns or ()]
    statement = _named_statement(family.table, len(wanted), len(keys))
    for number, qualifier, ts, value in sql.execute(statement, (*map(blob, keys), *wanted, get.since, get.before)):
        if value.__class__ is not bytes or ts.__class__ is not int:
            raise WrongTypeError
        found[number].append(new_cell(Cell, (name, qualifier, ts, value)))
    return found


@lru_cache
def _named_statement(table: str, columns: int, count: int) -> str:
    # SQLite seeks each of the columns in their order, so the width of a row does not matter.
    return (
        f"{_wanted(count)} SELECT number, qualifier, ts, value FROM wanted CROSS JOIN {table} "
        f"ON row = wanted AND qualifier IN ({parameters(columns)}) AND ts >= ? AND ts < ?"
    )


# --- one column ------------------------------------------------------------------------------------------------


def _newest(
    sql: sqlite3.Connection, family: Family, keys: Sequence[bytes], qualifier: bytes, get: Get
) -> list[list[Cell]]:
    """Return the newest version of a column in each row."""
    found: list[list[Cell]] = [[] for _ in keys]
    name = family.name
    statement = _newest_statement(family.table, len(keys))
    column = blob(qualifier)
    for number, ts, value in sql.execute(statement, (*map(blob, keys), column, column, get.since, get.before)):
        if value.__class__ is not bytes or ts.__class__ is not int:
            raise WrongTypeError
        found[number].append(new_cell(Cell, (name, qualifier, ts, value)))
    return found


@lru_cache
def _newest_statement(table: str, count: int) -> str:
    column = "row = wanted AND qualifier = ?"
    return (
        f"{_wanted(count)} SELECT number, ts, value FROM wanted CROSS JOIN {table} ON {column} AND ts = "
        f"(SELECT max(ts) FROM {table} WHERE {column} AND ts >= ? AND ts < ?)"
    )


def _wanted(count: int) -> str:
    """Return the beginning of a statement: the keys of its rows, which are its first parameters."""
    values = ", ".join(f"({number}, ?)" for number in range(count))
    return f"WITH wanted (number, wanted) AS (VALUES {values})"


# --- all columns -----------------------------------------------------------------------------------------------


def _cells(sql: sqlite3.Connection, family: Family, keys: Sequence[bytes], get: Get, left: int) -> list[list[Cell]]:
    """Return the cells of the first rows: of all, or of those up to a wide row or before one with a long history.

    The rows also end once their values have ``left`` bytes.
    """
    _, _, _, page, since, before, versions = get
    limit = -1 if page is None else page.limit
    name = family.name
    found: list[list[Cell]] = [[] for _ in keys]
    last = -1
    current = b""
    taken = skipped = 0
    for number, qualifier, ts, value in sql.execute(_statement(family.table, len(keys)), (*map(blob, keys), since)):
        if number != last:
            if left <= 0 and last >= 0:
                return found[: last + 1]
            last, cells, current, taken, skipped = number, found[number], b"", 0, 0
        # Values of different types cannot be ordered, so this finds a qualifier of a wrong type.
        if qualifier > current or qualifier != current:
            current = qualifier
            taken = skipped = 0
        if ts < before and taken < versions:
            if len(cells) == limit:
                return found[: number + 1]
            if value.__class__ is not bytes or ts.__class__ is not int:
                raise WrongTypeError
            cells.append(new_cell(Cell, (name, qualifier, ts, value)))
            left -= len(value)
            taken += 1
            continue
        skipped += 1
        if skipped > MAX_SKIPPED:
            return found[:number]
    return found


@lru_cache
def _statement(table: str, count: int) -> str:
    # The outer loop takes the rows in this order, the inner one the cells in the order of the primary key.
    return (
        f"{_wanted(count)} SELECT number, qualifier, ts, value FROM wanted CROSS JOIN {table} "
        "ON row = wanted AND ts >= ?"
    )
