"""Reads of all versions of some columns, in calls of a bounded size: each version may have megabytes, and there may be thousands.

The size of an answer is known only afterwards. So the first call asks for a few versions of each column of a few rows, and
each later one for more or fewer, as the size of the answer before it suggests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hbasemk.format import schema
from hbasemk.kernel.read_sizes import FIRST_ROWS, RowLimit, next_limit
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Cell, Column, Get, Row
from hbasemk.store.sizes import size_of

FIRST: Final = 32
"""The number of versions of each column in the first call."""
FEWEST: Final = 2
DEEPEST: Final = 4096
MOST_ROWS: Final = 1000
LARGE: Final = 16 * 1024 * 1024
"""The bytes of values in one answer above which later calls ask for fewer versions, or rows."""
KEPT: Final = 16
"""So many bytes of each value are kept: it is only compared with short ones."""


def row_limit() -> RowLimit:
    """Return the limit of the rows of a first answer, which later ones change."""
    return RowLimit(FIRST_ROWS, MOST_ROWS, LARGE)


class VersionReader:
    """Reads all versions; it remembers between its calls how many rows one answer may have."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self._limit = row_limit()

    def read(self, gets: Sequence[Get]) -> list[Row]:
        """Return one row of nodes per get with all versions of its columns, newest first, and the beginnings of their values.

        One round trip as soon as the rows are known to be small, and more for columns with many versions.
        """
        found: list[Row] = []
        while len(found) < len(gets):
            part = gets[len(found) : len(found) + self._limit.rows]
            rows, size = self._read(part)
            found += rows
            self._limit.answered(len(part), size)
        return found

    def _read(self, gets: Sequence[Get]) -> tuple[list[Row], int]:
        """Return the rows, and the bytes of values in the first answer."""
        cells: list[list[Cell]] = [[] for _ in gets]
        pending = list(enumerate(gets))
        depth = FIRST
        first = 0
        while pending:
            size = 0
            older: list[tuple[int, Get]] = []
            found = self._store.read(schema.NODES, [get._replace(versions=depth) for _, get in pending])
            for (number, _), row in zip(pending, found, strict=True):
                size += size_of(row.cells)
                cells[number] += [cell._replace(value=cell.value[:KEPT]) for cell in row.cells]
                older += [(number, get) for get in _older(row, depth)]
            pending = older
            depth = next_limit(depth, size, DEEPEST, LARGE, FEWEST)
            first = first or size
        return [Row(get.row, of_row) for get, of_row in zip(gets, cells, strict=True)], first


def _older(row: Row, depth: int) -> Iterator[Get]:
    """Yield the reads of the versions that an answer with ``depth`` versions of each column lacks."""
    counts: dict[Column, int] = {}
    # Properties that are always set together share a read.
    groups: dict[int, list[Column]] = {}
    for cell in row.cells:
        column = cell[:2]
        counts[column] = counts.get(column, 0) + 1
        if counts[column] == depth:
            groups.setdefault(cell.timestamp, []).append(column)
    for oldest, columns in groups.items():
        yield Get(row.key, columns=columns, before=oldest)
