"""The part of I4 that the tables can show: of two committed revisions that wrote one column, the later lacks the earlier.

A base names a snapshot only together with the order in which revisions arrived in the writer's instance: a revision that
arrived before the base belongs to the snapshot, even if its id is higher. So a base below the earlier revision proves
nothing by itself. It does if the earlier revision is built on that base, directly or through others. Then the base was
committed before the earlier revision began, every instance saw them in that order, and no snapshot at the base contains
the earlier revision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.cell_values import describe
from hbasemk.check.context import CheckContext, text
from hbasemk.check.problem import Problem
from hbasemk.format import schema
from hbasemk.format.adjusted import is_created
from hbasemk.format.journal_row import Outcome
from hbasemk.store.abc import Cell, Column

STEPS: Final = 1000
"""The maximal length of a chain of bases that the check follows; an intact repository needs few."""


Later = dict[Column, tuple[int, int | None, bytes]]
"""For each column of a row: the lowest committed version that was checked, the base of its revision, and the value."""


class LostUpdates:
    """Compares each two successive versions of a column that committed trunk revisions wrote."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context

    def check(self, path: str, cells: Sequence[Cell], later: Later) -> Iterator[Problem]:
        """Yield the lost updates in a window of a row, newest first; ``later`` carries over to the next window.

        Writers of ``lastRevision`` do not depend on its value.
        """
        for cell in cells:
            status = self._context.status(cell.timestamp)
            column = (cell.family, cell.qualifier)
            if status.outcome is not Outcome.COMMITTED or column == schema.LAST_REVISION:
                continue
            later_revision, base, value = later.get(column, (0, None, b""))
            later[column] = (cell.timestamp, status.base, cell.value)
            if value == cell.value and is_created(value):
                # Two first adjusts at once: both commit, and either base serves.
                continue
            if base is not None and base < cell.timestamp and self._is_built_on(cell.timestamp, base):
                lost = f"what {text(cell.timestamp)} wrote, which its base {text(base)} does not have"
                yield Problem(kinds.LOST_UPDATE, path, text(later_revision), f"{describe(cell)}: it replaced {lost}")

    def _is_built_on(self, revision: int, base: int) -> bool:
        """Return whether a revision is certainly built on another one, directly or through its bases."""
        for _ in range(STEPS):
            below = self._context.status(revision).base
            if below is None or below >= revision or below < base:
                return False
            if below == base:
                return True
            revision = below
        return False
