"""What a watcher has been given, and what comes next: each committed revision once, causes before effects.

A feed counts by :class:`~hbasemk.kernel.journal.extent.Extent`, so it goes on exactly where another feed ended, in any instance.
It reads the instance's in-memory sequence by position. Where the sequence no longer reaches back far enough, it reads
the journal's table in the order of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.extent import Extent
from hbasemk.kernel.journal.journal import Journal

BATCH: Final = 200


class Batch:
    """Revisions that come next, of which ``given`` have been given out; and what is true when all of them are."""

    __slots__ = ("floor", "given", "position", "revisions")

    def __init__(self, revisions: Sequence[int], position: int | None = None, floor: int | None = None) -> None:
        self.revisions = revisions
        self.position = position
        self.floor = floor
        self.given = 0


class Feed:
    """Gives out what does not belong to an extent, and extends it. One thread at a time; :attr:`extent` is for any.

    Nothing is lost or repeated when an exception, KeyboardInterrupt for example, ends a method at any point.
    """

    def __init__(self, extent: Extent) -> None:
        self._floor = extent.floor
        self._above = set(extent.above)
        self._position: int | None = None
        self._instance: Instance | None = None
        self.batch = Batch(())
        """Whoever gives out one of its revisions counts it in ``given``."""

    @property
    def extent(self) -> Extent:
        """What has been given out, and what was left out from the beginning."""
        # In this order: another thread may extend it meanwhile, and a newer floor covers what it removes from the rest.
        batch = self.batch
        given = batch.revisions[: batch.given]
        above = frozenset(self._above)
        return Extent.of(self._floor, above.union(given))

    def advance(self, instance: Instance) -> Batch:
        """Choose the next batch of what is visible in ``instance``, once the last one has been given out; empty if none.

        No round trip, except to read the table: one for each 1000 rows. Raises StoreError.
        """
        journal = instance.journal
        if instance is not self._instance:
            # A forked child's instance has a sequence of its own.
            self._position = None
            self._instance = instance
        while True:
            self._finish()
            self._raise_floor(journal, instance.settings.max_clock_skew_ms << 24)
            self.batch = batch = self._next(journal)
            if batch.revisions or batch.floor is None:
                return batch

    def _finish(self) -> None:
        """Count the last batch as given out. Repeating this does no harm."""
        batch = self.batch
        self._above.update(batch.revisions)
        if batch.position is not None:
            self._position = batch.position
        if batch.floor is not None:
            self._cover(batch.floor)
        self.batch = Batch(())

    def _cover(self, floor: int) -> None:
        if floor > self._floor:
            self._floor = floor
            self._above = {one for one in self._above if one > floor}

    def _raise_floor(self, journal: Journal, slack: int) -> None:
        if self._position is not None:
            floor = journal.floor_at(self._position, slack)
            if floor is not None:
                self._cover(floor)

    def _next(self, journal: Journal) -> Batch:
        if self._position is not None:
            later = journal.later(self._position)
            if later is not None:
                return self._new(later, self._position + len(later))
        floor, position, known = journal.known()
        if self._floor < floor:
            committed, covered = journal.committed(self._floor, floor)
            return Batch([one for one in committed if one not in self._above], floor=covered)
        return self._new(known, position)

    def _new(self, visible: Sequence[int], position: int) -> Batch:
        """What has not been given out of the revisions that are visible up to a position, or the beginning of it."""
        new = [one for one in visible if one > self._floor and one not in self._above]
        return Batch(new[:BATCH], position if len(new) <= BATCH else None)
