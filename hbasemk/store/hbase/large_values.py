"""Answers of a bounded size: a request for many rows returns the lengths of large values in place of the values.

The memory of the gateway is small, and it builds each answer as a whole. The size of rows is known only to the region
servers. So a filter replaces each large value by its length, 4 bytes, and the store reads these rows again in calls of a
known size. A small value that looks like a length costs only a read. For small values HBase takes longer with the filter than
without it. So requests carry it until some answers in a row had no large values, and again after a request has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from hbasemk.errors import StoreError
from hbasemk.store.abc import Cell, Get, Row, Scan
from hbasemk.store.sizes import by_size, size_of_rows

FEW: Final = 4
"""So many rows may have values of any size: a request for them is not larger than others need."""
LEAST: Final = 4096
COLUMNS: Final = 4
"""So many columns of each row may have the longest value of an answer without exceeding the bytes of an answer."""
LOWER: Final = 16
"""By so much the longest value becomes shorter if filtered answers are too large, because rows have many columns."""
SHORTEST: Final = 64
TOO_LONG: Final = 1 << 24
"""No value has so many bytes. The values of properties with 4 bytes look like larger numbers: they begin with their type."""
PATIENCE: Final = 8
"""After so many filtered answers of small values, a table no longer gets the filter."""
LARGE_PART: Final = 4
"""An answer is large if its values have at least this part of the bytes that an answer may have."""
_LENGTH: Final = 4


class LargeTables:
    """The tables that may have large values, as far as a process knows. Thread-safe."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._divisors: dict[str, int] = {}

    def __contains__(self, table: str) -> bool:
        """Return whether requests for many rows of a table get the filter."""
        return self._left.get(table, PATIENCE) > 0

    def longest(self, table: str, longest: int) -> int:
        """Return the longest value for filtered answers from a table: less than usual if its rows have many columns."""
        return max(longest // self._divisors.get(table, 1), SHORTEST)

    def failed(self, table: str, error: StoreError, *, filtered: bool) -> None:
        """Record the error of a request for many rows: if it overloaded the gateway, the table has large values.

        If the request had the filter, many of the values that remained must have overloaded it.
        """
        if isinstance(error.__cause__, (TimeoutError, EOFError)):
            self._left[table] = PATIENCE
            if filtered:
                self._lower(table)

    def received(self, table: str, rows: Sequence[Row], most: int) -> None:
        """Record an answer as it came through the filter: if it is too large, values of the next ones are shorter."""
        if size_of_rows(rows) > 2 * most:
            self._lower(table)

    def _lower(self, table: str) -> None:
        self._divisors[table] = min(self._divisors.get(table, 1) * LOWER, TOO_LONG)

    def answered(self, table: str, rows: Sequence[Row], most: int) -> None:
        """Record a filtered answer, which may have ``most`` bytes of values; one of few rows that is not large shows nothing."""
        if size_of_rows(rows) >= most // LARGE_PART:
            self._left[table] = PATIENCE
        elif sum(1 for row in rows if row.cells) > FEW:
            self._left[table] = self._left.get(table, PATIENCE) - 1


@lru_cache(maxsize=64)
def tables_of(_location: str) -> LargeTables:
    """Return what this process knows of the tables at a location, whichever of its stores has read them."""
    return LargeTables()


def longest_of(gets: Sequence[Get], most: int) -> int | None:
    """Return the length of values, in bytes, above which these gets return lengths; None: no such length."""
    return _longest(sum(map(is_filtered, gets)), most)


def longest_in(scan: Scan, most: int) -> int | None:
    """Return this length for a scan."""
    return None if scan.reverse or scan.columns is not None else _longest(scan.limit, most)


def _longest(rows: int, most: int) -> int | None:
    return None if rows <= FEW else max(most // (COLUMNS * rows), LEAST)


def is_filtered(get: Get) -> bool:
    """Return whether the values of a get may be of any size."""
    return get.columns is None and get.page is None


def filter_of(longest: int) -> bytes:
    """Return the filter, in HBase's filter language, that replaces longer values by their lengths.

    It counts characters, because HBase compares texts: of UTF-8 texts, values of up to three times the length may remain.
    """
    return b"PrefixFilter('') OR (ValueFilter(=,'regexstring:(?s)\\A.{%d}') AND KeyOnlyFilter(true))" % (longest + 1)


def _length(value: bytes, longest: int) -> int:
    """Return the length that a value stands for, or 0."""
    length = int.from_bytes(value, "big") if len(value) == _LENGTH else 0
    return length if longest < length < TOO_LONG else 0


def has_lengths(cells: Iterable[Cell], longest: int) -> bool:
    """Return whether a filtered row has lengths in place of values."""
    return any(len(cell[3]) == _LENGTH and _length(cell[3], longest) for cell in cells)


def full_size(cells: Iterable[Cell], longest: int) -> int:
    """Return the bytes of the values in the row of a filtered answer."""
    return sum(_length(cell[3], longest) or len(cell[3]) for cell in cells)


def parts(rows: Sequence[Row], longest: int, most: int) -> tuple[int, list[int]]:
    """Return how many rows of an answer come before the first one with lengths; and how to divide the others into calls."""
    whole = next((number for number, row in enumerate(rows) if has_lengths(row.cells, longest)), len(rows))
    groups = by_size(rows[whole:], lambda row: full_size(row.cells, longest), len(rows), most)
    return whole, [len(group) for group in groups]
