"""The in-memory journal: this instance's sequence of visible revisions, and the polls that extend it.

The journal keeps only the end of the sequence. Below the watermark, ids alone determine what is visible (``sequence.py``).
A poll scans from the highest key down to a bound below which nothing undecided exists or can appear. So what a poll adds
is causally closed (I2), and no poll misses a revision (I3). See ``docs/protocol.md``, sections 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from hbasemk.errors import UnknownRevisionError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.node import NodeState
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal.contention import Contention
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.journal.sequence import RevisionSequence, extent_of, view_up_to
from hbasemk.kernel.journal.view import Pin, View
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Row, Scan, scan_all

SCAN_BATCH: Final = 1000
KEPT: Final = 10_000
"""The number of most recent revisions whose positions an instance always keeps."""
CLOCK_DRIFT: Final = 0.001
"""The fraction by which the server's clock may run slower than the local clock between two readings of it."""


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


class _ScanResult(NamedTuple):
    """The result of one scan; ``server_ms`` is the latest credible timestamp of a cell, or 0."""

    committed: list[int]
    pending: set[int]
    highest: int
    server_ms: int


class _RowContent(NamedTuple):
    """What the journal row of a joining revision contains: its base (0: none) and the changes."""

    base: int
    changes: Sequence[RowChange]

    @classmethod
    def of(cls, row: JournalRow) -> _RowContent:
        """Decode the row of a committed revision; raise FormatError if it is damaged."""
        return cls(row.base or 0, row.required_changes)


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
        self._low_bound = watermark.revision + 1
        self._verified = watermark.revision
        self._uncovered: set[int] = set()
        self._contents: dict[int, _RowContent] = {}  # read by an attempt that has not succeeded yet
        self._server_offset: float | None = None
        self._latest_offset: float | None = None
        self._clock_measured_at = runtime.monotonic()
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
        """The id down to which polls scan. It is an estimate by the store's clock; conflict detection never uses it."""
        return self._low_bound

    @property
    def decided_bound(self) -> int:
        """The id below which no revision can still commit, if server clocks differ by at most the allowed skew.

        A store with transactions checks the watermark in each commit, so there the low bound of polls suffices.
        """
        if self._store.supports_transactions:
            return self._low_bound
        return max(revisions.earlier(self._low_bound, self._settings.max_clock_skew_ms), self._verified + 1)

    @property
    def verified(self) -> int:
        """The id up to which this instance has seen every committed revision; based on a watermark, not on a clock."""
        return self._verified

    def verify(self, watermark: Watermark) -> None:
        """Add every committed revision up to the watermark that no poll has seen. One scan if the watermark is new.

        Nothing at or below a watermark can still commit, so afterwards :attr:`verified` is the watermark's revision.
        """
        run_with_retries(self._runtime, lambda: self._verify(watermark))

    def _verify(self, watermark: Watermark) -> None:
        with self._poll_lock:
            if watermark.revision <= self._verified:
                return
            found = self._scan(self._verified + 1, watermark.revision)
            self._join(found.committed)
            self._verified = watermark.revision

    def verified_by_scan(self, watermark: Watermark, committed: Sequence[int]) -> None:
        """Verify as :meth:`verify` does, from the scan of an instance that has just moved the watermark itself."""
        run_with_retries(self._runtime, lambda: self._verify_by_scan(watermark, committed))

    def _verify_by_scan(self, watermark: Watermark, committed: Sequence[int]) -> None:
        with self._poll_lock:
            if watermark.revision > self._verified:
                self._join([revision for revision in committed if revision <= watermark.revision])
                self._verified = watermark.revision

    def cover(self, version: int) -> None:
        """Make the next poll scan down to this revision, which a read-back found and no poll has seen."""
        if self._verified < version < self._low_bound:
            with self._lock:
                self._uncovered.add(version)

    @property
    def floor(self) -> int:
        """The id up to which the journal keeps no positions and all committed revisions are visible.

        It rises with the watermark.
        """
        return self._sequence.floor

    def sees(self, view: View, version: int) -> bool:
        """Return whether a cell with this version is visible in the view."""
        return self._sequence.sees(view, version)

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
        low = self._low_bound
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
        self, revision: int, touched: Sequence[RowChange], states: Mapping[str, NodeState | None], built_on: View
    ) -> None:
        """Append a revision that this instance has just committed (step 11)."""
        with self._lock:
            self._repair_append()
            if revision not in self._sequence.positions:
                valid = states if built_on.extent is None else None
                self._append(Arrival(revision, len(self._sequence), touched, valid, built_on.position))
            self.contention.committed(revision)

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
        if counter != self._change_counter or self._uncovered:
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
            # Before the clock and the scan: whatever the scan misses, because it came later, changes the counter.
            counter = self._store.change_counter()
            self._read_store_clock()
            began = self._runtime.monotonic()
            uncovered = set(self._uncovered)
            low = max(min(self._low_bound, *uncovered) if uncovered else self._low_bound, self._sequence.floor + 1)
            while True:
                found = self._scan(low)
                new = sorted(found.committed)
                contents = self._read_contents(new)
                deeper = self._lowest_unknown_base(contents, low)
                if deeper is None:
                    break
                # A revision joins only together with its base. Its writer knew a base that the polls here skipped.
                low = deeper
            with self._lock:
                self._append_all(new, contents)
                self.highest_seen = max(self.highest_seen, found.highest)
                self._pending = frozenset(one for one in found.pending if one not in self._sequence.positions)
                self._uncovered -= uncovered
                self._raise_low_bound(began, found)
            self._poll_begun = begun
            self._polled_at = began
            self._change_counter = counter
            return new

    def _join(self, committed: Sequence[int]) -> None:
        """Append the committed revisions that are unknown here, in the order of ids. The caller holds the poll lock."""
        sequence = self._sequence
        new = sorted(one for one in committed if one > sequence.floor and one not in sequence.positions)
        if new:
            contents = self._read_contents(new)
            with self._lock:
                self._append_all(new, contents)

    def _append_all(self, new: Sequence[int], contents: Mapping[int, _RowContent]) -> None:
        self._contents = {}
        self._repair_append()
        for revision in new:
            # Skip a revision that a concurrent compaction has dropped: its id now lies below the floor.
            if revision > self._sequence.floor and revision not in self._sequence.positions:
                self._append(Arrival(revision, len(self._sequence), contents[revision].changes))

    def _lowest_unknown_base(self, contents: Mapping[int, _RowContent], low: int) -> int | None:
        """Return the lowest base of the new revisions that is unknown here and lies below the scan."""
        known = self._sequence.positions
        unknown = [one.base for one in contents.values() if self._verified < one.base < low and one.base not in known]
        return min(unknown) if unknown else None

    def _scan(self, low: int, high: int | None = None) -> _ScanResult:
        """Scan the revisions from ``high`` (None: the newest) down to ``low``."""
        committed: list[int] = []
        pending: set[int] = set()
        unswept: set[int] = set()
        swept: set[int] = set()
        highest = server_ms = 0
        now = self._runtime.monotonic()
        latest = float("inf") if self._latest_offset is None else self._latest_offset + now * 1000 * (1 + CLOCK_DRIFT)
        scan = Scan(
            None if high is None else schema.revision_key(high),
            schema.revision_key(low - 1),
            SCAN_BATCH,
            reverse=True,
            columns=(schema.COMMITTED, schema.ABORT, schema.SWEPT),
        )
        known = self._sequence.positions
        for key, cells in scan_all(self._store, schema.JOURNAL, scan):
            # Most rows are known, so only the others are worth checking and decoding.
            revision = int.from_bytes(key, "big")
            is_known = revision in known
            if not is_known and not journal_row.is_key(key):
                continue
            if revision > highest:
                highest = revision
            for _, _, timestamp, _ in cells:
                if server_ms < timestamp <= latest:
                    server_ms = timestamp
            if is_known or revisions.is_branch(revision):
                continue
            row = JournalRow(Row(key, cells))
            if row.aborted:
                (unswept if row.swept is None else swept).add(revision)
                self.contention.aborted(revision)
            elif row.committed:
                committed.append(revision)
                self.contention.committed(revision)
            else:
                pending.add(revision)
        now = self._runtime.monotonic()
        for revision in swept:
            self._unswept.pop(revision, None)
        for revision in unswept:
            self._unswept.setdefault(revision, now)
        return _ScanResult(committed, pending, highest, server_ms)

    def _raise_low_bound(self, began: float, found: _ScanResult) -> None:
        # A row that this poll did not find was created after the poll began. By then the server's clock had reached
        # every server time seen so far plus the elapsed time (less the drift). An id is at most the lag behind the
        # creation time of its row.
        if found.server_ms:
            scanning = (self._runtime.monotonic() - began) * 1000 * (1 + CLOCK_DRIFT)
            measured = found.server_ms - scanning - began * 1000 * (1 - CLOCK_DRIFT)
            self._server_offset = measured if self._server_offset is None else max(self._server_offset, measured)
        low = self._low_bound
        if self._server_offset is not None:
            server = self._server_offset + began * 1000 * (1 - CLOCK_DRIFT)
            ms = int(server) - self._settings.epoch_ms - self._settings.lag_ms - 1
            if ms > 0:
                low = max(low, revisions.pack(min(ms, revisions.MAX_MS), 0, 0))
        if self._pending:
            low = min(low, *self._pending)
        self._low_bound = max(low, self._sequence.floor + 1)

    def _read_store_clock(self) -> None:
        """Read the store's clock if that takes no round trip, to notice at once if it has gone back."""
        server_ms = self._store.clock_ms()
        if server_ms is None:
            return
        self.clock_was_measured(server_ms)
        offset = server_ms - self._runtime.monotonic() * 1000 * (1 - CLOCK_DRIFT)
        if self._server_offset is None or offset > self._server_offset:
            self._server_offset = offset

    def clock_was_measured(self, server_ms: float) -> None:
        """Record an upper bound of the store's clock, in ms since 1970. If the clock went back, lower the poll bound too.

        The next poll then finds rows that were created since the previous measurement and seemed to lie below the bound.
        From now on the journal ignores timestamps later than the store's clock can show: they are from before the step.
        """
        now = self._runtime.monotonic()
        with self._poll_lock, self._lock:
            previous, self._clock_measured_at = self._clock_measured_at, now
            self._latest_offset = server_ms - now * 1000 * (1 + CLOCK_DRIFT)
            if self._server_offset is None:
                return
            offset = server_ms - now * 1000 * (1 - CLOCK_DRIFT)
            if self._server_offset <= offset:
                return
            self._server_offset = offset
            oldest = server_ms - (now - previous) * 1000 * (1 + CLOCK_DRIFT)
            ms = int(oldest) - self._settings.epoch_ms - self._settings.lag_ms - 1
            self._low_bound = max(min(self._low_bound, revisions.pack(max(ms, 0), 0, 0)), self._sequence.floor + 1)
            # The next poll may find rows that were there before, so nothing replaces it.
            self._change_counter = None

    def _read_contents(self, new: Sequence[int]) -> dict[int, _RowContent]:
        if not self.listeners:
            # Only listeners use the contents. An instance that is still opening has none, and reads from the watermark up.
            return {revision: _RowContent(0, ()) for revision in new}
        for row in journal_rows(self._store, [revision for revision in new if revision not in self._contents]):
            self._contents[row.revision] = _RowContent.of(row)
        return {revision: self._contents[revision] for revision in new}

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
