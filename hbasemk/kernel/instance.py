"""One instance: everything of the kernel that belongs to one opened repository, put together.

The faces (``repository``, ``microkernel``) and the background work use the kernel through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from hbasemk.errors import ClosedError, StoreError, StoreUnusableError
from hbasemk.format import revisions, schema
from hbasemk.kernel import settings
from hbasemk.kernel.blobs import Blobs
from hbasemk.kernel.branches.branches import Branches
from hbasemk.kernel.commit.committer import CommitStatistics, Committer, Source
from hbasemk.kernel.commit.turns import Turns
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.outcomes import Outcome, Outcomes
from hbasemk.kernel.journal.recovery import Recovery
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.cache import DEFAULT_ENTRIES, NodeCache
from hbasemk.kernel.reading.child_count import ChildCounts
from hbasemk.kernel.reading.reader import Reader
from hbasemk.kernel.retry import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Store

Opened = TypeVar("Opened", bound="Instance")

SWEEP_EVERY: Final = 3600.0
"""Seconds between looks for branches that nobody touches any more, and for rows that came long after their writer's end."""
MEASURE_EVERY: Final = 60.0
"""Seconds after which an instance that renews no lease measures the store's clock, to see whether that has gone back."""
BRANCH_RETENTION_MS: Final = 24 * 3600 * 1000
"""How long a branch lives untouched."""
ADVANCE_AFTER: Final = 500
"""How many revisions join the sequence before the watermark is worth moving, and the sequence worth shortening."""


class Instance:
    """A live view of one repository; ``store`` is not closed with it."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        found: Settings,
        journal: Journal,
        *,
        cache_entries: int = DEFAULT_ENTRIES,
    ) -> None:
        self.store = store
        self.runtime = runtime
        self.settings = found
        self.journal = journal
        self.cache = NodeCache(runtime.lock(), cache_entries, journal.head.position)
        journal.listeners.append(self.cache.arrived)
        journal.forgetters.append(self.cache.forget)
        self.lease = Lease(store, runtime, found)
        self.clock = IdClock(runtime, found, self.lease)
        self.reader = Reader(store, runtime, journal, self.cache)
        self.counts = ChildCounts(store, runtime, journal, self.reader)
        journal.listeners.append(self.counts.arrived)
        self.outcomes = Outcomes(store, runtime, journal, self.lease)
        self.recovery = Recovery(
            store, runtime, journal, self.outcomes, (found.lease_ms + found.max_clock_skew_ms) / 1000
        )
        turns = Turns(store, runtime, journal, self.lease)
        self._committer = Committer(store, runtime, self.clock, journal, self.reader, self.outcomes, turns)
        self._sweep_due = runtime.monotonic() + SWEEP_EVERY
        self._measured_at = runtime.monotonic()
        self.branches = Branches(
            store, runtime, self.clock, journal, self.reader, self.outcomes, self._committer, self.lease
        )
        self.blobs = Blobs(store, runtime)
        self._advanced_at = 0
        self._tended_at = 0
        self.on_backlog: Callable[[], None] | None = None
        """Called after a call of which on :data:`ADVANCE_AFTER` more revisions are known; where nothing else tends it."""

    @classmethod
    def open(
        cls: type[Opened],
        store: Store,
        runtime: Runtime,
        *,
        create: bool = True,
        wanted: Settings | None = None,
        cache_entries: int = DEFAULT_ENTRIES,
    ) -> Opened:
        """Open the repository that a store holds, creating it first where there is none (unless told not to).

        Raises StoreUnusableError when there is none and ``create`` is False, or when its tables are not as they must
        be; FormatError when it was written by a newer version. A store that this process may only read is not created.
        """
        if create and not store.read_only:
            found, watermark = settings.create(store, runtime, wanted or Settings())
        else:
            again(runtime, lambda: store.verify(schema.TABLES))
            existing, level = again(runtime, lambda: settings.read(store))
            if existing is None or level is None:
                raise StoreUnusableError(f"there is no repository at {store.location}; create one first")
            found, watermark = existing, level
        journal = Journal(store, runtime, found, watermark)
        again(runtime, journal.poll)
        return cls(store, runtime, found, journal, cache_entries=cache_entries)

    # --- snapshots ---------------------------------------------------------------------------------------

    def poll(self) -> list[int]:
        """See what others committed; the revisions that became visible by this call. One round trip if none."""
        new = again(self.runtime, self.journal.poll)
        self._look_how_many()
        return new

    def head(self) -> View:
        """What is visible now; no round trip."""
        return self.journal.head

    def at(self, wanted: int) -> View:
        """The snapshot of a revision, of trunk or of a branch; raises UnknownRevisionError."""
        if revisions.is_branch(wanted):
            return self.branches.find(wanted).snapshot
        return self.journal.find(wanted)

    # --- commits -----------------------------------------------------------------------------------------

    @property
    def statistics(self) -> CommitStatistics:
        """What this instance's commits met."""
        return self._committer.statistics

    def commit(
        self,
        make: Callable[[View], Source],
        message: str,
        *,
        retry_timeout: float,
        max_poll_age: float,
        begun: Callable[[int], None] | None = None,
    ) -> int:
        """Commit on the head, again after conflicts; see :meth:`Committer.on_head`."""
        made = self._committer.on_head(make, message, retry_timeout, max_poll_age, begun)
        self._look_how_many()
        return made

    def commit_on(
        self, snapshot: View, source: Source, message: str, begun: Callable[[int], None] | None = None
    ) -> int:
        """Commit once on a given base; see :meth:`Committer.on_base`."""
        made = self._committer.on_base(snapshot, source, message, begun=begun)
        self._look_how_many()
        return made

    def outcome(self, asked: int) -> Outcome:
        """How a revision turned out, ending it first if this instance had to leave it."""
        if revisions.is_branch(asked):
            self.outcomes.resolve_pending()
            return self.branches.outcome(asked)
        return self.outcomes.final_outcome(asked)

    # --- background work ---------------------------------------------------------------------------------

    def maintain(self) -> None:
        """What every instance does now and then: renew its lease, end loose ends and dead writers' revisions,
        move the watermark. No round trip when there is nothing to do. Raises StoreError and LeaseLostError.

        An instance that may only read does none of it; it only drops what others have moved the watermark past.
        """
        if self.store.read_only:
            self._follow()
            return
        if self.lease.due():
            self.lease.renew()
        self._watch_the_stores_clock()
        self.outcomes.resolve_pending()
        self.branches.resolve_pending()
        self.recovery.recover()
        if self.lease.held and self.runtime.monotonic() >= self._sweep_due:
            self._sweep_due = self.runtime.monotonic() + SWEEP_EVERY
            self.branches.sweep(BRANCH_RETENTION_MS)
            self.recovery.recover_late()
        self._advance()

    def _look_how_many(self) -> None:
        if self.on_backlog is not None and len(self.journal) - self._tended_at >= ADVANCE_AFTER:
            self._tended_at = len(self.journal)
            self.on_backlog()

    def _watch_the_stores_clock(self) -> None:
        server = self.lease.server
        if self.runtime.monotonic() - max(server.measured_at, self._measured_at) >= MEASURE_EVERY:
            self.lease.measure()
        if server.measured_at > self._measured_at:
            self._measured_at = server.measured_at
            self.journal.clock_was_measured(server.at_most(self.runtime.monotonic()))

    def _follow(self) -> None:
        if self.store.clock_ms() is not None:
            # Elsewhere that takes a write.
            self._watch_the_stores_clock()
        seen = len(self.journal)
        if seen - self._advanced_at >= ADVANCE_AFTER:
            self._advanced_at = seen
            self.recovery.follow()

    def _advance(self) -> None:
        # Readers too: short-lived writers may never come to it, and the watermark is what lets the journal stay short.
        seen = len(self.journal)
        if seen - self._advanced_at >= ADVANCE_AFTER:
            self._advanced_at = seen
            self.recovery.advance()

    def close(self) -> None:
        """End what can be ended and give the machine id back; a store out of reach, or closed before, is no error here,
        since a lease ends by itself and others then recover what this instance left."""
        if self.store.read_only:
            self.lease.forget()
            return
        try:
            self.outcomes.resolve_pending()
            self.branches.resolve_pending()
            self.lease.release(self.clock.issued_ms)
            self._advance()
        except (StoreError, ClosedError):
            self.lease.forget()

    def ids_end_ms(self) -> int:
        """The ms since 1970 at which this repository's revision ids run out."""
        return self.settings.ids_end_ms
