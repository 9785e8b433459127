"""One instance: the parts of the kernel that belong to one opened repository.

The front ends (``repository``, ``microkernel``) and background maintenance use the kernel through it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from hbasemk.errors import HbasemkError, RevisionCollectedError, UnknownRevisionError
from hbasemk.format import revisions
from hbasemk.format.journal_row import Outcome
from hbasemk.format.node import NodeState
from hbasemk.kernel import schema_version, settings
from hbasemk.kernel.blobs import Blobs
from hbasemk.kernel.branches import rebase
from hbasemk.kernel.branches.branches import Branches
from hbasemk.kernel.branches.cache import BranchState
from hbasemk.kernel.branches.open_branches import OpenBranch, open_branches
from hbasemk.kernel.commit.change_source import ChangeSource, CollectedOperations
from hbasemk.kernel.commit.committer import Committer
from hbasemk.kernel.commit.context import CommitContext
from hbasemk.kernel.commit.folds import Folds
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.commit.slots import Slots
from hbasemk.kernel.commit.sole_rows import SoleRows
from hbasemk.kernel.commit.statistics import CommitStatistics
from hbasemk.kernel.commit.turns import Turns
from hbasemk.kernel.ids.announcements import Announcements
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.checkpoint_cells import CheckpointCells
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.kernel.journal.recovery import Recovery
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.periodic_work import PeriodicWork
from hbasemk.kernel.reading.cache import DEFAULT_BYTES, CacheStatistics, NodeCache
from hbasemk.kernel.reading.child_count import ChildCounts
from hbasemk.kernel.reading.last_changes import OF_EXTENT, LastChanges, view_name
from hbasemk.kernel.reading.reader import Names, Reader
from hbasemk.kernel.reading.subtree_hashes import SubtreeHashes
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.schema_version import Accepted
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import FileIdentity, Store

Opened = TypeVar("Opened", bound="Instance")

BYTES_PER_HASH: Final = 1000
"""For each so many bytes of the cache, an instance keeps the hash and the last change of one subtree, each in some 250 bytes
besides."""


class Instance:
    """A live connection to one repository. Closing it does not close ``store``."""

    def __init__(
        self,
        store: RetryingStore,
        runtime: Runtime,
        found: Settings,
        journal: Journal,
        *,
        cache_bytes: int = DEFAULT_BYTES,
        accepted: Accepted | None = None,
        has_checkpoints: bool = True,
    ) -> None:
        self.store = store
        self.runtime = runtime
        self.settings = found
        self.journal = journal
        self.cache = NodeCache(runtime.lock(), cache_bytes, journal.head.position)
        journal.listeners.append(self.cache.arrived)
        journal.forgetters.append(self.cache.forget)
        self.lease = Lease(store, runtime, found, accepted)
        self.clock = IdClock(runtime, found, self.lease)
        self.reader = Reader(store, runtime, journal, self.cache)
        self.counts = ChildCounts(store, runtime, journal, self.reader)
        journal.listeners.append(self.counts.arrived)
        journal.forgetters.append(self.counts.forget)
        hashes = SubtreeHashes(runtime, self.reader, cache_bytes // BYTES_PER_HASH, journal.head.position)
        journal.listeners.append(hashes.arrived)
        journal.forgetters.append(hashes.forget)
        self._hashes = hashes
        self._last_changes = LastChanges(runtime, cache_bytes // BYTES_PER_HASH, journal.head.position)
        journal.listeners.append(self._last_changes.arrived)
        journal.forgetters.append(self._last_changes.forget)
        self.checkpoint_cells = CheckpointCells(store, runtime, journal, self.lease, has_checkpoints)
        self.announcements = Announcements(store, runtime, self.clock, self.lease, journal.is_decided)
        self.outcomes = Outcomes(store, runtime, journal, self.lease, self.announcements)
        self.recovery = Recovery(
            store, runtime, journal, self.outcomes, self.lease, (found.lease_ms + found.max_clock_skew_ms) / 1000
        )
        turns = Turns(store, runtime, journal, self.lease)
        slots = Slots(runtime, journal)
        context = CommitContext(
            store,
            runtime,
            self.clock,
            self.announcements,
            journal,
            self.reader,
            self.outcomes,
            slots,
            SoleRows(store.batch_rows),
        )
        self._committer = Committer(context, turns)
        self.branches = Branches(context, self._committer, self.lease)
        self.blobs = Blobs(store, runtime, self.lease.server.latest_ms)
        self.periodic_work = PeriodicWork(
            context,
            self.lease,
            self.branches,
            self.recovery,
            Folds(context, self._committer, self.lease),
            self.checkpoint_cells,
        )
        self.created = False
        """Whether :meth:`open` has created the repository."""
        self.max_poll_age = 0.0
        """Seconds for which commits, merges, :meth:`recent_head` and :meth:`poll_unless_recent` use the last poll."""
        self.failure: HbasemkError | None = None
        """Why background polls cannot use the store, until one succeeds again; None during an outage that may end by itself."""

    @classmethod
    def open(
        cls: type[Opened],
        store: Store,
        runtime: Runtime,
        *,
        create: bool = True,
        wanted: Settings | None = None,
        cache_bytes: int = DEFAULT_BYTES,
        accepted: Accepted | None = None,
    ) -> Opened:
        """Open the repository in a store. If there is none and ``create`` is True, create it.

        ``accepted`` are the schema numbers with which the instance may commit (None: all, and the number is not read). If it is
        one number, a new repository begins with it, else with 0. Raises SchemaVersionError for another number.
        Raises StoreUnusableError if there is none and ``create`` is False, or if its tables have the wrong structure.
        Raises FormatError if a newer version wrote it. A repository is never created in a read-only store.
        """
        retrying = RetryingStore(store, runtime)
        if create and not store.read_only:
            found, watermark, created = settings.create(retrying, wanted or Settings(), accepted)
        else:
            (found, watermark), created = settings.require(retrying), False
        if accepted is not None:
            schema_version.require(schema_version.read(retrying), accepted, store.location)
        journal = Journal(retrying, runtime, found, watermark)
        journal.poll()
        opened = cls(
            retrying,
            runtime,
            found,
            journal,
            cache_bytes=cache_bytes,
            accepted=accepted,
            has_checkpoints=watermark.has_checkpoints,
        )
        opened.created = created
        return opened

    def require_revisions(self) -> None:
        """Raise FormatError if the watermark is above all revisions, directly after :meth:`open`. At most one round trip."""
        settings.require_revisions(self.journal.verified, self.store)

    # --- views -------------------------------------------------------------------------------------------

    def poll(self) -> list[int]:
        """Read what other instances committed and return the revisions this call made visible. One round trip if none."""
        new = self.journal.poll()
        self.periodic_work.check_backlog()
        return new

    def poll_unless_recent(self) -> None:
        """Poll, unless a poll began within the last :attr:`max_poll_age` seconds."""
        if not self.journal.is_recent(self.max_poll_age):
            self.poll()

    def revalidate(self) -> bool | None:
        """Return whether a poll now would find nothing; None if only a poll can tell. No round trip.

        If True, commits treat the last poll as made now.
        """
        return self.journal.revalidate()

    def require_usable(self) -> None:
        """Raise the error that background polls have met, if the store cannot be used. No round trip.

        A thread that waits for background polls calls this before each wait, since it makes no call of the store itself.
        """
        failure = self.failure
        if failure is not None:
            # Several threads may raise it, so each has a copy.
            raise copy.copy(failure)

    def head(self) -> View:
        """Return the view of everything visible now. No round trip.

        If the store failed right after a commit of this instance, or an interrupt such as Ctrl-C ended the commit, it polls
        first, so that the view contains the commit.
        """
        if self.journal.lacks_own_commit:
            self.poll()
        return self.journal.head

    def recent_head(self) -> View:
        """Return the head for a transaction; poll first, unless a poll began within the last :attr:`max_poll_age` seconds."""
        self.journal.prepare_commit(self.max_poll_age, self.runtime.monotonic() + self.runtime.retry_timeout)
        self.periodic_work.check_backlog()
        return self.journal.head

    def at(self, revision: int) -> View:
        """Return the view of a trunk or branch revision; raise UnknownRevisionError if there is none.

        If a checkpoint keeps the revision, that is the view of the checkpoint. Raises RevisionCollectedError if parts of it
        have been deleted because it is older than the retention.
        """
        if revisions.is_branch(revision):
            view = self.branches.find(revision).view
        else:
            view = self._trunk_view(revision)
        self.journal.require_above_horizon(view)
        return view

    def _trunk_view(self, revision: int) -> View:
        try:
            found = self.journal.find(revision)
        except RevisionCollectedError:
            # A checkpoint keeps its view also where the row of its revision has been deleted.
            kept = self.checkpoint_cells.view_of(revision)
            if kept is None:
                raise
            return kept
        return self.checkpoint_cells.view_of(revision) or found

    def view_name(self, view: View) -> str:
        """Return a text that names exactly this view; see :meth:`view_named`."""
        return view_name(view)

    def view_named(self, name: str) -> View:
        """Return the view that :meth:`view_name` named, or whose name a token of :meth:`subtree_token` begins with.

        Raises UnknownRevisionError if this instance does not know the view any more: the sequence has dropped its position, or
        its checkpoint has ended. Also raises InvalidRevisionError, and the errors of :meth:`at`.
        """
        text, point, digits = name.partition(".")
        revision = revisions.from_text(text)
        view = self.at(revision)
        has_extent = len(digits) == OF_EXTENT
        if view_name(view) == name or not point or (view.extent is None and not has_extent):
            return view
        # A checkpoint keeps another view of the revision, or the sequence has dropped its position.
        in_sequence = self.journal.find(revision)
        if view_name(in_sequence) != (name if has_extent else f"{text}."):
            raise UnknownRevisionError(
                f"this process no longer knows which snapshot of revision {text} was read: many revisions have been committed "
                "since, or the checkpoint that kept it has ended; read the tree again by its path",
                revision=text,
            )
        if self.are_equal(in_sequence, view):
            # The checkpoint's stays readable.
            return view
        self.journal.require_above_horizon(in_sequence)
        return in_sequence

    @property
    def horizon(self) -> int:
        """The oldest trunk revision of which the snapshot is certainly readable, as far as this instance knows; 0: the first."""
        return self.journal.fence.horizon

    @property
    def location(self) -> str:
        """The location of the repository, for messages."""
        return self.store.location

    def store_files(self) -> Mapping[FileIdentity, str]:
        """Return the files in which the store keeps the repository; see :meth:`Store.files`."""
        return self.store.files()

    def sees(self, view: View, revision: int) -> bool:
        """Return whether a trunk revision is part of a view. No round trip."""
        return self.journal.sees(view, revision)

    def are_equal(self, one: View, other: View) -> bool:
        """Return whether two views are of the same revision and contain the same revisions; see :meth:`Journal.are_equal`."""
        return self.journal.are_equal(one, other)

    # --- reading -----------------------------------------------------------------------------------------

    def node(self, view: View, path: str) -> NodeState | None:
        """Return a node, or None; see :meth:`Reader.node`."""
        return self.reader.node(view, path)

    def require(self, view: View, path: str) -> NodeState:
        """Return a node, or raise NodeNotFoundError; see :meth:`Reader.require`."""
        return self.reader.require(view, path)

    def status(self, view: View, node_paths: Sequence[str]) -> dict[str, tuple[bool, int]]:
        """Return whether there are nodes at paths, and which revisions deleted them; see :meth:`Reader.status`."""
        return self.reader.status(view, node_paths)

    def nodes(self, view: View, node_paths: Sequence[str]) -> dict[str, NodeState | None]:
        """Return many nodes by path; see :meth:`Reader.nodes`."""
        return self.reader.nodes(view, node_paths)

    def children(self, view: View, path: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the names of a node's children, in order; see :meth:`Reader.children`."""
        return self.reader.children(view, path, after, limit)

    def lists(self, view: View, state: NodeState, name: str) -> bool:
        """Return whether a node lists a child of this name; see :meth:`Reader.lists`."""
        return self.reader.lists(view, state, name)

    def levels(self, view: View, path: str, depth: int | None = None) -> Iterator[Sequence[NodeState]]:
        """Return an iterator over a node's descendants, level by level; see :meth:`Reader.levels`."""
        return self.reader.levels(view, path, depth)

    def children_of(self, view: View, states: Sequence[NodeState], limit: int | None = None) -> dict[str, Names]:
        """Return the names of the children of many nodes, by path; see :meth:`Reader.children_of`."""
        return self.reader.children_of(view, states, limit)

    def child_count(self, view: View, state: NodeState, *, wide: bool = False) -> int:
        """Return the number of a node's children; see :meth:`ChildCounts.of`."""
        return self.counts.of(view, state, wide=wide)

    def subtree_hashes(self, view: View, top: NodeState, below: Sequence[str]) -> dict[str, str]:
        """Return the hashes of a node's subtree and of some subtrees in it, by path; see :meth:`SubtreeHashes.of`."""
        return self._hashes.of(view, top, below)

    def subtree_token(self, view: View, path: str) -> str:
        """Return a text that two subtrees at a path share only if they are equal; see :meth:`LastChanges.token`.

        :meth:`view_named` finds a view in which the subtree is the same.
        """
        return self._last_changes.token(view, path)

    def keep_blob(self, blob: str) -> int:
        """Return the length of a blob, which then stays for at least the retention; see :meth:`Blobs.keep`."""
        return self.blobs.keep(blob)

    @property
    def cache_statistics(self) -> CacheStatistics:
        """Counters of this instance's cache."""
        return self.cache.statistics

    # --- commits -----------------------------------------------------------------------------------------

    @property
    def statistics(self) -> CommitStatistics:
        """Counters of this instance's commits and conflicts."""
        return self._committer.attempts.statistics

    def commit(
        self,
        make: Callable[[View], ChangeSource],
        message: str,
        *,
        retry_timeout: float | None = None,
        max_poll_age: float | None = None,
        begun: Callable[[int], None] | None = None,
    ) -> int:
        """Commit on the head, retrying after conflicts; see :meth:`Committer.on_head`.

        ``retry_timeout`` in seconds, None: the runtime's. ``max_poll_age`` in seconds, None: :attr:`max_poll_age`.
        """
        seconds = self.runtime.retry_timeout if retry_timeout is None else retry_timeout
        age = self.max_poll_age if max_poll_age is None else max_poll_age
        revision = self._committer.on_head(make, message, seconds, age, begun)
        self.periodic_work.check_backlog()
        return revision

    def collect_operations(self, view: View, *, serializable: bool) -> CollectedOperations:
        """Return an empty source of changes for a transaction that reads ``view``."""
        # The commits of a branch are serializable in any case, and its merge depends on its changes only.
        records = serializable and not revisions.is_branch(view.revision)
        return CollectedOperations(self.reader, view, ReadSet() if records else None)

    def commit_on(
        self,
        view: View,
        source: ChangeSource,
        message: str,
        begun: Callable[[int], None] | None = None,
        *,
        wait_for_winner: bool = False,
    ) -> int:
        """Commit once on a given base; see :meth:`Committer.on_base`."""
        revision = self._committer.on_base(view, source, message, begun=begun, wait_for_winner=wait_for_winner)
        self.periodic_work.check_backlog()
        return revision

    def outcome(self, revision: int) -> Outcome:
        """Return the outcome of a revision, resolving it first if this instance has deferred it.

        Raises RevisionCollectedError if it was decided so long ago that it is no longer recorded.
        """
        if revisions.is_branch(revision):
            self.outcomes.resolve_pending(reports_damage=False)
            return self.branches.outcome(revision)
        return self.outcomes.final_outcome(revision)

    # --- branches ----------------------------------------------------------------------------------------

    def begin_branch(self, base: View, message: str = "") -> int:
        """Create a branch on a view of trunk; see :meth:`Branches.begin`."""
        return self.branches.begin(base, message)

    def require_branch_head(self, revision: int) -> None:
        """Raise BranchError unless a branch revision is the newest of a branch that has not ended."""
        self.branches.require_head(revision)

    def branch(self, revision: int) -> BranchState:
        """Return a branch revision: its view, its view of trunk, and its own revisions; see :meth:`Branches.find`."""
        return self.branches.find(revision)

    def commit_on_branch(
        self,
        revision: int,
        source: ChangeSource,
        message: str,
        begun: Callable[[int], None] | None = None,
    ) -> int:
        """Commit on the newest revision of a branch; see :meth:`Branches.commit`."""
        return self.branches.commit(revision, source, message, begun)

    def merge_branch(self, revision: int, message: str | None, *, abandons: bool = False) -> int:
        """Commit the net effect of a branch to trunk as one revision; see :meth:`Branches.merge`.

        Polls first, unless a poll began within the last :attr:`max_poll_age` seconds.
        """
        self.poll_unless_recent()
        return self.branches.merge(revision, message, abandons=abandons)

    def rebase_branch(self, revision: int, base: View, message: str | None = None) -> int:
        """Move a branch to another view of trunk; return its newest revision there; see :func:`rebase.rebase`."""
        return rebase.rebase(self.branches, revision, base, message)

    def reset_branch(self, revision: int, ancestor: int) -> int:
        """Reset a branch to one of its earlier revisions; see :meth:`Branches.reset`."""
        return self.branches.reset(revision, ancestor)

    def abandon_branch(self, revision: int) -> None:
        """End a branch without merging it; see :meth:`Branches.abandon`."""
        self.branches.abandon(revision)

    def conflict_markers(self, revision: int) -> list[str]:
        """Return the paths of the conflict markers at a branch revision, which prevent a merge."""
        return self.branches.markers(self.branch(revision))

    def open_branches(self) -> list[OpenBranch]:
        """Return the branches that have not ended; see :func:`open_branches`. Open branches are above the horizon."""
        return open_branches(self.store, self.runtime, self.settings, self.journal.fence.horizon)

    def sweep_branches(self, retention_ms: int | None) -> list[int]:
        """Abandon old branches and delete the cells of ended ones; see :meth:`Branches.sweep`."""
        return self.branches.sweep(retention_ms)

    # --- background work ---------------------------------------------------------------------------------

    def maintain(self) -> None:
        """Run periodic maintenance; see :meth:`PeriodicWork.run`."""
        self.periodic_work.run()

    def end_attempts(self, seconds: float) -> None:
        """Let no further attempt to commit begin, and wait for those of other threads; see :meth:`Attempts.end`."""
        self._committer.attempts.end(seconds)

    def close(self) -> None:
        """Resolve this instance's revisions and release its machine id, as far as the store can be reached.

        A store that is out of reach or already closed is not an error: the lease expires, and other instances then
        recover this instance's revisions.
        """
        self.periodic_work.end()
