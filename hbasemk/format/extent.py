"""An extent: a set of trunk revisions, as everything committed up to one id and some ids above it.

Instances see revisions in different orders, so a single id cannot say what a reader has seen. An extent can, in every
instance and permanently. Resume tokens, stored child counts and the first rows of branches contain one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Extent(NamedTuple):
    """All trunk revisions committed up to ``floor``, and the greater ids in ``above``."""

    floor: int
    above: frozenset[int] = frozenset()

    @classmethod
    def of(cls, floor: int, ids: Iterable[int]) -> Extent:
        """Create an extent from a floor and any ids; ids up to the floor are left out."""
        return cls(floor, frozenset(one for one in ids if one > floor))

    def __contains__(self, revision: object) -> bool:
        """Return whether the extent contains a committed trunk revision."""
        return isinstance(revision, int) and (revision <= self.floor or revision in self.above)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids in the order in which they are stored: the floor, then those above it, sorted."""
        return (self.floor, *sorted(self.above))
