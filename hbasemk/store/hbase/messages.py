"""Convert the store contract's values to the gateway's messages and back.

This module sends nothing. :mod:`hbasemk.store.hbase.store` filters out the values that HBase would interpret in
another way than the contract; for example, HBase reads all columns for an empty list of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from hbasemk.store.abc import MAX_TIMESTAMP, Cell, Column, Delete, DeleteBelow, Get, Put, Row, Scan
from hbasemk.store.hbase import large_values
from hbasemk.store.hbase.gateway import OLDER_VERSIONS, ONE_VERSION, WHOLE_FAMILY, Result, idl

_column: Final = idl.Column
_column_value = idl.ColumnValue
_time_range = idl.TimeRange


def gets(request: Iterable[Get], longest: int | None = None) -> list[Any]:
    """Convert gets; consecutive gets with the same columns share that part of the message.

    ``longest``: see :mod:`hbasemk.store.hbase.large_values`.
    """
    bounded = None if longest is None else large_values.filter_of(longest)
    converted: list[Any] = []
    message = idl.Get
    shared: object = None
    columns: list[Any] | None = None
    for row, exact, families, page, since, before, versions in request:
        selection: object = exact if exact is not None else families
        if selection is not shared or selection is None:
            columns, shared = columns_of(exact, families), selection
        converted.append(
            message(
                row,
                columns,
                _time_range(since, before) if since or before != MAX_TIMESTAMP else None,
                versions if versions != 1 else None,
            )
        )
        if bounded is not None and exact is None and page is None:
            converted[-1].filter = bounded
        if page is not None:
            get = converted[-1]
            get.columns = [_column(page.family)]
            get.cells_per_family = page.limit
            if page.after is not None:
                get.filter = column_range_filter(page.after)
    return converted


def columns_of(exact: Sequence[Column] | None, families: Sequence[bytes] | None) -> list[Any] | None:
    """Convert a selection of columns or families; None selects everything."""
    if exact is not None:
        return [_column(family, qualifier) for family, qualifier in exact]
    if families is not None:
        return [_column(family) for family in families]
    return None


def column_range_filter(after: bytes) -> bytes:
    """Return the filter for the columns after a qualifier, in HBase's filter language; it doubles quotes inside quotes."""
    return b"ColumnRangeFilter('" + after.replace(b"'", b"''") + b"',false,'',true)"


def scan(request: Scan, start: bytes | None, stop: bytes | None, longest: int | None = None) -> Any:
    """Convert a scan between ``start`` and ``stop``; ``longest`` as in :func:`gets`.

    The message contains the limit twice: as the limit of the scan, which lets the region close its scanner in the call
    that opened it, and as the number of rows that the region sends to the gateway at once.
    """
    timed = request.since or request.before != MAX_TIMESTAMP
    return idl.Scan(
        start,
        stop,
        columns_of(request.columns, request.families),
        request.limit,
        request.versions if request.versions != 1 else None,
        _time_range(request.since, request.before) if timed else None,
        None if longest is None else large_values.filter_of(longest),
        True if request.reverse else None,
        request.limit,
    )


def put(request: Put) -> Any:
    """Convert a put."""
    row, cells, stamp = request
    return idl.Put(
        row,
        [
            _column_value(family, qualifier, value, stamp if timestamp is None else timestamp)
            for family, qualifier, value, timestamp in cells
        ],
    )


def delete(request: Delete) -> Any:
    """Convert a delete of exact versions; it must name at least one, or HBase deletes the row."""
    return idl.Delete(
        request.row,
        [_column(family, qualifier, timestamp) for family, qualifier, timestamp in request.cells],
        None,
        ONE_VERSION,
    )


def deletes_below(request: DeleteBelow) -> list[Any]:
    """Convert a delete of ranges; a message has one kind of ranges, each up to a timestamp that it includes."""
    columns = [_column(family, qualifier, at - 1) for family, qualifier, at in request.cells if at > 0]
    families = [_column(family, None, at - 1) for family, at in request.families if at > 0]
    found = [(columns, OLDER_VERSIONS), (families, WHOLE_FAMILY)]
    return [idl.Delete(request.row, ranges, None, kind) for ranges, kind in found if ranges]


_new = tuple.__new__
_key: Final = itemgetter(0)


def cells(result: Result) -> list[Cell]:
    """Return the cells of a result; HBase sends them in the contract's order.

    Raises AttributeError if a cell lacks a field.
    """
    # tuple.__new__ creates the same Cell without a call of Python code for each.
    return [_new(Cell, (one.family, one.qualifier, one.timestamp, one.value)) for one in result.cells]


def rows(results: Iterable[Result]) -> list[Row]:
    """Return the rows of results; raise ValueError if one has no key, and AttributeError if a cell lacks a field."""
    found = [_new(Row, (result.row, cells(result))) for result in results]
    if None in map(_key, found):
        raise ValueError("a row has no key")
    return found
