"""What one step of a simulated run touches, and whether two steps may be swapped without anybody noticing.

Two steps depend on each other if one writes a cell that the other writes too or asks for: same row, same column, and the
version inside the range that is read. Cells with the server's timestamp count as inside every range.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hbasemk.store.abc import MAX_TIMESTAMP, Column, Delete, Get, Put, Scan
from hbasemk.testing.trace import Step


class Footprint(NamedTuple):
    """One step: rows from ``first`` to ``last`` (both included; None: open), what it reads of them, what it writes.

    ``reads`` holds columns and families (as one-element tuples); None for everything, empty for nothing. ``writes`` maps
    columns to the version written, None for the server's time. ``all`` is set for a step that depends on every other.
    """

    table: str
    first: bytes | None
    last: bytes | None
    reads: frozenset[tuple[bytes, ...]] | None
    since: int
    before: int
    writes: dict[Column, int | None]
    all: bool = False


NOTHING: frozenset[tuple[bytes, ...]] = frozenset()


def footprint(step: Step, checked: Column | None = None, everything: bool = False) -> Footprint:
    """The footprint of a step; ``checked`` is the column that a compare-and-set asks for."""
    what, table = step.what, step.table
    if isinstance(what, Get):
        return Footprint(table, what.row, what.row, _asked(what), what.since, what.before, {}, everything)
    if isinstance(what, Scan):
        first, last = (what.stop, what.start) if what.reverse else (what.start, what.stop)
        return Footprint(table, first, last, _asked(what), what.since, what.before, {}, everything)
    if isinstance(what, Put):
        writes: dict[Column, int | None] = {(cell.family, cell.qualifier): cell.timestamp for cell in what.cells}
        reads = NOTHING if checked is None else frozenset([checked])
        return Footprint(table, what.row, what.row, reads, 0, MAX_TIMESTAMP, writes, everything)
    if isinstance(what, Delete):
        gone: dict[Column, int | None] = {(cell.family, cell.qualifier): cell.timestamp for cell in what.cells}
        return Footprint(table, what.row, what.row, NOTHING, 0, MAX_TIMESTAMP, gone, everything)
    return Footprint(table, None, None, None, 0, MAX_TIMESTAMP, {}, all=True)


def _asked(what: Get | Scan) -> frozenset[tuple[bytes, ...]] | None:
    if what.columns is not None:
        return frozenset(what.columns)
    if what.families is not None:
        return frozenset((family,) for family in what.families)
    page = what.page if isinstance(what, Get) else None
    return None if page is None else frozenset([(page.family,)])


def dependent(one: Footprint, other: Footprint) -> bool:
    """Whether the order of two steps can matter."""
    if one.all or other.all:
        return True
    if one.table != other.table or not (one.writes or other.writes) or not _rows_meet(one, other):
        return False
    return _meets(one, other) or _meets(other, one) or _overwrites(one, other)


def _rows_meet(one: Footprint, other: Footprint) -> bool:
    return (one.last is None or other.first is None or other.first <= one.last) and (
        other.last is None or one.first is None or one.first <= other.last
    )


def _meets(writer: Footprint, reader: Footprint) -> bool:
    asked = reader.reads
    return any(
        (asked is None or column in asked or column[:1] in asked)
        and (version is None or reader.since <= version < reader.before)
        for column, version in _cells(writer)
    )


def _overwrites(one: Footprint, other: Footprint) -> bool:
    return any(
        column in other.writes and (version is None or other.writes[column] in (None, version))
        for column, version in _cells(one)
    )


def _cells(of: Footprint) -> Iterable[tuple[Column, int | None]]:
    return of.writes.items()
