"""The stages in which a process finds out that it alone writes a row (:mod:`hbasemk.kernel.commit.sole_rows`)."""

from __future__ import annotations

import enum
from typing import Final


class Stage(enum.IntEnum):
    """How a commit treats the row that it changes.

    ``ORDINARY``: it writes, and reads back the columns that it depends on. ``LOOK``: it also reads back which revisions have
    written the row. ``MARK``: it also marks the row. ``ALONE``: it writes if the row still has the mark that the view shows,
    and marks the row again. Each stage follows the one before if the read-back finds no version of the row that is not in the
    view. But the first commit of the instance to the row is followed by ``MARK``.
    """

    ORDINARY = 0
    LOOK = 1
    MARK = 2
    ALONE = 3

    @property
    def next(self) -> Stage:
        """The stage of the next commit to the row."""
        return _NEXT[self]


_NEXT: Final = (Stage.LOOK, Stage.MARK, Stage.ALONE, Stage.ALONE)
