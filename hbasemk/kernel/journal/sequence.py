"""The order in which revisions became visible in one instance, kept only as far back as anybody can ask for.

What lies below the watermark is told by id alone: visible is what is not greater, but for the hidden ids. So an instance
drops the old part of its sequence and lives through any number of revisions in bounded memory. A snapshot that somebody
still holds stays what it is: while its position is dropped it is told what it consists of (I5).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from hbasemk.format import revisions
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal.view import SETTLED, Pin, View


class Told(NamedTuple):
    """What a snapshot consists of: all of trunk that is committed up to ``floor``, and the ids ``above`` it."""

    floor: int
    above: frozenset[int]


class RevisionSequence:
    """Revisions by position. Grows at its end; a shorter one is made from it by :meth:`shortened`.

    The revisions at the positions from ``begin`` on are in ``sequence``, with the highest id up to each of them in
    ``uppers``. All that is visible and not greater than ``floor`` came at an earlier position, and but for a few
    stragglers, which ``positions`` knows too, nothing else did.
    """

    __slots__ = ("begin", "floor", "hidden", "name", "positions", "sequence", "top", "uppers")

    def __init__(self, begin: int, name: int, top: int, floor: int, hidden: frozenset[int]) -> None:
        self.begin = begin
        self.name = name
        self.top = top
        self.floor = floor
        self.hidden = hidden
        self.sequence: list[int] = []
        self.uppers: list[int] = []
        self.positions: dict[int, int] = {}

    @classmethod
    def first(cls, watermark: Watermark) -> RevisionSequence:
        """Nothing above the watermark yet."""
        return cls(0, watermark.revision, watermark.revision, watermark.revision, watermark.hidden)

    def __len__(self) -> int:
        """The next position."""
        return self.begin + len(self.sequence)

    def __iter__(self) -> Iterator[int]:
        """The revisions that are kept, in their order."""
        return iter(list(self.positions))

    def append(self, made: int) -> int:
        """Let a revision join; returns its position. What is interrupted is brought to an end by :meth:`mend`."""
        position = len(self)
        self.uppers.append(max(made, self.uppers[-1] if self.uppers else self.top))
        self.sequence.append(made)
        self.positions[made] = position
        return position

    def mend(self) -> None:
        """Bring an interrupted :meth:`append` to its end: a revision has joined when it is in the sequence."""
        del self.uppers[len(self.sequence) :]
        if self.sequence:
            self.positions.setdefault(self.sequence[-1], len(self) - 1)

    def name_at(self, position: int) -> int:
        """The revision at a position from ``begin`` - 1 on."""
        return self.sequence[position - self.begin] if position >= self.begin else self.name

    def upper_at(self, position: int) -> int:
        """The highest id at or before a position from ``begin`` - 1 on."""
        return self.uppers[position - self.begin] if position >= self.begin else self.top

    def after(self, position: int) -> list[int]:
        """The revisions at later positions than one from ``begin`` - 1 on."""
        return self.sequence[position + 1 - self.begin :]

    def keeps(self, snapshot: View) -> bool:
        """Whether the snapshot is told by its position here."""
        return snapshot.position >= self.begin - 1

    def sees(self, snapshot: View, version: int) -> bool:
        """Whether a cell of this version is visible in the snapshot."""
        position = self.positions.get(version)
        if position is not None and position <= snapshot.position:
            return True
        at = snapshot.position
        if at >= self.begin - 1:
            return (
                position is None
                and version <= self.floor
                and not version & revisions.BRANCH_BIT
                and version not in self.hidden
            )
        floor, own = (snapshot.floor, snapshot.own) if at < -1 else told(snapshot)
        if version <= floor and not version & revisions.BRANCH_BIT:
            return position is not None or (version <= self.floor and version not in self.hidden)
        return version in own

    def shortened(self, watermark: Watermark, limit: int, keep: int) -> RevisionSequence | None:
        """A new order without what is settled up to ``limit``, but for the last ``keep`` positions at least.

        None when that is not worth while yet: it costs as much as what is kept, and so drops half as much at least.
        """
        dropped = bisect_right(self.uppers, limit, 0, max(0, len(self.sequence) - keep))
        if dropped * 2 < max(keep, 2):
            return None
        kept = self.sequence[dropped:]
        floor = min(limit, min(kept) - 1)
        made = RevisionSequence(
            self.begin + dropped,
            self.sequence[dropped - 1],
            self.uppers[dropped - 1],
            floor,
            self.hidden | watermark.hidden,
        )
        made.sequence = kept
        made.uppers = self.uppers[dropped:]
        made.positions = {one: position for one, position in self.positions.items() if one > floor}
        return made

    def tell(self, pins: dict[int, Pin], low_bound: int) -> None:
        """Tell the holders of snapshots at these positions what they consist of. ``low_bound``: as the journal's."""
        lowest = list(accumulate(reversed(self.sequence), min, initial=low_bound))[::-1]
        stragglers = [(one, position) for one, position in self.positions.items() if position < self.begin]
        for position, pin in pins.items():
            floor = lowest[position + 1 - self.begin] - 1
            above = []
            at = position - self.begin
            while at >= 0 and self.uppers[at] > floor:
                if self.sequence[at] > floor:
                    above.append(self.sequence[at])
                at -= 1
            above += [one for one, _ in stragglers if one > floor]
            pin.told = Told(floor, frozenset(above))


def told(snapshot: View) -> Told:
    """What a snapshot consists of whose position is no longer kept."""
    pin = snapshot.pin
    if pin is None or pin.told is None:
        raise RuntimeError(
            f"the snapshot at position {snapshot.position} was dropped from the journal while it was held"
        )
    return Told(*pin.told)


def settled(wanted: int) -> View:
    """All of trunk up to an id below which everything is decided."""
    return View(wanted, SETTLED, wanted, wanted, base=wanted)
