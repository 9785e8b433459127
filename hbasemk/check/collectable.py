"""Versions that a collector has passed although no readable snapshot needs them.

Of each column, at most one version up to where collectors have come is needed: the newest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hbasemk.check import problem as kinds
from hbasemk.check.context import CheckContext
from hbasemk.check.problem import Problem
from hbasemk.errors import FormatError
from hbasemk.kernel.collection.progress import read_progress
from hbasemk.store.abc import Cell, Column


class Collectable:
    """Finds them in the windows of a row, for one run of the check."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        try:
            # Read before the cells: what is deleted up to here was deleted before this was written.
            self.collected = read_progress(context.store)[0].collected
        except FormatError:
            # The check of the settings reports it.
            self.collected = 0

    def in_row(self, path: str) -> Versions:
        """Begin the row, or a part of the row, of a node."""
        return Versions(self, path)

    def is_passed(self, cell: Cell) -> bool:
        """Return whether a visible cell is at most as new as what collectors have passed."""
        return cell.timestamp <= self.collected and self._context.sees(cell.timestamp)


class Versions:
    """The versions of one row that collectors have passed."""

    def __init__(self, collectable: Collectable, path: str) -> None:
        self._collectable = collectable
        self._path = path
        self._columns: set[Column] = set()
        self._is_left = False

    def add(self, window: Sequence[Cell]) -> None:
        """Add the cells of the next window."""
        for cell in window:
            if self._collectable.is_passed(cell):
                column = (cell.family, cell.qualifier)
                self._is_left = self._is_left or column in self._columns
                self._columns.add(column)

    def problems(self) -> Iterator[Problem]:
        """Yield the problem of a row in which a column has two such versions."""
        if self._is_left:
            detail = "it has versions that no readable snapshot needs; hbasemk collect --full deletes them"
            yield Problem(kinds.COLLECTABLE, self._path, "", detail, kinds.LEFTOVER)
