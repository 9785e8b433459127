"""The in-memory journal: this instance's ordered sequence of visible revisions, and how it polls for more.

Of the sequence only its end is kept; below the watermark ids alone tell what is visible (``order.py``). Polls scan from
the highest key down to a bound below which nothing undecided can be or appear, so that what a poll adds is causally
closed (I2) and nothing is ever missed (I3). See ``docs/protocol.md``, sections 3 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from hbasemk.errors import UnknownRevisionError
from hbasemk.format import changes, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.node import NodeState
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.batches import journal_rows
from hbasemk.kernel.journal.contention import Contention
from hbasemk.kernel.journal.extent import Extent
from hbasemk.kernel.journal.sequence import RevisionSequence, settled, told
from hbasemk.kernel.journal.view import EXPLICIT, SETTLED, Pin, View
from hbasemk.kernel.retry import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Get, Row, Scan, Store, scan_all

SCAN_BATCH: Final = 1000
KEPT: Final = 10_000
"""How many of the last revisions an instance knows by position at least, settled or not."""
CLOCK_DRIFT: Final = 0.001
"""How much slower than ours the server's clock may run while nothing is heard from it."""

__all__ = ["EXPLICIT", "SETTLED", "Arrival", "Journal"]


class Arrival(NamedTuple):
    """A revision that has just become visible in this instance, at ``position`` of its sequence.

    For a revision of this instance's own, ``states`` holds the nodes it touched as they became (None: removed),
    given that nothing after ``built_on``, the position it was built on, touched them too.
    """

    revision: int
    position: int
    changes: Sequence[RowChange]
    states: Mapping[str, NodeState | None] | None = None
    built_on: int = SETTLED


class _Found(NamedTuple):
    """What one scan saw; ``server_ms`` is the latest credible timestamp of a cell, 0 for none."""

    committed: list[int]
    pending: set[int]
    highest: int
    server_ms: int


class _News(NamedTuple):
    """What a journal row says of a revision that is about to join: its base (0: none), and what it touched."""

    base: int
    changes: Sequence[RowChange]


class Journal:
    """The sequence of visible revisions, from the watermark that was loaded first or a later one up.

    ``listeners`` are called for every arrival, in order, before the arrival is known or part of any snapshot, ``watchers``
    when the head has moved; neither may call the store. When something (Ctrl-C, say) interrupts them, the revision has not
    joined and comes again, perhaps after others; ``forgetters`` are first told its position, of which nothing may be kept.
    """

    def __init__(self, store: Store, runtime: Runtime, settings: Settings, watermark: Watermark) -> None:
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
        self._server_offset: float | None = None
        self._latest_offset: float | None = None
        self._clock_told = runtime.monotonic()
        self._polls_started = 0
        self._polled_at = float("-inf")
        self._poll_begun = -1
        self.listeners: list[Callable[[Arrival], None]] = []
        self.forgetters: list[Callable[[int], None]] = []
        self.watchers: list[Callable[[], None]] = []
        self.announced = -1
        """The position of the last revision that listeners have been told of, or are being told."""
        self.highest_seen = watermark.revision
        self._head = self._snapshot_at(-1)

    # --- reading the sequence ----------------------------------------------------------------------------

    @property
    def head(self) -> View:
        """The snapshot of everything that is visible in this instance now."""
        return self._head

    def __len__(self) -> int:
        """How many revisions have joined the sequence, also those that are no longer kept."""
        return len(self._sequence)

    def __iter__(self) -> Iterator[int]:
        """The revisions that are kept, in the order in which they joined."""
        return iter(self._sequence)

    @property
    def pending(self) -> frozenset[int]:
        """The trunk revisions that the last poll found undecided."""
        return self._pending

    def unswept(self, seconds: float) -> list[int]:
        """Aborted revisions that no poll has found swept, ``seconds`` or longer after one met them first."""
        since = self._runtime.monotonic() - seconds
        return sorted(made for made, met in list(self._unswept.items()) if met <= since)

    def is_swept(self, made: int) -> None:
        """An aborted revision was found swept, or has been swept now."""
        self._unswept.pop(made, None)

    def wait_for_sweep(self, made: int) -> None:
        """Have :meth:`unswept` tell of an aborted revision again when as much time has passed once more."""
        if made in self._unswept:
            self._unswept[made] = self._runtime.monotonic()

    @property
    def low_bound(self) -> int:
        """Polls look down to this id: an estimate by the store's clock. No answer about conflicts relies on it."""
        return self._low_bound

    @property
    def settled_bound(self) -> int:
        """No revision below this id can still commit, if servers' clocks differ by no more than the allowed skew.

        A store with transactions asks at each commit whether the watermark has passed it, so there the bound of polls does.
        """
        if self._store.supports_transactions:
            return self._low_bound
        return max(revisions.earlier(self._low_bound, self._settings.max_clock_skew_ms), self._verified + 1)

    @property
    def verified(self) -> int:
        """All that is committed up to this id has joined or is settled here; a watermark said so, and no clock."""
        return self._verified

    def verify(self, watermark: Watermark) -> None:
        """Let every committed revision up to the watermark join that no poll has seen. One scan where it is new here.

        Nothing at or below a watermark can commit any more, so afterwards :attr:`verified` is the watermark's revision.
        """
        with self._poll_lock:
            if watermark.revision <= self._verified:
                return
            found = self._scan(self._verified + 1, watermark.revision)
            self._join(found.committed)
            self._verified = watermark.revision

    def verified_by_scan(self, watermark: Watermark, committed: Sequence[int]) -> None:
        """:meth:`verify` for the instance that has just moved the watermark, and scanned all above the one before."""
        with self._poll_lock:
            if watermark.revision > self._verified:
                self._join([made for made in committed if made <= watermark.revision])
                self._verified = watermark.revision

    def cover(self, version: int) -> None:
        """Make the next poll look down to this revision: a read-back met it, and no poll here has seen it."""
        if self._verified < version < self._low_bound:
            with self._lock:
                self._uncovered.add(version)

    @property
    def floor(self) -> int:
        """The id up to which nothing is known by position: whatever is committed is visible. It rises with the watermark."""
        return self._sequence.floor

    def sees(self, snapshot: View, version: int) -> bool:
        """Whether a cell of this version is visible in the snapshot."""
        return self._sequence.sees(snapshot, version)

    def knows(self, version: int) -> bool:
        """Whether the revision is in this instance's sequence, as far as that is kept."""
        return version in self._sequence.positions

    def since(self, snapshot: View) -> list[int]:
        """The revisions that became visible here after the snapshot, in the order of the sequence.

        No round trip while its position is kept; else the journal tells what was dropped since, in the order of ids.
        """
        order = self._sequence
        if order.keeps(snapshot):
            return order.after(snapshot.position)
        low, high = self.unlisted(snapshot, self._head)
        flags = (schema.COMMITTED, schema.ABORT)
        scan = Scan(schema.revision_key(low), schema.revision_key(max(low, high)), SCAN_BATCH, columns=flags)
        dropped: list[int] = []
        rows = again(self._runtime, lambda: list(scan_all(self._store, schema.JOURNAL, scan))) if low < high else []
        for row in rows:
            made = int.from_bytes(row.key, "big")
            committed = any(cell[:2] == schema.COMMITTED and cell.value == schema.YES for cell in row.cells)
            if committed and not revisions.is_branch(made) and not order.sees(snapshot, made):
                dropped.append(made)
        kept = order.positions
        return [
            *(made for made in dropped if made not in kept),
            *(made for made in order if not order.sees(snapshot, made)),
        ]

    def between(self, one: View, other: View) -> list[int]:
        """The revisions of the in-memory sequence that belong to only one of two snapshots, in its order."""
        order = self._sequence
        if order.keeps(one) and order.keeps(other):
            low, high = sorted((one.position, other.position))
            return order.sequence[low + 1 - order.begin : high + 1 - order.begin]
        return [made for made in order if order.sees(one, made) != order.sees(other, made)]

    def unlisted(self, one: View, other: View) -> tuple[int, int]:
        """The range of settled ids, below the sequence, in which two snapshots may differ (empty: low >= high)."""
        order = self._sequence
        if order.keeps(one) and order.keeps(other):
            return order.floor + 1, order.floor + 1
        low = min(self._complete_up_to(one), self._complete_up_to(other))
        return low + 1, min(order.floor, max(one.upper, other.upper)) + 1

    def _complete_up_to(self, snapshot: View) -> int:
        """An id up to which the snapshot has all of trunk that is visible here."""
        return snapshot.floor if snapshot.position < -1 else self.low_bound_for(snapshot) - 1

    def previous(self, snapshot: View) -> View:
        """The trunk snapshot that lacks just the last revision of this one."""
        with self._lock:
            if snapshot.position >= self._sequence.begin:
                return self._snapshot_at(snapshot.position - 1)
        return settled(snapshot.revision - 1)

    def order(self, made: int) -> tuple[int, int]:
        """A key that sorts revisions as this instance's snapshots contain them; those no longer kept by their ids."""
        return self._sequence.positions.get(made, -1), made

    def low_bound_for(self, snapshot: View) -> int:
        """No revision outside the snapshot that is committed, or still can be, has a lower id (step 7). No clock is asked."""
        # The bound first: what joins the sequence after that is not below it.
        low = self._verified + 1
        order = self._sequence
        if snapshot.position < -1:
            return min(low, snapshot.floor + 1)
        if order.keeps(snapshot):
            return min([low, *order.after(snapshot.position)])
        return min(low, told(snapshot).floor + 1)

    def told(self, snapshot: View) -> tuple[int, list[int]]:
        """A trunk snapshot in full: all of trunk that is committed up to an id, and which greater ids belong to it."""
        order = self._sequence
        if snapshot.position < -1:
            return snapshot.floor, sorted(snapshot.own)
        if order.keeps(snapshot):
            floor = self.low_bound_for(snapshot) - 1
            return floor, [made for made in order if made > floor and order.sees(snapshot, made)]
        floor, above = told(snapshot)
        return floor, sorted(above)

    # --- for feeds (feed.py) -----------------------------------------------------------------------------

    def extent(self, snapshot: View, slack: int) -> Extent:
        """What a trunk snapshot contains, with a floor that is ``slack`` lower than it could be, or settled for good."""
        floor, above = self.told(snapshot)
        order = self._sequence
        lower = min(floor, max(order.floor, floor - slack))
        listed = [made for made in order if lower < made <= floor and order.sees(snapshot, made)]
        return Extent.of(lower, [*above, *listed])

    def known(self) -> tuple[int, int, list[int]]:
        """The id up to which all that is committed is visible, the head's position, and the visible revisions above the id."""
        with self._lock:
            order, position = self._sequence, self._head.position
            return order.floor, position, [made for made, at in order.positions.items() if at <= position]

    def later(self, position: int) -> list[int] | None:
        """The visible revisions at later positions; None when the sequence no longer reaches back so far."""
        head = self._head.position
        order = self._sequence
        if position < order.begin - 1:
            return None
        return order.sequence[position + 1 - order.begin : max(head, position) + 1 - order.begin]

    def floor_at(self, position: int, slack: int) -> int | None:
        """An id up to which everything that is or can be committed has a position up to this one; None as for :meth:`later`.

        ``slack``: how much lower than the low bound it is; what the watermark settles needs none.
        """
        # The bound first: what joins the sequence after that is not below it.
        low = self._low_bound
        order = self._sequence
        if position < order.begin - 1:
            return None
        return max(order.floor, min([low - slack, *order.after(position)]) - 1)

    def committed(self, low: int, high: int) -> tuple[list[int], int]:
        """Committed trunk revisions above ``low``, and the id up to which these are all: ``high``, or less for many.

        For ids up to :attr:`floor`. One round trip.
        """
        scan = Scan(
            schema.revision_key(low + 1), schema.revision_key(high + 1), SCAN_BATCH, columns=(schema.COMMITTED,)
        )
        rows = again(self._runtime, lambda: self._store.scan(schema.JOURNAL, scan))
        found = [int.from_bytes(row.key, "big") for row in rows if any(cell.value == schema.YES for cell in row.cells)]
        covered = high if len(rows) < SCAN_BATCH else int.from_bytes(rows[-1].key, "big")
        return [made for made in found if not revisions.is_branch(made)], covered

    def snapshot_of(self, wanted: int) -> View | None:
        """The snapshot of a trunk revision whose position is kept; None when there is no such."""
        with self._lock:
            position = self._sequence.positions.get(wanted)
            return None if position is None or position < self._sequence.begin else self._snapshot_at(position)

    def _snapshot_at(self, position: int) -> View:
        """The snapshot at a position that is kept, or just before those. With the lock held."""
        pin = self._pins.get(position)
        if pin is None:
            pin = self._pins[position] = Pin()
        name = self._sequence.name_at(position)
        return View(name, position, self._origin, self._sequence.upper_at(position), base=name, pin=pin)

    # --- growing it --------------------------------------------------------------------------------------

    def append_local(
        self, made: int, touched: Sequence[RowChange], states: Mapping[str, NodeState | None], built_on: View
    ) -> None:
        """Step 11: this instance's own revision, committed just now, joins the sequence."""
        with self._lock:
            self._mend()
            if made not in self._sequence.positions:
                self._append(Arrival(made, len(self._sequence), touched, states, built_on.position))
            self.contention.committed(made)

    def _append(self, arrival: Arrival) -> None:
        self.announced = arrival.position
        for listener in self.listeners:
            listener(arrival)
        self._sequence.append(arrival.revision)
        self._to_the_end()

    def _to_the_end(self) -> None:
        """The head is the last of the sequence from now on."""
        position = len(self._sequence) - 1
        self.highest_seen = max(self.highest_seen, self._sequence.upper_at(position))
        self._head = self._snapshot_at(position)
        for watcher in self.watchers:
            watcher()

    def _mend(self) -> None:
        """Bring to an end, or take back, a joining that was interrupted. With the lock held, before any other."""
        position = self.announced
        if position == self._head.position:
            return
        self._sequence.mend()
        if len(self._sequence) > position:
            self._to_the_end()
            return
        for forget in self.forgetters:
            forget(position)
        self.announced = position - 1

    def compact(self, watermark: Watermark) -> None:
        """Drop what is settled by a watermark, but for the last :data:`KEPT` revisions; snapshots stay what they are.

        Cheap when there is little to drop. From then on the revisions dropped are asked for by their ids: such a
        snapshot has all that is not greater, as in an instance that begins now.
        """
        with self._lock:
            self._mend()
            order = self._sequence
            limit = min(watermark.revision, self._verified)
            shorter = order.shortened(watermark, limit, KEPT)
            if shorter is None:
                return
            dropped = {position: pin for position, pin in self._pins.items() if position < shorter.begin - 1}
            order.tell(dropped, limit + 1)
            self._sequence = shorter
            for position in dropped:
                del self._pins[position]

    def is_recent(self, seconds: float) -> bool:
        """Whether a poll began and ended within the last ``seconds``."""
        return self._polled_at >= self._runtime.monotonic() - seconds

    def poll(self) -> list[int]:
        """See what others committed: one round trip when there is nothing new.

        Returns the revisions that became visible by this call. When another thread's poll began after this call
        was made, that one serves.
        """
        wanted = self._polls_started + 1
        with self._poll_lock:
            if self._poll_begun >= wanted:
                return []
            self._polls_started += 1
            begun = self._polls_started
            self._read_store_clock()
            began = self._runtime.monotonic()
            uncovered = set(self._uncovered)
            low = max(min(self._low_bound, *uncovered) if uncovered else self._low_bound, self._sequence.floor + 1)
            while True:
                found = self._scan(low)
                new = sorted(found.committed)
                news = self._read_news(new)
                deeper = self._lowest_unknown_base(news, low)
                if deeper is None:
                    break
                # A revision never joins without what it was built on: its writer knew of one that polls here passed over.
                low = deeper
            with self._lock:
                self._join_news(new, news)
                self.highest_seen = max(self.highest_seen, found.highest)
                self._pending = frozenset(made for made in found.pending if made not in self._sequence.positions)
                self._uncovered -= uncovered
                self._raise_low_bound(began, found)
            self._poll_begun = begun
            self._polled_at = began
            return new

    def _join(self, committed: Sequence[int]) -> None:
        """Let revisions join that are committed, in the order of ids. With the poll lock held."""
        order = self._sequence
        new = sorted(made for made in committed if made > order.floor and made not in order.positions)
        if new:
            news = self._read_news(new)
            with self._lock:
                self._join_news(new, news)

    def _join_news(self, new: Sequence[int], news: Mapping[int, _News]) -> None:
        self._mend()
        for made in new:
            # What a compaction has dropped meanwhile is settled, and known by its id.
            if made > self._sequence.floor and made not in self._sequence.positions:
                self._append(Arrival(made, len(self._sequence), news[made].changes))

    def _lowest_unknown_base(self, news: Mapping[int, _News], low: int) -> int | None:
        """The lowest id that a new revision was built on, and that this instance does not know and has not looked at."""
        known = self._sequence.positions
        unknown = [one.base for one in news.values() if self._verified < one.base < low and one.base not in known]
        return min(unknown) if unknown else None

    def _scan(self, low: int, high: int | None = None) -> _Found:
        """The revisions from ``low`` up to ``high`` (None: the newest), from the highest down."""
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
            made = int.from_bytes(key, "big")
            highest = max(highest, made)
            for cell in cells:
                if server_ms < cell.timestamp <= latest:
                    server_ms = cell.timestamp
            if made in known or revisions.is_branch(made):
                continue
            flags = {cell.qualifier: cell.value for cell in cells}
            if flags.get(schema.ABORT[1]) == schema.YES:
                (swept if schema.SWEPT[1] in flags else unswept).add(made)
                self.contention.aborted(made)
            elif flags.get(schema.COMMITTED[1]) == schema.YES:
                committed.append(made)
                self.contention.committed(made)
            else:
                pending.add(made)
        now = self._runtime.monotonic()
        for made in swept:
            self._unswept.pop(made, None)
        for made in unswept:
            self._unswept.setdefault(made, now)
        return _Found(committed, pending, highest, server_ms)

    def _raise_low_bound(self, began: float, found: _Found) -> None:
        # What this poll did not meet was created after it began. The server's clock had then reached every server
        # time ever met plus the time since (less the drift), and an id is behind its row's creation by the lag at most.
        if found.server_ms:
            scanning = (self._runtime.monotonic() - began) * 1000 * (1 + CLOCK_DRIFT)
            heard = found.server_ms - scanning - began * 1000 * (1 - CLOCK_DRIFT)
            self._server_offset = heard if self._server_offset is None else max(self._server_offset, heard)
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
        """Where reading the store's clock takes no call: see a step back at once, and estimate nothing."""
        server_ms = self._store.clock_ms()
        if server_ms is None:
            return
        self.clock_was_measured(server_ms)
        offset = server_ms - self._runtime.monotonic() * 1000 * (1 - CLOCK_DRIFT)
        if self._server_offset is None or offset > self._server_offset:
            self._server_offset = offset

    def clock_was_measured(self, server_ms: float) -> None:
        """The store's clock shows at most this now (ms since 1970). If it went back, look as far down again as it may have gone.

        What was created since the last time this was told, and seemed to lie below the bound, is then met by the next poll.
        Later timestamps than the store's clock can show were given before it went back, and are ignored from now on.
        """
        now = self._runtime.monotonic()
        with self._poll_lock, self._lock:
            told, self._clock_told = self._clock_told, now
            self._latest_offset = server_ms - now * 1000 * (1 + CLOCK_DRIFT)
            if self._server_offset is None:
                return
            offset = server_ms - now * 1000 * (1 - CLOCK_DRIFT)
            if self._server_offset <= offset:
                return
            self._server_offset = offset
            oldest = server_ms - (now - told) * 1000 * (1 + CLOCK_DRIFT)
            ms = int(oldest) - self._settings.epoch_ms - self._settings.lag_ms - 1
            self._low_bound = max(min(self._low_bound, revisions.pack(max(ms, 0), 0, 0)), self._sequence.floor + 1)

    def _read_news(self, new: Sequence[int]) -> dict[int, _News]:
        if not self.listeners:
            # Only listeners need it, and an instance that is being opened has none and reads from the watermark up.
            return {made: _News(0, ()) for made in new}
        rows = journal_rows(self._store, self._runtime, new)
        return {
            int.from_bytes(row.key, "big"): _News(_base_of(row), changes.decode(row.cells, row.key)) for row in rows
        }

    # --- looking for one revision ------------------------------------------------------------------------

    def find(self, wanted: int) -> View:
        """The snapshot of a trunk revision, polling for it when it is not known yet (section 3).

        Raises UnknownRevisionError when no poll can find it.
        """
        snapshot = self.snapshot_of(wanted)
        if snapshot is None and wanted == self._origin:
            with self._lock:
                return settled(wanted) if self._sequence.begin else self._snapshot_at(-1)
        if snapshot is None and not revisions.is_branch(wanted):
            if wanted > self._sequence.top:
                again(self._runtime, self.poll)
                snapshot = self.snapshot_of(wanted)
            if snapshot is None and wanted <= self._sequence.top and self._is_committed(wanted):
                snapshot = settled(wanted)
        if snapshot is None:
            text = revisions.to_text(wanted)
            raise UnknownRevisionError(
                f"revision {text} is not known in the repository at {self._store.location}: it was never committed on "
                "trunk, belongs to another repository, or has been collected",
                revision=text,
            )
        return snapshot

    def _is_committed(self, wanted: int) -> bool:
        get = Get(schema.revision_key(wanted), columns=(schema.COMMITTED,))
        row = again(self._runtime, lambda: self._store.read(schema.JOURNAL, [get]))[0]
        return any(cell.value == schema.YES for cell in row.cells) and wanted not in self._sequence.hidden


def _base_of(row: Row) -> int:
    base = next((int.from_bytes(cell.value, "big") for cell in row.cells if cell[:2] == schema.BASE), 0)
    if base > revisions.MAX_REVISION:
        raise schema.damaged("the base of a revision is not a revision id", schema.JOURNAL, row.key, schema.BASE)
    return base
