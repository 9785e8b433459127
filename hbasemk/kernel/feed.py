"""A feed delivers each committed revision to a watcher once, causes before effects.

A feed records its progress as an :class:`~hbasemk.format.extent.Extent`. So it continues exactly where another
feed ended, in any instance. It reads the instance's in-memory sequence by position. If the sequence no longer reaches
back far enough, it reads the journal table in the order of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.errors import UnknownRevisionError
from hbasemk.format import revisions as revision_ids
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.view import View

BATCH: Final = 200


class Batch:
    """The next revisions, of which the first ``given`` have been delivered, and the feed's state after all of them."""

    __slots__ = ("floor", "given", "position", "revisions")

    def __init__(self, revisions: Sequence[int], position: int | None = None, floor: int | None = None) -> None:
        self.revisions = revisions
        self.position = position
        self.floor = floor
        self.given = 0

    @property
    def reaches_end(self) -> bool:
        """Whether the batch has the last revision that the instance knew."""
        return self.position is not None


class Feed:
    """Delivers the revisions outside an extent and extends it. Only one thread may use it; any may read :attr:`extent`.

    No revision is lost or repeated if an exception, such as KeyboardInterrupt, interrupts a method at any point.
    """

    def __init__(self, extent: Extent) -> None:
        self._floor = extent.floor
        self._above = set(extent.above)
        self._position: int | None = None
        self._instance: Instance | None = None
        self.batch = Batch(())
        """A caller that delivers one of its revisions increments ``given``."""

    @property
    def extent(self) -> Extent:
        """The revisions delivered so far, and those that the feed skipped from the beginning."""
        # Read in this order: another thread may extend the feed meanwhile, and a newer floor covers what it removes
        # from the rest.
        batch = self.batch
        given = batch.revisions[: batch.given]
        above = frozenset(self._above)
        return Extent.of(self._floor, above.union(given))

    def advance(self, instance: Instance) -> Batch:
        """Return the next batch of revisions visible in ``instance``, after the last batch was delivered; may be empty.

        No round trip, except to read the journal table: one for each 1000 rows. Raises StoreError.
        """
        journal = instance.journal
        if instance is not self._instance:
            # The instance of a forked child has its own sequence. The position of the last batch is one of the old sequence.
            self._finish()
            self._position = None
            self._instance = instance
        while True:
            self._finish()
            self._raise_floor(journal, _slack(instance))
            self.batch = batch = self._next(journal)
            if batch.revisions or batch.floor is None:
                return batch

    def _finish(self) -> None:
        """Record the last batch as delivered. The call is idempotent."""
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
        """Return the undelivered revisions among those visible up to a position, or the first of them."""
        new = [one for one in visible if one > self._floor and one not in self._above]
        return Batch(new[:BATCH], position if len(new) <= BATCH else None)


def extent_of(instance: Instance, view: View) -> Extent:
    """Return the extent of a view of trunk, for a feed that omits what the view shows."""
    return instance.journal.extent(view, _slack(instance))


def require_committed(instance: Instance, extent: Extent) -> None:
    """Raise UnknownRevisionError if the repository lacks a revision above the floor of an extent. One round trip.

    Raises RevisionCollectedError if the row of such a revision may have been deleted.
    """
    outcomes = instance.outcomes.of_many(sorted(extent.above))
    missing = [revision_ids.to_text(one) for one, outcome in outcomes.items() if outcome is not Outcome.COMMITTED]
    if missing:
        instance.journal.require_recorded(revision_ids.from_text(missing[0]))
        raise UnknownRevisionError(
            f"the resume token contains revision {missing[0]}, which is not committed in the repository at "
            f"{instance.store.location}. Was it restored from a backup that is older than the token? Resume with a revision "
            "id that the repository has, or without since.",
            revision=missing[0],
        )


def _slack(instance: Instance) -> int:
    """Return the allowed clock skew, as a difference of two revision ids; 0 where the watermark guarantees the low bound."""
    return instance.settings.max_clock_skew_ms << 24 if instance.store.supports_transactions else 0
