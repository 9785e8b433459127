"""The way from the store contract's values to the gateway's messages and back.

Nothing here talks to anybody. What HBase would take for something else than the contract says (an empty list of
columns, for instance, means all of them) is kept from it by :mod:`hbasemk.store.hbase.store`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from hbasemk.store.abc import MAX_TIMESTAMP, Cell, Column, Delete, Get, Put, Row, Scan
from hbasemk.store.hbase.gateway import ONE_VERSION, Result, idl

_column: Final = idl.Column
_column_value = idl.ColumnValue
_time_range = idl.TimeRange


def gets(wanted: Iterable[Get]) -> list[Any]:
    """The gateway's form of gets; neighbours that share their columns share the message's parts, too."""
    made: list[Any] = []
    message = idl.Get
    shared: object = None
    columns: list[Any] | None = None
    for row, exact, families, page, since, before, versions in wanted:
        what: object = exact if exact is not None else families
        if what is not shared or what is None:
            columns, shared = columns_of(exact, families), what
        made.append(
            message(
                row,
                columns,
                _time_range(since, before) if since or before != MAX_TIMESTAMP else None,
                versions if versions != 1 else None,
            )
        )
        if page is not None:
            get = made[-1]
            get.columns = [_column(page.family)]
            get.cells_per_family = page.limit
            if page.after is not None:
                get.filter = column_range_filter(page.after)
    return made


def columns_of(exact: Sequence[Column] | None, families: Sequence[bytes] | None) -> list[Any] | None:
    """The gateway's form of what to read of a row; None is everything."""
    if exact is not None:
        return [_column(family, qualifier) for family, qualifier in exact]
    if families is not None:
        return [_column(family) for family in families]
    return None


def column_range_filter(after: bytes) -> bytes:
    """The filter for the columns after a qualifier, in HBase's filter language: quotes are doubled inside quotes."""
    return b"ColumnRangeFilter('" + after.replace(b"'", b"''") + b"',false,'',true)"


def scan(wanted: Scan, start: bytes | None, stop: bytes | None) -> Any:
    """The gateway's form of a scan with these ends.

    The limit goes along twice: it lets the region close its scanner in the call that opened it, and as the number of
    rows that travel between gateway and region at once.
    """
    timed = wanted.since or wanted.before != MAX_TIMESTAMP
    return idl.Scan(
        start,
        stop,
        columns_of(wanted.columns, wanted.families),
        wanted.limit,
        wanted.versions if wanted.versions != 1 else None,
        _time_range(wanted.since, wanted.before) if timed else None,
        True if wanted.reverse else None,
        wanted.limit,
    )


def put(wanted: Put) -> Any:
    """The gateway's form of a put."""
    return idl.Put(
        wanted.row,
        [_column_value(family, qualifier, value, timestamp) for family, qualifier, value, timestamp in wanted.cells],
    )


def delete(wanted: Delete) -> Any:
    """The gateway's form of a delete of exact versions; it must name at least one, or it deletes the row."""
    return idl.Delete(
        wanted.row,
        [_column(family, qualifier, timestamp) for family, qualifier, timestamp in wanted.cells],
        None,
        ONE_VERSION,
    )


_new = tuple.__new__


def cells(result: Result) -> list[Cell]:
    """The cells of a result; HBase sends them in the contract's order."""
    # As Cell(…) does, without a call of Python code for each.
    return [_new(Cell, (one.family, one.qualifier, one.timestamp, one.value)) for one in result.cells]


def rows(results: Iterable[Result]) -> list[Row]:
    """The rows of results that have keys."""
    return [_new(Row, (result.row, cells(result))) for result in results]
