"""The revisions that one instance knows, in memory: their sequence, the views of it, and those who listen to its growth.

Only the end of the sequence is kept. Below the watermark, ids alone determine what is visible (``sequence.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from hbasemk.format.changes import RowChange
from hbasemk.format.node import NodeState
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal.pins import Pins
from hbasemk.kernel.journal.sequence import RevisionSequence, view_up_to
from hbasemk.kernel.journal.view import View

KEPT: Final = 10_000
"""The number of most recent revisions whose positions an instance always keeps."""


class Arrival(NamedTuple):
    """A revision that is about to become visible in this instance, at ``position`` of its sequence.

    For a revision that this instance committed, ``states`` holds the new states of the nodes it touched (None: removed).
    These states are valid only if no revision after position ``built_on``, on which it was built, touched the same nodes.
    """

    revision: int
    position: int
    changes: Sequence[RowChange]
    states: Mapping[str, NodeState | None] | None = None
    built_on: int = -1


def touched(arrivals: Iterable[Arrival]) -> Iterator[str]:
    """Yield the path of each change of these revisions."""
    return (change.path for arrival in arrivals for change in arrival.changes)


class KnownRevisions:
    """The sequence of visible revisions, from the watermark at opening, or a later one, up.

    ``listeners`` receive all arrivals, in order and in groups, before any view contains these revisions. ``watchers`` are
    called when the head has moved. Neither may call the store. If an interrupt, such as Ctrl-C, stops a listener, no revision
    of the group has joined. They arrive again later, perhaps after other revisions. Before that, ``forgetters`` receive the
    position of the first of these arrivals and must drop everything they hold for any of them. ``require_branch`` is called
    after a read of a view of a branch, and raises UnknownRevisionError if the branch may have been deleted.

    Readers take no lock: a view never changes (I5), and a compaction puts a new sequence in the place of the old one.
    ``lock`` excludes the threads that append and compact.
    """

    def __init__(self, lock: AbstractContextManager[object], watermark: Watermark) -> None:
        self._lock = lock
        self._origin = watermark.revision
        self._sequence = RevisionSequence.first(watermark)
        self._pins = Pins()
        self.listeners: list[Callable[[Sequence[Arrival]], None]] = []
        self.forgetters: list[Callable[[int], None]] = []
        self.watchers: list[Callable[[], None]] = []
        self.require_branch: Callable[[View], None] | None = None
        self.announced = -1
        """The position of the last revision that the journal has begun to announce to its listeners."""
        self.highest_seen = watermark.revision
        self.checkpoints_notice = b""
        """A value that differs after a poll if a checkpoint was made or has ended before the poll began."""
        self._head = self._view_at(-1)
        self._shown = self._head.position
        """The position of the last head of which the watchers know."""

    # --- what is visible ---------------------------------------------------------------------------------

    @property
    def head(self) -> View:
        """The view of everything that is visible in this instance now."""
        return self._head

    def __len__(self) -> int:
        """Return how many revisions have joined the sequence, including those no longer kept."""
        return len(self._sequence)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the kept revisions, in the order in which they joined."""
        return iter(self._sequence)

    @property
    def floor(self) -> int:
        """The id up to which the journal keeps no positions and all committed revisions are visible.

        It rises with the watermark.
        """
        return self._sequence.floor

    def sees(self, view: View, version: int) -> bool:
        """Return whether a cell with this version is visible in the view."""
        return self._sequence.sees(view, version)

    def unseen(self, view: View, versions: Collection[int]) -> list[int]:
        """Return which of these versions are not visible in the view."""
        return self._sequence.unseen(view, versions)

    def knows(self, version: int) -> bool:
        """Return whether the kept part of this instance's sequence contains the revision."""
        return version in self._sequence.positions

    def sort_key(self, revision: int) -> tuple[int, int]:
        """Return a key that sorts revisions in sequence order; revisions no longer kept come first, by id."""
        return self._sequence.positions.get(revision, -1), revision

    # --- views -------------------------------------------------------------------------------------------

    def view_of(self, revision: int) -> View | None:
        """Return the view of a trunk revision whose position is kept; None if it is not."""
        with self._lock:
            position = self._sequence.positions.get(revision)
            return None if position is None or position < self._sequence.begin else self._view_at(position)

    def previous(self, view: View) -> View:
        """Return the trunk view without the last revision of this one."""
        with self._lock:
            if view.position >= self._sequence.begin:
                return self._view_at(view.position - 1)
        return view_up_to(view.revision - 1)

    def between(self, one: View, other: View) -> list[int]:
        """Return the kept revisions that only one of the two views contains, in sequence order."""
        sequence = self._sequence
        if sequence.keeps(one) and sequence.keeps(other):
            low, high = sorted((one.position, other.position))
            return sequence.ids[low + 1 - sequence.begin : high + 1 - sequence.begin]
        return [revision for revision in sequence if sequence.sees(one, revision) != sequence.sees(other, revision)]

    def known(self) -> tuple[int, int, list[int]]:
        """Return the sequence's floor, the head's position, and the visible revisions that have a position."""
        with self._lock:
            sequence, position = self._sequence, self._head.position
            return (
                sequence.floor,
                position,
                [revision for revision, at in sequence.positions.items() if at <= position],
            )

    def later(self, position: int) -> list[int] | None:
        """Return the visible revisions after a position; None if the sequence no longer keeps that position."""
        head = self._head.position
        sequence = self._sequence
        if position < sequence.begin - 1:
            return None
        return sequence.ids[position + 1 - sequence.begin : max(head, position) + 1 - sequence.begin]

    def _view_at(self, position: int) -> View:
        """Return the view at a kept position, or just before the first. The caller holds the lock."""
        name, upper = self._sequence.last_at(position)
        return View(name, position, upper, pin=self._pins.at(position))

    # --- growing and shrinking ---------------------------------------------------------------------------

    def _append(self, arrivals: Sequence[Arrival]) -> None:
        """Append at least one revision. The caller then calls :meth:`_move_head`, once for all that it appends."""
        self.announced = arrivals[-1].position
        for listener in self.listeners:
            listener(arrivals)
        self._sequence.extend([arrival.revision for arrival in arrivals])

    def _move_head(self) -> None:
        """Move the head to the end of the sequence."""
        head = self._view_at(len(self._sequence) - 1)
        self.highest_seen = max(self.highest_seen, head.upper)
        self._head = head
        for watcher in self.watchers:
            watcher()
        self._shown = head.position

    def _repair_append(self) -> None:
        """Complete or undo an interrupted append, and move the head. Call it before any other append, with the lock held."""
        position = self.announced
        if position == self._shown:
            return
        self._sequence.repair()
        joined = len(self._sequence)
        if joined <= position:
            for forget in self.forgetters:
                forget(joined)
            self.announced = joined - 1
        if self._shown != self.announced:
            self._move_head()

    def _shorten(self, watermark: Watermark, limit: int) -> None:
        """Drop positions up to ``limit``, except the last :data:`KEPT`, if that pays. The caller holds the lock."""
        self._repair_append()
        sequence = self._sequence
        shorter = sequence.shortened(watermark, limit, KEPT)
        if shorter is None:
            return
        self._store_extents(shorter.begin - 1, limit + 1)
        self._sequence = shorter

    def _store_extents(self, end: int, low_bound: int) -> None:
        """Store in the pins of all views before a position what the views contain. ``low_bound`` is the journal's."""
        self._sequence.store_extents(self._pins.before(end), low_bound)
        self._pins.drop_before(end)

    def _begin_again(self, watermark: Watermark, committed: Sequence[int], low_bound: int) -> None:
        """Begin a new sequence at a watermark, with these revisions, and drop what is known. The caller holds the lock.

        It is longer than the old one by at least one position that no view has. Views in use stay the same. If an interrupt
        stops the call, the old head stays, and the caller repeats the call.
        """
        self._repair_append()
        begin = len(self._sequence) + 1
        self._store_extents(begin, low_bound)
        sequence = RevisionSequence(begin, watermark.revision, watermark.revision, watermark.revision, watermark.hidden)
        sequence.extend(committed)
        self._sequence = sequence
        # Before any view of the new sequence exists, so that nothing older can be used for it.
        for forget in self.forgetters:
            forget(len(sequence) - 1)
        self.announced = len(sequence) - 1
        self._move_head()
