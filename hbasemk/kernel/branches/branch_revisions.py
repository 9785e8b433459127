"""The revisions of branches: finding one, whether it is the newest of its branch, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.errors import UnknownRevisionError
from hbasemk.format import revisions, schema
from hbasemk.format.branch_head import MERGED, REBASED, BranchHead
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.branches import branch_rows
from hbasemk.kernel.branches.cache import BranchCache, BranchState
from hbasemk.kernel.branches.heads import BranchHeads, require_newest
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column


class BranchRevisions:
    """The branch revisions of a repository, with a cache of those that one instance uses."""

    def __init__(self, store: RetryingStore, runtime: Runtime, journal: Journal, heads: BranchHeads) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._heads = heads
        self._cache = BranchCache(runtime)
        journal.require_branch = self.require_readable

    def find(self, revision: int) -> BranchState:
        """Return a branch revision; see :meth:`Branches.find`."""
        found = self._cache.get(revision)
        if found is None:
            return self._read(revision)
        if not self._cache.is_trusted(revision) and not self._is_unswept(revision, found.root):
            raise self._unknown(revision)
        return found

    def require_readable(self, view: View) -> None:
        """Raise UnknownRevisionError if a sweep may have deleted what the view of a branch revision shows.

        Call it after a read, before its result is used. At most one round trip every five seconds for an open branch, and one
        for each call for an ended one.
        """
        revision = view.revision
        if not self._cache.is_trusted(revision) and not self._is_unswept(revision, min(view.own)):
            text = revisions.to_text(revision)
            raise UnknownRevisionError(
                f"the snapshot at branch revision {text} of the repository at {self._store.location} can no longer be read: "
                "its branch has ended, and its data has been deleted. Read a snapshot of trunk, or begin a new branch.",
                revision=text,
            )

    def _is_unswept(self, revision: int, root: int) -> bool:
        """Return whether no sweep has deleted anything that a branch revision shows. One round trip."""
        began = self._runtime.monotonic()
        own, first = journal_rows(self._store, [revision, root], (schema.ABORT, schema.BRANCH_HEAD))
        # A sweep takes the newest revisions first: if this one is not swept, neither is anything that it shows.
        if own.value(schema.ABORT) != schema.NO:
            return False
        self._record_head(revision, first, began)
        return True

    def _record_head(self, revision: int, first: JournalRow, began: float) -> None:
        """Let readers trust a branch revision if its branch is open, by the first row, whose read began at ``began``."""
        data = first.value(schema.BRANCH_HEAD)
        head = None if data is None else BranchHead.decode(data)
        if head is not None and not head.how:
            self._cache.record_open(revision, began)

    def find_cached(self, revision: int) -> BranchState:
        """Return a branch revision from a cache entry of any age, or from the store."""
        found = self._cache.get(revision)
        return self._read(revision) if found is None else found

    def add(self, state: BranchState, began: float) -> None:
        """Cache a revision that this instance has just made, so that its next commit need not read it.

        ``began`` is a time of the monotonic clock before the call to the store that made it the head of its branch.
        """
        self._cache.keep(state.view.revision, state)
        self._cache.record_open(state.view.revision, began)
        self._cache.record_made(state.root, state.view.revision)

    def drop(self, revision: int) -> None:
        """Remove a revision that was swept from the cache."""
        self._cache.drop(revision)

    def newest_made(self, revision: int) -> BranchState | None:
        """Return a branch revision if this instance has made it, and no later one of its branch, and has found it open lately.

        Another process may have moved the head of the branch meanwhile. No round trip.
        """
        found = self._cache.get(revision)
        if found is None or self._cache.newest_made(found.root) != revision or not self._cache.is_trusted(revision):
            return None
        return found

    def forget_made(self, root: int) -> None:
        """Forget which revision of a branch this instance has made last: the branch ends, or has another head."""
        self._cache.forget_made(root)

    def newest(self, revision: int, *also: Column) -> tuple[BranchState, JournalRow]:
        """Return a branch revision, and the row of its branch as it was at one moment: head, claim and the columns ``also``.

        Raises BranchError unless it is the newest of its branch.
        """
        # The head shows whether the revision has been swept, so a cache entry of any age serves.
        found = self.find_cached(revision)
        began = self._runtime.monotonic()
        row = self._heads.row(found.root, *also)
        require_newest(revision, row)
        self._cache.record_open(revision, began)
        return found, row

    def expected(self, revision: int) -> tuple[BranchState, JournalRow] | None:
        """Return what :meth:`newest` most likely would, by what this instance has written; None if it did not make the branch.

        Another process may have moved the head of the branch, or claimed it. No round trip.
        """
        found = self.newest_made(revision)
        if found is None or found.begun is None:
            return None
        return found, branch_rows.expected_first_row(found.root, revision, found.begun)

    def outcome(self, revision: int) -> Outcome:
        """Return whether a branch revision ever became its branch's head; after a merge or rebase this never changes.

        Raises RevisionCollectedError if the branch has ended so long ago that its rows may be deleted.
        """
        columns = (schema.BRANCH, schema.COMMITTED, schema.ABORT)
        row = self._row(revision, columns)
        branch = row.branch
        if branch is None:
            self._require_kept(row)
            return Outcome.ABORTED
        root = branch[0]
        first = self._heads.row(root)
        self._require_recorded(first, row, schema.BRANCH)
        head = first.branch_head
        if head is None or head.newest is None:
            # An older version of the library ended the branch and did not store its newest revision.
            return Outcome.ABORTED if row.aborted else Outcome.COMMITTED
        newest = self._row(head.newest, columns)
        self._require_recorded(newest, first, schema.BRANCH_HEAD)
        if head.how not in (MERGED, REBASED) and (row.aborted or newest.aborted):
            return Outcome.ABORTED
        return Outcome.COMMITTED if revision in (newest.branch or ()) else Outcome.ABORTED

    def _require_kept(self, row: JournalRow) -> None:
        """Raise RevisionCollectedError if a row is missing that a collector may have deleted."""
        if not row.cells:
            self._journal.require_recorded(row.revision)

    def _require_recorded(self, row: JournalRow, by: JournalRow, column: Column) -> None:
        """Raise an error if a row is missing that a column of another row names.

        Raises RevisionCollectedError if a collector may have deleted it, FormatError otherwise.
        """
        self._require_kept(row)
        if not row.cells:
            text = revisions.to_text(row.revision)
            raise by.damaged(f"the revision {text} must be in the journal", column)

    def common(self, state: BranchState, revision: int) -> int:
        """Return the newest revision of a branch on which another revision of it builds; a reset may have dropped that one."""
        if revision in state.own:
            return revision
        other = self._row(revision, (schema.BRANCH,)).branch
        if other is None:
            raise self._unknown(revision)
        return max(set(other).intersection(state.own))

    def _read(self, revision: int) -> BranchState:
        """Read and cache a branch revision; raise UnknownRevisionError if there is none."""
        began = self._runtime.monotonic()
        columns = (schema.BRANCH, schema.BRANCH_VIEW, schema.BASE, schema.ABORT, schema.BRANCH_HEAD)
        row = self._row(revision, columns)
        branch = row.branch
        if branch is None or row.aborted:
            raise self._unknown(revision)
        root, *own = branch
        first = row if root == revision else self._row(root, (schema.BRANCH_VIEW, schema.BRANCH_HEAD))
        if not first.cells:
            raise self._unknown(revision)
        base, stored = row.base, first.branch_view
        if base is None:
            raise row.damaged("a branch revision must have a base", schema.BASE)
        if stored is None:
            raise first.damaged("the first revision of a branch must have a view of trunk", schema.BRANCH_VIEW)
        extent, upper = stored
        # Everything below the floor was decided when the branch began; a later poll has seen it.
        self._journal.poll()
        trunk = View.of(base, extent, upper)
        state = BranchState(root, base, tuple(own), trunk, View.of_branch(own, extent, upper))
        self._cache.keep(revision, state)
        self._record_head(revision, first, began)
        return state

    def _row(self, revision: int, columns: Sequence[Column]) -> JournalRow:
        return next(journal_rows(self._store, [revision], columns))

    def _unknown(self, revision: int) -> UnknownRevisionError:
        text = revisions.to_text(revision)
        return UnknownRevisionError(
            f"the repository at {self._store.location} has no branch revision {text}: it never existed, belongs to another "
            "repository, or its branch has ended and its data has been deleted",
            revision=text,
        )
