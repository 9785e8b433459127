"""An extent: a set of trunk revisions, as everything committed up to one id and some ids above it.

Instances see revisions in different orders, so a single id cannot say what a reader has seen. An extent can, in every
instance and permanently. Resume tokens, stored child counts and the first rows of branches contain one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple


class Extent(NamedTuple):
    """All trunk revisions committed up to ``floor``, and the greater ids in ``above``, which are sorted and distinct.

    An instance makes the extent of each new branch from ids that are nearly sorted, and stores them sorted. So ``above`` is
    no set: building and sorting one takes ten times as long as sorting the list.
    """

    floor: int
    above: tuple[int, ...] = ()

    @classmethod
    def of(cls, floor: int, ids: Iterable[int]) -> Extent:
        """Create an extent from a floor and any ids; ids up to the floor are left out."""
        return cls(floor, tuple(sorted({one for one in ids if one > floor})))

    def __contains__(self, revision: object) -> bool:
        """Return whether the extent contains a committed trunk revision."""
        if not isinstance(revision, int):
            return False
        if revision <= self.floor:
            return True
        place = bisect_left(self.above, revision)
        return place < len(self.above) and self.above[place] == revision

    def __hash__(self) -> int:
        """Return a hash at the same cost for any number of ids: caches hash an extent at each look-up."""
        return hash((self.floor, len(self.above)))

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids in the order in which they are stored: the floor, then those above it, sorted."""
        return (self.floor, *self.above)
