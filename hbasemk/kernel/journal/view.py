"""Which cell versions a reader sees: a snapshot is a prefix of one instance's journal.

Once a revision is visible its snapshot never changes (I5): revisions join the journal only at its end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SETTLED: Final = -2
"""The position of snapshots that lie wholly below the sequence; they use no cache."""
EXPLICIT: Final = -3
"""The position of snapshots that are told in full: all of trunk up to ``floor``, and the ids in ``own``."""


class Pin:
    """Shared by all snapshots at one position: how the journal reaches those that are still held.

    ``told``, once the position is dropped from the sequence: up to which id the snapshot has all of trunk, and which
    greater ids belong to it.
    """

    __slots__ = ("__weakref__", "told")

    def __init__(self) -> None:
        self.told: tuple[int, frozenset[int]] | None = None


class View(NamedTuple):
    """A prefix of an instance's journal, on a branch extended by the branch's own revisions.

    ``revision`` names it. ``position`` is the last index of the in-memory sequence that belongs to it (-1: none);
    ids up to ``floor`` are settled history below the sequence. ``upper`` is the highest id it can show. ``own``
    holds a branch's revisions, and ``base`` is the trunk revision they build on (for trunk: the revision itself).
    """

    revision: int
    position: int
    floor: int
    upper: int
    own: frozenset[int] = frozenset()
    base: int = 0
    pin: Pin | None = None
