"""How the known revisions grow: by polls, by this instance's own commits, and by watermarks.

What a poll adds is causally closed (I2), and no poll misses a revision (I3). How polls find revisions depends on the
store: ``arrival_poller.py``, ``log_poller.py``. See ``docs/protocol.md``, section 5.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from hbasemk.errors import RevisionCollectedError
from hbasemk.format import schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.node import NodeState
from hbasemk.format.watermark import Watermark
from hbasemk.format.writer_log import WriterLog
from hbasemk.kernel.batches import batched
from hbasemk.kernel.journal.arrival_poller import ArrivalPoller
from hbasemk.kernel.journal.contention import Contention
from hbasemk.kernel.journal.fence import Fence, read_trim_level, trim_level_place, unrecorded
from hbasemk.kernel.journal.known_revisions import Arrival, KnownRevisions
from hbasemk.kernel.journal.log_poller import LogPoller
from hbasemk.kernel.journal.news import Contents, News
from hbasemk.kernel.journal.rows import journal_rows, whole_rows
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.kernel.journal.unswept import Unswept
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings, read_watermark

TOGETHER: Final = 1000
"""So many revisions join together at most. Readers wait for the caches meanwhile."""
BEGINNINGS: Final = 100
"""So often an instance begins again in one poll, while collectors delete what it needs; each time the watermark is higher."""


class PolledRevisions(KnownRevisions):
    """The known revisions, and the polls that extend them. One poll runs at a time; others use its result."""

    def __init__(self, store: RetryingStore, runtime: Runtime, settings: Settings, watermark: Watermark) -> None:
        super().__init__(runtime.lock(), watermark)
        self._store = store
        self._runtime = runtime
        self._settings = settings
        self.contention = Contention()
        self._poll_lock = runtime.lock()
        self._pending: frozenset[int] = frozenset()
        self.unswept = Unswept(runtime)
        self._verified = watermark.revision
        self._contents: dict[int, Sequence[RowChange]] = {}  # read by an attempt that has not succeeded yet
        self.poller = self._new_poller(watermark)
        self.fence = Fence(store, runtime, watermark.horizon)
        self._local: dict[int, Arrival] = {}
        self.lacks_own_commit = False
        """Whether a commit of this instance may not have joined: the poll after it failed, or an interrupt came before its end.
        The next poll ends it."""
        self._polls_started = 0
        self._polled_at = self._distrusted_at = float("-inf")
        self._poll_begun = -1
        self._change_counter: int | None = None

    def _new_poller(self, watermark: Watermark) -> ArrivalPoller | LogPoller:
        if self._store.supports_transactions:
            return ArrivalPoller(self._store, self._settings, watermark, self._wants_contents)
        return LogPoller(self._store, self._runtime, watermark, self._wants_contents)

    # --- polls -------------------------------------------------------------------------------------------

    def poll(self) -> list[int]:
        """Read what other instances committed: one round trip if there is nothing new.

        Returns the revisions that this call made visible. If another thread's poll began after this call was made, the
        call uses the result of that poll. It is retried as a whole, because it holds a lock. It is repeated while a revision
        that it has found committed must wait for a lower id, which another writer announced during the poll. That ends,
        however busy the writers are: each of them can make a revision wait once more.
        """
        joined = run_with_retries(self._runtime, self._poll)
        waits = set(self._held_back)
        while waits:
            joined = [*joined, *run_with_retries(self._runtime, self._poll)]
            waits.intersection_update(self._held_back)
        return joined

    @property
    def _held_back(self) -> Collection[int]:
        """The committed revisions that the last poll let wait."""
        return self.poller.held_back if isinstance(self.poller, LogPoller) else ()

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
            news = self._read_news(began)
            self._record(news)
            # Everything up to it is decided. A process that slept wrote an undecided row there, after the row was deleted.
            decided = max(news.horizon, self.fence.horizon)
            self.unswept.remove_up_to(decided)
            with self._lock:
                self._append_all(news.committed, news.contents)
                floor, known = self._sequence.floor, self._sequence.positions
                # The floor may have passed a revision before it joined; then all views contain it.
                self._local = {one: kept for one, kept in self._local.items() if one > floor and one not in known}
                self.lacks_own_commit = self.lacks_own_commit and bool(self._local)
                self.highest_seen = max(self.highest_seen, news.highest)
                self._pending = frozenset(one for one in news.pending if one > decided and one not in known)
                # Before the cursor, which passes the rows that tell of it: an interrupt between the two loses nothing.
                self._learn(news, began)
                self.poller.finish(news, self._pending, floor)
            self._verify_published(news.watermark)
            if isinstance(self.poller, LogPoller):
                self.fence.learn_trim_level(news.trimmed.revision)
            self._poll_begun = begun
            self._polled_at = began
            self._change_counter = counter
            return news.committed

    def _learn(self, news: News, began: float) -> None:
        """Learn the horizon and the notice of checkpoints, after the committed revisions have joined."""
        # Everything up to a horizon was decided before its publication.
        self._verified = max(self._verified, news.horizon)
        self.fence.learn(news.horizon, began)
        self.checkpoints_notice = news.notice or self.checkpoints_notice

    def _read_news(self, began: float) -> News:
        """Return what is new. Begin again, as an instance that opens now, if some of it has been deleted.

        ``began``: when the poll began, by the monotonic clock.
        """
        news = self._read_with(self.poller, self._sequence, self._verified, began, self._read_contents)
        if news is not None:
            return news
        for _ in range(BEGINNINGS):
            began = self._runtime.monotonic()
            watermark = read_watermark(self._store)
            poller = self._new_poller(watermark)
            first = RevisionSequence.first(watermark)
            news = self._read_with(poller, first, watermark.revision, began, lambda *_: {})
            if news is not None:
                break
        else:
            raise schema.damaged("the trim level stays above the watermark", *trim_level_place(self._store))
        with self._lock:
            self._begin_again(watermark, news.committed, self._verified + 1)
            self._verified = max(self._verified, watermark.revision)
            # The cursor of the poller may be after the rows by which polls learn the horizon, and that a checkpoint has changed.
            news.horizon = max(news.horizon, watermark.horizon)
            news.notice = news.notice or len(self._sequence).to_bytes(8, "big")
            self._learn(news, began)
            self.poller, self._contents, self._local = poller, {}, {}
        return news

    def _read_with(
        self,
        poller: ArrivalPoller | LogPoller,
        sequence: RevisionSequence,
        verified: int,
        began: float,
        read_contents: Callable[..., Contents],
    ) -> News | None:
        """Return what a poller finds that is not in the sequence; None if some of it may have been deleted."""
        try:
            news = poller.read(sequence, read_contents)
            if isinstance(poller, LogPoller):
                self._add_missed(poller, news, sequence, verified, read_contents)
                if not self.fence.is_recent(began):
                    # Deletion for a level that was published after the logs were read may have begun.
                    news.trimmed = max(news.trimmed, read_trim_level(self._store))
                # Collectors delete rows up to the trim level only. This poll needs those above the verified id.
                news.is_complete = news.trimmed.revision <= verified
        except RevisionCollectedError:
            # A collector deletes a row after it was found to be new; then it may have deleted others, too.
            return None
        return news if news.is_complete else None

    def is_recent(self, seconds: float) -> bool:
        """Return whether a poll began less than ``seconds`` ago, and ended; with 0, never, also while the clock stands still.

        It is not recent if an own commit has not joined, or if it began before :meth:`distrust_polls`.
        """
        since = max(self._runtime.monotonic() - seconds, self._distrusted_at)
        return not self.lacks_own_commit and self._polled_at > since

    def distrust_polls(self) -> None:
        """Let no poll count as recent that began before now: this instance has met a commit that the head may lack."""
        self._distrusted_at = self._runtime.monotonic()

    def prepare_commit(self, max_poll_age: float, deadline: float, must_poll: bool = False) -> None:
        """Make the head one to base a commit on: poll, unless a poll began within the last ``max_poll_age`` seconds.

        First wait while other processes should commit, until ``deadline`` at most. A poll follows each wait: a commit on an older
        head might conflict with those that it has waited for.
        """
        must_poll = must_poll or not self.is_recent(max_poll_age)
        while self._store.give_way(max(deadline - self._runtime.monotonic(), 0)):
            self.poll()
            must_poll = False
        if must_poll:
            self.poll()

    def revalidate(self) -> bool | None:
        """Return whether nobody has written to the store since the last poll began; None if only a poll can tell.

        If so, a poll would find nothing, and the last poll counts as made now. No round trip.
        """
        began = self._runtime.monotonic()
        counter = self._store.change_counter()
        if counter is None:
            return None
        if counter != self._change_counter:
            return False
        self._polled_at = began
        self.fence.learn(0, began)
        return True

    def _wants_contents(self) -> bool:
        # Only listeners use the contents. An instance that is still opening has none, and reads from the watermark up.
        return bool(self.listeners)

    def _read_contents(self, new: Sequence[int], found: Mapping[int, JournalRow] | None = None) -> Contents:
        """Return the changes of revisions that join; ``found`` has rows of some of them, without further chunks."""
        if not self._wants_contents():
            return dict.fromkeys(new, ())
        unread = [revision for revision in new if revision not in self._contents and revision not in self._local]
        first = found or {}
        rows = whole_rows(self._store, [first[revision] for revision in unread if revision in first])
        missing = [revision for revision in unread if revision not in first]
        for row in itertools.chain(rows, journal_rows(self._store, missing)):
            if not row.cells:
                raise unrecorded(self._store, row.revision)
            self._contents[row.revision] = row.required_changes
        return {revision: self._contents[revision] for revision in new if revision in self._contents}

    def _append_all(self, new: Sequence[int], contents: Contents) -> None:
        self._contents = {}
        self._repair_append()
        floor, known, local = self._sequence.floor, self._sequence.positions, self._local
        # Skip a revision that a concurrent compaction has dropped: its id now lies below the floor.
        joining = [revision for revision in new if revision > floor and revision not in known]
        for part in batched(enumerate(joining, len(self._sequence)), TOGETHER):
            self._append(
                [
                    local[revision]._replace(position=position)
                    if revision in local
                    else Arrival(revision, position, contents[revision])
                    for position, revision in part
                ]
            )
        if self._shown != self.announced:
            self._move_head()

    # --- own commits -------------------------------------------------------------------------------------

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
            self.contention.committed((revision,))
            if revision in self._sequence.positions:
                return True
            if revision <= self._sequence.floor and isinstance(self.poller, LogPoller):
                # The instance has begun again after the decision: everything up to the floor is visible.
                return True
            valid = states if built_on.extent is None else None
            arrival = Arrival(revision, len(self._sequence), touched, valid, built_on.position)
            if isinstance(self.poller, ArrivalPoller):
                if min(created, committed) <= 0 or not self.poller.follows(created, committed):
                    self._local[revision] = arrival
                    return False
                self._append((arrival,))
                self._move_head()
                self.poller.joined(revision, created, committed, self._sequence.floor)
            else:
                self._append((arrival,))
                self._move_head()
            return True

    # --- bounds ------------------------------------------------------------------------------------------

    @property
    def low_bound(self) -> int:
        """The id below which no poll finds anything new, and no revision can still commit."""
        return self.poller.low_bound if isinstance(self.poller, ArrivalPoller) else self._verified + 1

    def is_decided(self, revision: int) -> bool:
        """Return whether this instance knows that a revision is decided. No round trip."""
        return revision <= self._verified or revision in self._sequence.positions

    @property
    def arrived(self) -> int | None:
        """The arrival number up to which all writes have been read; None if the store does not order all writes."""
        return self.poller.cursor if isinstance(self.poller, ArrivalPoller) else None

    def unchanged_since(self, view: View) -> int | None:
        """Return an arrival number up to which no write can matter to a commit on a view; None if none is known.

        What committed up to it is in the view, and nothing is pending: only a later write can be a conflict.
        """
        with self._lock:
            if not isinstance(self.poller, ArrivalPoller) or self._pending or view != self._head:
                return None
            return self.poller.cursor

    def arrival_before(self, revision: int) -> int:
        """Return the arrival number to store with a watermark, from which a new instance begins to read; 0 without order."""
        with self._poll_lock, self._lock:
            return self.poller.number_before(revision) if isinstance(self.poller, ArrivalPoller) else 0

    # --- watermarks --------------------------------------------------------------------------------------

    @property
    def verified(self) -> int:
        """The id up to which this instance has seen every committed revision; based on a watermark, not on a clock."""
        return self._verified

    def read_logs(self) -> Mapping[int, WriterLog]:
        """Return the logs of all writers as they are now; empty if the store orders all writes. One round trip."""
        return self.poller.read_logs() if isinstance(self.poller, LogPoller) else {}

    def verify(self, watermark: Watermark) -> None:
        """Verify the ids up to a watermark. One poll if it is new.

        Nothing at or below a watermark can still commit, so afterwards :attr:`verified` is the watermark's revision.
        """
        run_with_retries(self._runtime, lambda: self._verify(watermark))

    def _verify(self, watermark: Watermark) -> None:
        with self._poll_lock:
            if watermark.revision > self._verified:
                self.poll()
                self._verify_published(watermark.revision)

    def _verify_published(self, watermark: int) -> None:
        """Verify the ids up to a watermark that was published before the last poll began. The caller holds the poll lock.

        The poll has read all of them, and none waits for what was announced during it: that is above the watermark.
        """
        waiting = self.poller.lowest_waiting if isinstance(self.poller, LogPoller) else watermark + 1
        if self._verified < watermark < waiting:
            self._verified = watermark

    def _add_missed(
        self,
        poller: LogPoller,
        news: News,
        sequence: RevisionSequence,
        verified: int,
        read_contents: Callable[..., Contents],
    ) -> None:
        """Add what is committed above the verified id, up to the horizon.

        In a store that does not order all writes, the logs of writers whose ids are all below the horizon are deleted. So an
        instance that has not verified these ids scans the journal. They join before the later ones that were built on them.
        """
        if news.horizon <= verified:
            return
        found = poller.scan(sequence, verified + 1, news.horizon)
        known = set(news.committed)
        missed = sorted(one for one in found.committed if one > sequence.floor and one not in known)
        news.contents = {**news.contents, **read_contents(missed)}
        news.committed = sorted(known.union(missed))
        news.deferred.difference_update(missed)
        news.held_back = {one: below for one, below in news.held_back.items() if one in news.deferred}
        news.swept |= found.swept
        news.unswept |= found.unswept

    def compact(self, watermark: Watermark) -> None:
        """Drop positions up to a watermark, except the last ``known_revisions.KEPT``. Views in use stay the same.

        The call is cheap if there is little to drop. Afterwards a view of a dropped revision contains every committed
        revision with an id up to its own, as in an instance that opens now.
        """
        limit = min(watermark.revision, self._verified)
        with self._lock:
            self._shorten(watermark, limit)
            if isinstance(self.poller, ArrivalPoller):
                self.poller.forget(limit)

    # --- undecided and aborted revisions -------------------------------------------------------------------

    @property
    def pending(self) -> frozenset[int]:
        """The trunk revisions that the last poll found undecided."""
        return self._pending

    def _record(self, news: News) -> None:
        """Record the aborted and committed revisions that a read found."""
        for revision in news.swept:
            self.unswept.remove(revision)
            self.contention.aborted(revision)
        for revision in news.unswept:
            self.unswept.add(revision)
            self.contention.aborted(revision)
        self.contention.committed(news.committed)
