"""Reads of the rows that were written after an arrival number, with one SQL statement.

A process that shares a file with others reads each of their revisions in this way, so most of a poll's time is spent here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache

from hbasemk.store.abc import Arrivals, Cell, Column, Get, Row, in_order_of_last
from hbasemk.store.sqlite import many_rows
from hbasemk.store.sqlite.cells import Families, Family, WrongTypeError, blob, new_cell, parameters


def read(sql: sqlite3.Connection, tables: Families, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
    """Return the rows written after an arrival number, at most ``limit`` writes; see ``Store.arrivals``.

    The caller has not begun a transaction. All rows come from one state of the file.
    """
    names = {name for name, _ in columns}
    if len(names) == 1 and tables.versions == 1 and len(columns) <= many_rows.NAMED:
        return _joined(sql, tables, tables.get(*names), after, limit, [qualifier for _, qualifier in columns])
    sql.execute("BEGIN")
    found = sql.execute(tables.after, (after, limit + 1)).fetchall()
    if any(row.__class__ is not bytes for _, row in found):
        raise WrongTypeError
    keys = in_order_of_last([row for _, row in found[:limit]])
    rows = many_rows.read_rows(sql, tables, [Get(key, columns=columns) for key in keys])
    sql.execute("COMMIT")
    return Arrivals(found[:limit][-1][0] if found else after, rows, complete=len(found) <= limit)


def _joined(
    sql: sqlite3.Connection, tables: Families, family: Family, after: int, limit: int, wanted: Sequence[bytes]
) -> Arrivals:
    """Read the rows with the wanted columns of one family, which keeps one version. The statement sees one state of the file."""
    name = family.name
    rows: dict[bytes, list[Cell]] = {}
    cells: list[Cell] = []
    last, left = after, limit
    statement = _statement(tables.arrivals, family.table, len(wanted))
    for number, key, qualifier, ts, value in sql.execute(statement, (after, limit + 1, *map(blob, wanted))).fetchall():
        if number != last:
            if not left:
                return Arrivals(last, _rows(rows), complete=False)
            left -= 1
            if key.__class__ is not bytes:
                raise WrongTypeError
            last, cells = number, []
            # A row that was written several times takes the place of its last write.
            rows.pop(key, None)
            rows[key] = cells
        if qualifier is not None:
            if value.__class__ is not bytes or ts.__class__ is not int:
                raise WrongTypeError
            cells.append(new_cell(Cell, (name, qualifier, ts, value)))
    return Arrivals(last, _rows(rows), complete=True)


def _rows(cells: dict[bytes, list[Cell]]) -> list[Row]:
    return [Row(*one) for one in cells.items()]


@lru_cache
def _statement(arrivals: str, table: str, columns: int) -> str:
    # The outer loop of a LEFT JOIN takes the numbers in their order; the inner one seeks each column in the order of the
    # qualifiers. A row without any of the columns occurs with a NULL.
    return (
        f"SELECT number, written.row, qualifier, ts, value "
        f"FROM (SELECT number, row FROM {arrivals} WHERE number > ? ORDER BY number LIMIT ?) AS written "
        f"LEFT JOIN {table} AS stored ON stored.row = written.row AND qualifier IN ({parameters(columns)})"
    )
