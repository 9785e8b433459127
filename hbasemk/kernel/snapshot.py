"""Which cell versions a reader sees: a snapshot is a prefix of one instance's journal.

Once a revision is visible its snapshot never changes (I5): revisions join the journal only at its end.
"""

from __future__ import annotations

from typing import NamedTuple


class Snapshot(NamedTuple):
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
