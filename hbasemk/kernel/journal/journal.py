"""The in-memory journal: this instance's sequence of visible revisions, and the polls that extend it.

The journal keeps only the end of the sequence. Below the watermark, ids alone determine what is visible (``sequence.py``).
What a poll adds is causally closed (I2), and no poll misses a revision (I3). How polls find revisions depends on the
store: ``arrival_poller.py``, ``scan_poller.py``. See ``docs/protocol.md``, sections 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from hbasemk.errors import UnknownRevisionError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.node import NodeState
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal.arrival_poller import ArrivalPoller
from hbasemk.kernel.journal.contention import Contention
from hbasemk.kernel.journal.news import News, RowContent
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.journal.scan_poller import ScanPoller
from hbasemk.kernel.journal.sequence import RevisionSequence, extent_of, view_up_to
from hbasemk.kernel.journal.view import Pin, View
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Scan, scan_all

SCAN_BATCH: Final = 1000
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


class Journal:
    """The sequence of visible revisions, from the watermark at opening, or a later one, up.

    ``listeners`` are called for every arrival, in order, before any view contains the revision. ``watchers`` are called
    when the head has moved. Neither may call the store. If an interrupt, such as Ctrl-C, stops a listener, the revision
    has not joined. It arrives again later, perhaps after other revisions. Before that, ``forgetters`` receive the position
    of the interrupted arrival and must drop everything they hold for it.
    """

    def __init__(self, store: RetryingStore, runtime: Runtime, settings: Settings, watermark: Watermark) -> None:
        self._store = store
        self._runtime = runtime
        self._settings = settings
        self._origin = watermark.revision
        self._sequence = RevisionSequence.first(watermark)
        self._pins: WeakValueDictionary[int, Pin] = WeakValueDictionary()
        self.contention = Contention()
        self._poll_lock = runtime.lock()
        self._lock = runtime.lock()
        self._pending: frozenset[int] = frozenset()
        self._unswept: dict[int, float] = {}
        self._verified = watermark.revision
        self._contents: dict[int, RowContent] = {}  # read by an attempt that has not succeeded yet
        self.poller: ArrivalPoller | ScanPoller = (
            ArrivalPoller(store, settings, watermark)
            if store.supports_transactions
            else ScanPoller(store, runtime, settings, watermark)
        )
        self._local: dict[int, Arrival] = {}
        self._polls_started = 0
        self._polled_at = float("-inf")
        self._poll_begun = -1
        self._change_counter: int | None = None
        self.listeners: list[Callable[[Arrival], None]] = []
        self.forgetters: list[Callable[[int], None]] = []
        self.watchers: list[Callable[[], None]] = []
        self.announced = -1
        """The position of the last revision that the journal has begun to announce to its listeners."""
        self.highest_seen = watermark.revision
        self._head = self._view_at(-1)

    # --- reading the sequence ----------------------------------------------------------------------------

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
    def pending(self) -> frozenset[int]:
        """The trunk revisions that the last poll found undecided."""
        return self._pending

    def unswept(self, seconds: float) -> list[int]:
        """Return the aborted revisions that have stayed unswept for at least ``seconds`` since a poll found them."""
        since = self._runtime.monotonic() - seconds
        return sorted(revision for revision, found_at in list(self._unswept.items()) if found_at <= since)

    def mark_swept(self, revision: int) -> None:
        """Record that the cells of an aborted revision have been deleted."""
        self._unswept.pop(revision, None)

    def restart_sweep_wait(self, revision: int) -> None:
        """Let :meth:`unswept` return an aborted revision only after the same time has passed again."""
        if revision in self._unswept:
            self._unswept[revision] = self._runtime.monotonic()

    @property
    def low_bound(self) -> int:
        """The id below which no poll finds anything new.

        In a store without an order of writes it is an estimate by the store's clock; conflict detection never uses it.
        """
        return self.poller.low_bound

    @property
    def decided_bound(self) -> int:
        """The id below which no revision can still commit; see the pollers for what it assumes."""
        return self.poller.decided_bound(self._verified)

    @property
    def verified(self) -> int:
        """The id up to which this instance has seen every committed revision; based on a watermark, not on a clock."""
        return self._verified

    def verify(self, watermark: Watermark) -> None:
        """Add every committed revision up to the watermark that no poll has seen, if polls can miss any.

        Nothing at or below a watermark can still commit, so afterwards :attr:`verified` is the watermark's revision. One
        scan or one poll if the watermark is new.
        """
        run_with_retries(self._runtime, lambda: self._verify(watermark))

    def _verify(self, watermark: Watermark) -> None:
        with self._poll_lock:
            if watermark.revision <= self._verified:
                return
            if isinstance(self.poller, ScanPoller):
                self._join(self._record(self.poller.scan(self._sequence, self._verified + 1, watermark.revision)))
            else:
                self.poll()
            self._verified = watermark.revision

    def verified_by_scan(self, watermark: Watermark, committed: Sequence[int]) -> None:
        """Verify as :meth:`verify` does, from the scan of an instance that has just moved the watermark itself."""
        if not isinstance(self.poller, ScanPoller):
            self.verify(watermark)
            return
        run_with_retries(self._runtime, lambda: self._verify_by_scan(watermark, committed))

    def _verify_by_scan(self, watermark: Watermark, committed: Sequence[int]) -> None:
        with self._poll_lock:
            if watermark.revision > self._verified:
                self._join([revision for revision in committed if revision <= watermark.revision])
                self._verified = watermark.revision

    @property
    def arrived(self) -> int | None:
        """The arrival number up to which all writes have been read; None if the store does not order all writes."""
        return self.poller.cursor if isinstance(self.poller, ArrivalPoller) else None

    def arrival_before(self, revision: int) -> int:
        """Return the arrival number to store with a watermark, from which a new instance begins to read; 0 without order."""
        with self._poll_lock, self._lock:
            return self.poller.number_before(revision) if isinstance(self.poller, ArrivalPoller) else 0

    def cover(self, version: int) -> None:
        """Make sure that the next poll finds this revision, which a read-back found and no poll has seen."""
        with self._lock:
            self.poller.cover(version, self._verified)

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

    def since(self, view: View) -> list[int]:
        """Return the revisions that became visible here after the view, in sequence order.

        No round trip while the view's position is kept. Otherwise the journal table supplies the dropped revisions, in
        the order of their ids.
        """
        sequence = self._sequence
        if sequence.keeps(view):
            return sequence.after(view.position)
        low, high = self.unkept_range(view, self._head)
        flags = (schema.COMMITTED, schema.ABORT)
        scan = Scan(schema.revision_key(low), schema.revision_key(max(low, high)), SCAN_BATCH, columns=flags)
        rows = scan_all(self._store, schema.JOURNAL, scan) if low < high else ()
        dropped = [row.revision for row in journal_row.decode(rows) if row.committed and not row.is_branch]
        kept = sequence.positions
        return [
            *(revision for revision in dropped if revision not in kept and not sequence.sees(view, revision)),
            *(revision for revision in sequence if not sequence.sees(view, revision)),
        ]

    def between(self, one: View, other: View) -> list[int]:
        """Return the kept revisions that only one of the two views contains, in sequence order."""
        sequence = self._sequence
        if sequence.keeps(one) and sequence.keeps(other):
            low, high = sorted((one.position, other.position))
            return sequence.ids[low + 1 - sequence.begin : high + 1 - sequence.begin]
        return [revision for revision in sequence if sequence.sees(one, revision) != sequence.sees(other, revision)]

    def unkept_range(self, one: View, other: View) -> tuple[int, int]:
        """Return the range of ids below the sequence in which two views may differ (empty: low >= high)."""
        sequence = self._sequence
        if sequence.keeps(one) and sequence.keeps(other):
            return sequence.floor + 1, sequence.floor + 1
        low = min(self._complete_up_to(one), self._complete_up_to(other))
        return low + 1, min(sequence.floor, max(one.upper, other.upper)) + 1

    def _complete_up_to(self, view: View) -> int:
        """Return an id up to which the view contains all of trunk that is visible here."""
        return self.low_bound_for(view) - 1 if view.extent is None else view.extent.floor

    def previous(self, view: View) -> View:
        """Return the trunk view without the last revision of this one."""
        with self._lock:
            if view.position >= self._sequence.begin:
                return self._view_at(view.position - 1)
        return view_up_to(view.revision - 1)

    def sort_key(self, revision: int) -> tuple[int, int]:
        """Return a key that sorts revisions in sequence order; revisions no longer kept come first, by id."""
        return self._sequence.positions.get(revision, -1), revision

    def low_bound_for(self, view: View) -> int:
        """Return the id below which the view contains every revision that is or can be committed (step 7).

        The result does not depend on a clock.
        """
        # Read the bound first: no revision that joins the sequence afterwards has a lower id.
        low = self._verified + 1
        sequence = self._sequence
        if sequence.keeps(view):
            return min([low, *sequence.after(view.position)])
        return min(low, extent_of(view).floor + 1)

    def contents(self, view: View) -> Extent:
        """Return the extent of a trunk view, with the highest possible floor."""
        sequence = self._sequence
        if sequence.keeps(view):
            floor = self.low_bound_for(view) - 1
            return Extent.of(floor, (one for one in sequence if one > floor and sequence.sees(view, one)))
        return extent_of(view)

    # --- for feeds (feed.py) -----------------------------------------------------------------------------

    def extent(self, view: View, slack: int) -> Extent:
        """Return the extent of a trunk view, with a floor ``slack`` below the highest possible one.

        A floor that the watermark guarantees needs no slack.
        """
        floor, above = self.contents(view)
        sequence = self._sequence
        lower = min(floor, max(sequence.floor, floor - slack))
        listed = [revision for revision in sequence if lower < revision <= floor and sequence.sees(view, revision)]
        return Extent.of(lower, [*above, *listed])

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

    def floor_at(self, position: int, slack: int) -> int | None:
        """Return an id up to which all that is or can be committed has at most this position; None as in :meth:`later`.

        The id is ``slack`` below the low bound, except where the watermark guarantees it.
        """
        # Read the bound first: no revision that joins the sequence afterwards has a lower id.
        low = self.low_bound
        sequence = self._sequence
        if position < sequence.begin - 1:
            return None
        return max(sequence.floor, min([low - slack, *sequence.after(position)]) - 1)

    def committed(self, low: int, high: int) -> tuple[list[int], int]:
        """Return the committed trunk revisions above ``low``, and the id up to which the list is complete.

        That id is ``high``, or lower if there are many revisions. Both must be at most :attr:`floor`. One round trip.
        """
        scan = Scan(
            schema.revision_key(low + 1), schema.revision_key(high + 1), SCAN_BATCH, columns=(schema.COMMITTED,)
        )
        rows = list(islice(journal_row.decode(scan_all(self._store, schema.JOURNAL, scan)), SCAN_BATCH))
        covered = high if len(rows) < SCAN_BATCH else rows[-1].revision
        return [row.revision for row in rows if row.committed and not row.is_branch], covered

    def view_of(self, revision: int) -> View | None:
        """Return the view of a trunk revision whose position is kept; None if it is not."""
        with self._lock:
            position = self._sequence.positions.get(revision)
            return None if position is None or position < self._sequence.begin else self._view_at(position)

    def _view_at(self, position: int) -> View:
        """Return the view at a kept position, or just before the first. The caller holds the lock."""
        pin = self._pins.get(position)
        if pin is None:
            pin = self._pins[position] = Pin()
        name = self._sequence.name_at(position)
        return View(name, position, self._sequence.upper_at(position), pin=pin)

    # --- growing it --------------------------------------------------------------------------------------

    def append_local(
        self,
        revision: int,
        touched: Sequence[RowChange],
        states: Mapping[str, NodeState | None],
        built_on: View,
        created: int,
        committed: int,
    ) -> bool:
        """Append a revision that this instance has just committed (step 11); return whether it has joined.

        ``created`` and ``committed`` are the arrival numbers of its row (0 or less: unknown, or no order). If other
        revisions may have arrived before it, it joins with them at the next poll, which the caller makes.
        """
        with self._lock:
            self._repair_append()
            self.contention.committed(revision)
            if revision in self._sequence.positions:
                return True
            valid = states if built_on.extent is None else None
            arrival = Arrival(revision, len(self._sequence), touched, valid, built_on.position)
            if isinstance(self.poller, ArrivalPoller):
                if min(created, committed) <= 0 or not self.poller.follows(created, committed):
                    self._local[revision] = arrival
                    return False
                self._append(arrival)
                self.poller.joined(revision, created, committed, self._sequence.floor)
            else:
                self._append(arrival)
            return True

    def _append(self, arrival: Arrival) -> None:
        self.announced = arrival.position
        for listener in self.listeners:
            listener(arrival)
        self._sequence.append(arrival.revision)
        self._move_head()

    def _move_head(self) -> None:
        """Move the head to the end of the sequence."""
        position = len(self._sequence) - 1
        self.highest_seen = max(self.highest_seen, self._sequence.upper_at(position))
        self._head = self._view_at(position)
        for watcher in self.watchers:
            watcher()

    def _repair_append(self) -> None:
        """Complete or undo an interrupted append. Call it before any other append, with the lock held."""
        position = self.announced
        if position == self._head.position:
            return
        self._sequence.repair()
        if len(self._sequence) > position:
            self._move_head()
            return
        for forget in self.forgetters:
            forget(position)
        self.announced = position - 1

    def compact(self, watermark: Watermark) -> None:
        """Drop positions up to a watermark, except the last :data:`KEPT`. Views in use stay the same.

        The call is cheap if there is little to drop. Afterwards a view of a dropped revision contains every committed
        revision with an id up to its own, as in an instance that opens now.
        """
        with self._lock:
            self._repair_append()
            sequence = self._sequence
            limit = min(watermark.revision, self._verified)
            shorter = sequence.shortened(watermark, limit, KEPT)
            if shorter is None:
                return
            dropped = {position: pin for position, pin in self._pins.items() if position < shorter.begin - 1}
            sequence.store_extents(dropped, limit + 1)
            self._sequence = shorter
            for position in dropped:
                del self._pins[position]
            if isinstance(self.poller, ArrivalPoller):
                self.poller.forget(shorter.floor)

    def is_recent(self, seconds: float) -> bool:
        """Return whether a poll began and ended within the last ``seconds``."""
        return self._polled_at >= self._runtime.monotonic() - seconds

    def revalidate(self) -> bool | None:
        """Return whether nobody has written to the store since the last poll began; None if only a poll can tell.

        If so, a poll would find nothing, and the last poll counts as made now. No round trip.
        """
        began = self._runtime.monotonic()
        counter = self._store.change_counter()
        if counter is None:
            return None
        if counter != self._change_counter or self.poller.must_look_deeper:
            return False
        self._polled_at = began
        return True

    def poll(self) -> list[int]:
        """Read what other instances committed: one round trip if there is nothing new.

        Returns the revisions that this call made visible. If another thread's poll began after this call was made, the
        call uses the result of that poll. It is retried as a whole, because it holds a lock.
        """
        return run_with_retries(self._runtime, self._poll)

    def _poll(self) -> list[int]:
        needed = self._polls_started + 1
        with self._poll_lock:
            if self._poll_begun >= needed:
                return []
            self._polls_started += 1
            begun = self._polls_started
            # Before the read: whatever the read misses, because it came later, changes the counter.
            counter = self._store.change_counter()
            began = self._runtime.monotonic()
            news = self.poller.read(self._sequence, self._verified, self._read_contents)
            self._record(news)
            with self._lock:
                self._append_all(news.committed, news.contents)
                self.highest_seen = max(self.highest_seen, news.highest)
                self._pending = frozenset(one for one in news.pending if one not in self._sequence.positions)
                self.poller.finish(news, self._pending, self._sequence.floor)
            self._poll_begun = begun
            self._polled_at = began
            self._change_counter = counter
            return news.committed

    def _record(self, news: News) -> list[int]:
        """Record the aborted and committed revisions that a read found; return the committed ones."""
        now = self._runtime.monotonic()
        for revision in news.swept:
            self._unswept.pop(revision, None)
            self.contention.aborted(revision)
        for revision in news.unswept:
            self._unswept.setdefault(revision, now)
            self.contention.aborted(revision)
        for revision in news.committed:
            self.contention.committed(revision)
        return news.committed

    def _join(self, committed: Sequence[int]) -> None:
        """Append the committed revisions that are unknown here, in the order of ids. The caller holds the poll lock."""
        sequence = self._sequence
        new = sorted(one for one in committed if one > sequence.floor and one not in sequence.positions)
        if new:
            contents = self._read_contents(new)
            with self._lock:
                self._append_all(new, contents)

    def _append_all(self, new: Sequence[int], contents: Mapping[int, RowContent]) -> None:
        self._contents = {}
        self._repair_append()
        for revision in new:
            # Skip a revision that a concurrent compaction has dropped: its id now lies below the floor.
            if revision > self._sequence.floor and revision not in self._sequence.positions:
                local = self._local.get(revision)
                if local is not None:
                    self._append(local._replace(position=len(self._sequence)))
                else:
                    self._append(Arrival(revision, len(self._sequence), contents[revision].changes))
            self._local.pop(revision, None)

    def clock_was_measured(self, server_ms: float) -> None:
        """Record an upper bound of the store's clock, in ms since 1970."""
        with self._poll_lock, self._lock:
            self.poller.clock_was_measured(server_ms, self._sequence.floor)

    def _read_contents(self, new: Sequence[int]) -> dict[int, RowContent]:
        if not self.listeners:
            # Only listeners use the contents. An instance that is still opening has none, and reads from the watermark up.
            return {revision: RowContent(0, ()) for revision in new}
        unread = [revision for revision in new if revision not in self._contents and revision not in self._local]
        for row in journal_rows(self._store, unread):
            self._contents[row.revision] = RowContent.of(row)
        return {revision: self._contents[revision] for revision in new if revision in self._contents}

    # --- finding one revision ----------------------------------------------------------------------------

    def find(self, revision: int) -> View:
        """Return the view of a trunk revision, polling for it if it is not known yet (section 3).

        Raises UnknownRevisionError if no poll can find it.
        """
        view = self.view_of(revision)
        if view is None and revision == self._origin:
            with self._lock:
                return view_up_to(revision) if self._sequence.begin else self._view_at(-1)
        if view is None and not revisions.is_branch(revision):
            if revision > self._sequence.top:
                self.poll()
                view = self.view_of(revision)
            if view is None and revision <= self._sequence.top and self._is_committed(revision):
                view = view_up_to(revision)
        if view is None:
            text = revisions.to_text(revision)
            raise UnknownRevisionError(
                f"revision {text} is not known in the repository at {self._store.location}: it was never committed on "
                "trunk, belongs to another repository, or has been collected",
                revision=text,
            )
        return view

    def _is_committed(self, revision: int) -> bool:
        (row,) = journal_rows(self._store, [revision], columns=(schema.COMMITTED,))
        return row.committed and revision not in self._sequence.hidden
