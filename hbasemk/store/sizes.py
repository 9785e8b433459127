"""Sizes of values, and groups of what fits one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final, TypeVar

from hbasemk.store.abc import Cell, Row, Scan

T = TypeVar("T")

# Every read of a level calls this for each cell, so no step of it is Python code.
_value: Final[Callable[[Cell], bytes]] = itemgetter(3)
_cells: Final[Callable[[Row], Sequence[Cell]]] = itemgetter(1)


def size_of(cells: Iterable[Cell]) -> int:
    """Return the bytes of the values."""
    return sum(map(len, map(_value, cells)))


def size_of_rows(rows: Iterable[Row]) -> int:
    """Return the bytes of the values of all rows."""
    return size_of(chain.from_iterable(map(_cells, rows)))


def is_full(scan: Scan, rows: Sequence[Row], size: int) -> bool:
    """Return whether further rows may follow an answer: it has all the rows, or all the bytes, that the scan allows."""
    return len(rows) >= scan.limit or (scan.most_bytes is not None and size >= scan.most_bytes)


def by_size(items: Iterable[T], size_of: Callable[[T], int], rows: int, most: int) -> Iterator[list[T]]:
    """Group items in order, at most ``rows`` items and ``most`` bytes per group; a larger item forms its own group."""
    part: list[T] = []
    size = 0
    for one in items:
        more = size_of(one)
        if part and (len(part) >= rows or size + more > most):
            yield part
            part, size = [], 0
        part.append(one)
        size += more
    if part:
        yield part
