"""Versions that a collector has passed although no readable snapshot needs them.

Of each column, at most one version up to where collectors have come is needed: the newest.
"""

from __future__ import annotations

from collections.abc import Sequence

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

    def is_left(self, window: Sequence[Cell], passed: set[Column]) -> bool:
        """Return whether a column has a second version up to there; ``passed`` are the columns with one in earlier windows."""
        left = False
        for cell in window:
            if cell.timestamp <= self.collected and self._context.sees(cell.timestamp):
                column = (cell.family, cell.qualifier)
                left = left or column in passed
                passed.add(column)
        return left


def left(path: str) -> Problem:
    """Return the problem of a node with such versions."""
    detail = "it has versions that no readable snapshot needs; hbasemk collect --full deletes them"
    return Problem(kinds.COLLECTABLE, path, "", detail, kinds.LEFTOVER)
