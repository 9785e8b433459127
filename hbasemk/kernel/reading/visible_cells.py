"""The cells that a view shows.

A read requests the newest version of each column up to the view's highest id. If that version is not visible (pending,
aborted, private, or later in the sequence), a further call reads older versions of that column only. So the cost does
not grow with a node's history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.format import schema
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Cell, Column, Get, Row
from hbasemk.store.sizes import by_size

FIRST_DEPTH: Final = 4
MAX_DEPTH: Final = 256
"""Versions of a column in the first deeper read; each further one reads four times as many, up to the second number."""


class VisibleCells:
    """Reads of ``nodes`` in views of one journal."""

    def __init__(self, store: RetryingStore, journal: Journal) -> None:
        self._store = store
        self._journal = journal

    def newest(self, view: View, gets: Sequence[Get]) -> Sequence[Sequence[Cell]]:
        """Return the visible cells of each get, one per column. This method sets ``before`` and ``versions``."""
        upper = view.upper + 1
        return self.visible(view, self.read([get._replace(before=upper, versions=1) for get in gets]))

    def read(self, gets: Sequence[Get]) -> list[Row]:
        """Read rows of ``nodes``. One round trip for each batch."""
        return self._store.read(schema.NODES, gets)

    def read_first(self, gets: Sequence[Get]) -> list[Row]:
        """Read the rows of the first gets, as many as one call returns. One round trip."""
        return self._store.read_first(schema.NODES, gets, self._store.batch_bytes)

    def visible(self, view: View, rows: Sequence[Row]) -> Sequence[Sequence[Cell]]:
        """Return each row's newest visible cell of each column; ``rows`` have the newest version up to the view's highest id.

        No round trip if all of these are visible. Raises RevisionCollectedError if the view was too old for this read.
        """
        # Many cells have the same version, and nearly always all are visible.
        unseen = self._journal.unseen(view, {cell[2] for row in rows for cell in row[1]})
        if not unseen:
            self._journal.require_readable(view)
            return [row[1] for row in rows]
        result: list[list[Cell]] = [[cell for cell in row.cells if cell.timestamp not in unseen] for row in rows]
        deeper = [(number, cell) for number, row in enumerate(rows) for cell in row.cells if cell.timestamp in unseen]
        self._read_deeper(view, rows, result, deeper)
        self._journal.require_readable(view)
        return result

    def require_readable(self, view: View) -> None:
        """Raise RevisionCollectedError if the view was too old for what was read up to now; see the journal."""
        self._journal.require_readable(view)

    def _read_deeper(
        self,
        view: View,
        rows: Sequence[Row],
        result: list[list[Cell]],
        deeper: list[tuple[int, Cell]],
    ) -> None:
        """Add the newest visible cells of the columns in ``deeper``, by older versions than these; by number of the row."""
        versions = FIRST_DEPTH
        touched = {number for number, _ in deeper}
        while deeper:
            unresolved: dict[int, dict[Column, int]] = {}
            sizes: dict[int, int] = {}
            for number, cell in deeper:
                unresolved.setdefault(number, {})[cell.family, cell.qualifier] = cell.timestamp
                sizes[number] = sizes.get(number, 0) + len(cell.value) * versions
            deeper = []
            # Older versions may be about as large as the unseen ones.
            for part in by_size(unresolved, sizes.__getitem__, self._store.batch_rows, self._store.batch_bytes):
                gets = [
                    Get(
                        rows[number].key,
                        columns=list(unresolved[number]),
                        before=max(unresolved[number].values()),
                        versions=versions,
                    )
                    for number in part
                ]
                for number, row in zip(part, self.read(gets), strict=True):
                    deeper += self._pick(view, number, unresolved[number], row, versions, result)
            versions = min(versions * 4, MAX_DEPTH)
        for number in touched:
            result[number].sort(key=lambda cell: (cell.family, cell.qualifier))

    def _pick(
        self,
        view: View,
        number: int,
        columns: dict[Column, int],
        row: Row,
        versions: int,
        result: list[list[Cell]],
    ) -> list[tuple[int, Cell]]:
        """Add each column's newest visible version to ``result``; return the oldest version read of the other columns."""
        seen: dict[Column, int] = {}
        last: dict[Column, Cell] = {}
        done: set[Column] = set()
        for cell in row.cells:
            column = (cell.family, cell.qualifier)
            seen[column] = seen.get(column, 0) + 1
            if column in done:
                continue
            last[column] = cell
            if cell.timestamp < columns[column] and self._journal.sees(view, cell.timestamp):
                result[number].append(cell)
                done.add(column)
        return [(number, last[column]) for column in columns if column not in done and seen.get(column, 0) == versions]
