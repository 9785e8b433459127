"""The order in which revisions became visible in one instance.

The sequence keeps only recent positions. Below the watermark, an id alone decides: a revision is visible unless it is
hidden. An instance therefore drops the old part of its sequence, and its memory stays bounded. A view that is still in
use stays the same: when the sequence drops its position, the view's pin receives its extent (I5).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, count, islice, takewhile
from sys import maxsize

from hbasemk.format.extent import Extent
from hbasemk.format.revisions import BRANCH_BIT
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal.view import Pin, View


class RevisionSequence:
    """Revisions by position. It grows at its end; :meth:`shortened` makes a shorter one.

    ``ids`` holds the revisions at the positions from ``begin`` on, and ``uppers`` the highest id up to each position.
    Every visible revision up to ``floor`` has an earlier position. Few other revisions have an earlier position;
    ``positions`` contains them too, and ``stragglers`` lists them. ``oldest_view`` is the lowest position of a view that
    the sequence still keeps.
    """

    __slots__ = ("begin", "floor", "hidden", "ids", "name", "oldest_view", "positions", "stragglers", "top", "uppers")

    def __init__(self, begin: int, name: int, top: int, floor: int, hidden: frozenset[int]) -> None:
        self.begin = begin
        self.oldest_view = begin - 1
        self.name = name
        self.top = top
        self.floor = floor
        self.hidden = hidden
        self.ids: list[int] = []
        self.uppers: list[int] = []
        self.positions: dict[int, int] = {}
        self.stragglers: list[int] = []

    @classmethod
    def first(cls, watermark: Watermark) -> RevisionSequence:
        """Create a sequence without any revision above the watermark."""
        return cls(0, watermark.revision, watermark.revision, watermark.revision, watermark.hidden)

    def __len__(self) -> int:
        """Return the next position."""
        return self.begin + len(self.ids)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the kept revisions, in sequence order."""
        return iter(list(self.positions))

    def extend(self, revisions: Sequence[int]) -> None:
        """Append revisions. After an interrupt, call :meth:`repair`."""
        position = self.begin + len(self.ids)
        upper = self.uppers[-1] if self.uppers else self.top
        # An interrupt comes between these lines, and never within one: no other Python code runs there.
        self.uppers.extend(islice(accumulate(revisions, max, initial=upper), 1, None))
        self.ids.extend(revisions)
        self.positions.update(zip(revisions, count(position)))

    def repair(self) -> None:
        """Complete or undo an interrupted :meth:`extend`. A revision has joined if ``ids`` contains it."""
        del self.uppers[len(self.ids) :]
        missing = [*takewhile(lambda one: one not in self.positions, reversed(self.ids))][::-1]
        self.positions.update(zip(missing, count(len(self) - len(missing))))

    def last_at(self, position: int) -> tuple[int, int]:
        """Return the revision at a position, which must be at least ``begin`` - 1, and the highest id up to there."""
        at = position - self.begin
        return (self.ids[at], self.uppers[at]) if at >= 0 else (self.name, self.top)

    def after(self, position: int) -> list[int]:
        """Return the revisions after a position, which must be at least ``begin`` - 1."""
        return self.ids[position + 1 - self.begin :]

    def above(self, floor: int, position: int) -> tuple[int, ...]:
        """Return the revisions with ids above ``floor`` and positions up to ``position``, at least ``begin`` - 1, sorted.

        Costs as much as the part of the sequence that follows the first id above the floor.
        """
        first = bisect_right(self.uppers, floor)
        # The ids are nearly in order. So this takes less time than a comparison of each with the floor.
        found = sorted([*self.stragglers, *self.ids[first : max(first, position + 1 - self.begin)]])
        return tuple(found[bisect_right(found, floor) :])

    def keeps(self, view: View) -> bool:
        """Return whether the sequence still keeps the view's position."""
        return view.position >= self.oldest_view and view.extent is None

    def sees(self, view: View, version: int) -> bool:
        """Return whether a cell with this version is visible in the view."""
        position = self.positions.get(version)
        at = view.position
        if position is None:
            if at >= self.oldest_view and view.extent is None:
                return version <= self.floor and not version & BRANCH_BIT and version not in self.hidden
        elif position <= at:
            return True
        elif at >= self.oldest_view and view.extent is None:
            return False
        extent = view.extent or extent_of(view)
        if version & BRANCH_BIT:
            return version in view.own
        if version <= extent.floor:
            return position is not None or (version <= self.floor and version not in self.hidden)
        return version in extent

    def unseen(self, view: View, versions: Collection[int]) -> list[int]:
        """Return which of these versions are not visible in the view."""
        # Most are found here, at a fraction of the cost of a call.
        find, at = self.positions.get, view.position
        return [one for one in versions if find(one, maxsize) > at and not self.sees(view, one)]

    def shortened(self, watermark: Watermark, limit: int, keep: int) -> RevisionSequence | None:
        """Return a sequence without the revisions up to ``limit``, but with at least the last ``keep`` positions.

        Returns None while shortening does not pay. It costs as much as the part that stays, so it must drop at least
        half as much.
        """
        dropped = bisect_right(self.uppers, limit, 0, max(0, len(self.ids) - keep))
        if dropped * 2 < max(keep, 2):
            return None
        kept = self.ids[dropped:]
        floor = min(limit, min(kept) - 1)
        shorter = RevisionSequence(
            self.begin + dropped,
            self.ids[dropped - 1],
            self.uppers[dropped - 1],
            floor,
            self.hidden | watermark.hidden,
        )
        shorter.ids = kept
        shorter.uppers = self.uppers[dropped:]
        shorter.positions = {one: position for one, position in self.positions.items() if one > floor}
        shorter.stragglers = [one for one, position in shorter.positions.items() if position < shorter.begin]
        return shorter

    def store_extents(self, pins: dict[int, Pin], low_bound: int) -> None:
        """Store in the pins of these positions what their views contain. ``low_bound`` is the journal's."""
        lowest = list(accumulate(reversed(self.ids), min, initial=low_bound))[::-1]
        for position, pin in pins.items():
            floor = lowest[position + 1 - self.begin] - 1
            pin.extent = Extent(floor, self.above(floor, position))


def extent_of(view: View) -> Extent:
    """Return the extent of a view whose position the sequence does not keep."""
    if view.extent is not None:
        return view.extent
    pin = view.pin
    if pin is None or pin.extent is None:
        raise RuntimeError(f"the journal dropped position {view.position} while a view at that position was in use")
    return pin.extent


def view_up_to(revision: int) -> View:
    """Return the view of all of trunk up to an id below which every revision is decided."""
    return View.of(revision, Extent(revision), revision)
