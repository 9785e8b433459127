"""The part of I4 that the tables can show: of two committed revisions that wrote one column, the later lacks the earlier.

A base names a snapshot, but only with the order in which revisions arrived in the instance that used it: one that
arrived earlier belongs to it though its id is higher. So a base below the earlier revision proves nothing by itself. It
does where the earlier revision is built on that base in turn, perhaps through others: then the base was committed before
the earlier one began, every instance met them in that order, and no snapshot that ends with the base has the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.cell_values import describe
from hbasemk.check.context import CheckContext, text
from hbasemk.check.problem import Problem
from hbasemk.format import schema
from hbasemk.format.journal_row import Outcome
from hbasemk.store.abc import Cell, Column

STEPS: Final = 1000
"""How many bases are followed from one to the next; a repository that is whole has few to follow."""


Later = dict[Column, tuple[int, int | None]]
"""Of each column of a row the lowest version of a committed revision that has been looked at, and that one's base."""


class LostUpdates:
    """Looks at each two versions of a column that committed trunk revisions wrote one after the other."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context

    def check(self, path: str, cells: Sequence[Cell], later: Later) -> Iterator[Problem]:
        """What is wrong in a window of a row, newest first; ``later`` is kept from one window to the next.

        Nobody relies on ``lastRevision`` when he writes it.
        """
        for cell in cells:
            status = self._context.status(cell.timestamp)
            column = (cell.family, cell.qualifier)
            if status.outcome is not Outcome.COMMITTED or column == schema.LAST_REVISION:
                continue
            later_revision, base = later.get(column, (0, None))
            later[column] = (cell.timestamp, status.base)
            if base is not None and base < cell.timestamp and self._is_built_on(cell.timestamp, base):
                lost = f"what {text(cell.timestamp)} wrote, which its base {text(base)} does not have"
                yield Problem(kinds.LOST_UPDATE, path, text(later_revision), f"{describe(cell)}: it replaced {lost}")

    def _is_built_on(self, revision: int, base: int) -> bool:
        """Whether a revision is certainly built on another, itself or through its bases."""
        for _ in range(STEPS):
            below = self._context.status(revision).base
            if below is None or below >= revision or below < base:
                return False
            if below == base:
                return True
            revision = below
        return False
