"""The statuses of revisions that a check remembers, within bounds."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from typing import Final, NamedTuple

from hbasemk.format.journal_row import Outcome

REMEMBERED: Final = 20_000
"""Cached revision statuses; the journal row of a cached revision is read once."""
REMEMBERED_CELLS: Final = 8_000_000
"""Declared cells of the cached revisions, 8 bytes each. Large revisions that evict each other are decoded for each page."""


class RevisionStatus(NamedTuple):
    """The status of a revision: outcome, swept mark, and sorted hashes of its declared cells (None: unknown).

    Among the hashes are those of the nodes that it adds. ``base`` names the snapshot that it was built on (None: there is none,
    or it cannot be read). ``number`` is that of its declared cells (``found_cells.py``). ``can_abort`` says whether a pending
    revision can be aborted: damaged flags prevent it.
    """

    outcome: Outcome
    swept: bytes | None
    declared: array[int] | None
    base: int | None
    number: int | None
    can_abort: bool

    def declares(self, hashed: int) -> bool:
        """Return whether the revision declared the cell or added node with this hash; True if its changes cannot be decoded."""
        if self.declared is None:
            return True
        at = bisect_left(self.declared, hashed)
        return at < len(self.declared) and self.declared[at] == hashed


class Statuses:
    """Remembered statuses, the most recently used ones. A pickle of them is empty: they can be read again."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, RevisionStatus] = OrderedDict()
        self._cells = 0

    def __reduce__(self) -> tuple[type[Statuses], tuple[()]]:
        return Statuses, ()

    def get(self, revision: int) -> RevisionStatus | None:
        """Return a status, or None if it is not known."""
        return self._known.get(revision)

    def touch(self, revision: int) -> bool:
        """Keep a status longer than those that are used less; return whether it is known."""
        known = revision in self._known
        if known:
            self._known.move_to_end(revision)
        return known

    def put(self, revision: int, status: RevisionStatus) -> None:
        """Remember a status."""
        self._cells += _weight(status) - _weight(self._known.get(revision))
        self._known[revision] = status

    def drop(self, revision: int) -> None:
        """Forget a status."""
        self._cells -= _weight(self._known.pop(revision, None))

    def make_room(self, room: int) -> None:
        """Forget the statuses that were used least, so that ``room`` others find room."""
        while self._known and (len(self._known) + room > REMEMBERED or self._cells > REMEMBERED_CELLS):
            self.drop(next(iter(self._known)))


def _weight(status: RevisionStatus | None) -> int:
    return 0 if status is None or status.declared is None else len(status.declared)
