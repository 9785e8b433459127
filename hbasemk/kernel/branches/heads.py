"""Branch heads: the compare-and-sets that move them and end branches, and the sweep of ended branches.

A branch ends when it is merged, rebased to another branch or abandoned, also by a sweep after a time without commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hbasemk.errors import BranchError, ClosedError, RevisionCollectedError, StoreError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.branch_head import ABANDONED, MERGED, REBASED, BranchClaim, BranchHead, RebaseOf
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.journal.sparse_scan import sparse_rows
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Cell, Column, Get, NewCell, Put, Row, Scan

COLUMNS: Final = (schema.BRANCH_CLAIM, schema.BRANCH_HEAD)
"""The claim and the head of a branch, in its first row."""
ENDED_MS: Final = 3600 * 1000
"""Milliseconds for which the revisions of an ended branch stay readable, unless a sweep is given a shorter time."""


def _has_ended(data: bytes) -> bool:
    head = BranchHead.decode(data)
    return head is not None and head.how != b""


def _is_over(head: Cell, *, is_old: bool, ended_ms: int, server_ms: float) -> bool:
    """Return whether the cells of a branch that is not open can be deleted: it ended ``ended_ms`` ago by the server's clock.

    A damaged head does not show whether the branch has ended; then ``is_old`` decides: no commit for the retention time.
    """
    if not _has_ended(head.value):
        return is_old
    return not ended_ms or head.timestamp + ended_ms <= server_ms


def require_newest(revision: int, row: JournalRow) -> None:
    """Raise BranchError unless ``revision`` is the newest of its branch, by the head in the branch's first row."""
    head = row.branch_head
    if head == (b"", revision, None):
        return
    text = revisions.to_text(revision)
    continues_at = None if head is None else head.continues_at
    raise BranchError(
        f"branch revision {text} is not the newest of its branch: {head or 'its branch has no head'}",
        revision=text,
        continues_at=None if continues_at is None else revisions.to_text(continues_at),
    )


def is_unclaimed(revision: int, row: Row) -> bool:
    """Return whether the first row of a branch, read with :data:`COLUMNS`, has a revision as its newest one, and no claim."""
    return [cell.value for cell in row.cells] == [schema.revision_key(revision)]


def get_first_row(root: int) -> tuple[str, Get]:
    """Return the read of the head of a branch and the claim on it, for a transaction: the table, and the get."""
    return schema.JOURNAL, Get(schema.revision_key(root), columns=COLUMNS)


def cells_of_end(end: BranchHead, claim: BranchClaim) -> list[NewCell]:
    """Return the cells with which a transaction ends a branch: with a claim, so that one that is on its way does not apply."""
    return [NewCell(*schema.BRANCH_CLAIM, claim.encode()), NewCell(*schema.BRANCH_HEAD, end.encode())]


def _undeletable(revision: int) -> str:
    return f"the cells of branch revision {revisions.to_text(revision)} cannot be deleted"


class BranchHeads:
    """The branch heads, and this instance's merges whose heads are not updated yet."""

    def __init__(self, store: RetryingStore, runtime: Runtime, outcomes: Outcomes, lease: Lease) -> None:
        self._store = store
        self._runtime = runtime
        self._outcomes = outcomes
        self._lease = lease
        self._merged: dict[int, tuple[int, bytes]] = {}
        self._in_doubt: dict[int, tuple[int, int]] = {}

    # --- the head ----------------------------------------------------------------------------------------

    def head(self, root: int) -> bytes | None:
        """Return the encoded head of a branch; None if the branch does not exist. One round trip."""
        return self.row(root).value(schema.BRANCH_HEAD)

    def row(self, root: int, *also: Column) -> JournalRow:
        """Read the head of a branch, the claim on it and the columns ``also``, as they were at one moment. One round trip."""
        return next(journal_rows(self._store, [root], columns=(*COLUMNS, *also)))

    def move(self, root: int, expected: bytes, new: bytes, in_doubt: Callable[[], None] | None = None) -> bool:
        """Change the head from ``expected`` to ``new`` by compare-and-set; return whether it is ``new`` now.

        Calls ``in_doubt`` if a reply was lost, before the next call to the store.
        """
        put = Put(schema.revision_key(root), [NewCell(*schema.BRANCH_HEAD, new)])
        if self._store.check_and_write(schema.JOURNAL, schema.BRANCH_HEAD, expected, put, in_doubt=in_doubt):
            return True
        # After a lost reply, the retry finds the value that the first attempt wrote.
        if in_doubt is not None:
            in_doubt()
        return self.head(root) == new

    def read(self, root: int) -> BranchHead | None:
        """Read and decode the head of a branch. One round trip. Raises FormatError if it is damaged."""
        return self.row(root).branch_head

    # --- ends --------------------------------------------------------------------------------------------

    def abandon(self, root: int, newest: int) -> bool:
        """End a branch as abandoned; return whether it has ended."""
        return self.move(root, schema.revision_key(newest), BranchHead(ABANDONED, newest).encode())

    def abandon_always(self, root: int) -> None:
        """End a branch as abandoned at its newest revision, unless it has ended."""
        while (head := self.read(root)) is not None and not head.how and head.newest is not None:
            if self.abandon(root, head.newest):
                return

    def close_rebased(self, root: int, newest: int, into: int) -> bool:
        """End a branch as rebased to another branch; return whether it has ended."""
        return self.move(root, schema.revision_key(newest), BranchHead(REBASED, newest, into).encode())

    def close_merged(self, root: int, newest: int, revision: int) -> bool:
        """End a branch as merged; return False if its head is not ``newest`` any more.

        After a store error, returns True; :meth:`resolve_pending` retries. If the store has been closed meanwhile, the next
        merge or rebase of the branch ends it.
        """
        self._merged[root] = newest, BranchHead(MERGED, newest, revision).encode()
        try:
            return self._close(root)
        except (StoreError, ClosedError):
            return True

    def record_doubt(self, root: int, newest: int, revision: int) -> None:
        """Record a merge with an unknown outcome; :meth:`resolve_pending` ends the branch if it committed."""
        self._in_doubt[root] = newest, revision

    def resolve_pending(self) -> None:
        """Retry closing merged branches whose head could not be updated."""
        for root, (newest, revision) in list(self._in_doubt.items()):
            try:
                outcome = self._outcomes.final_outcome(revision)
            except RevisionCollectedError:
                # Only a branch that has ended and is swept lets the horizon pass its merge.
                self._in_doubt.pop(root, None)
                continue
            if outcome is Outcome.PENDING:
                continue
            if outcome is Outcome.COMMITTED:
                self._merged[root] = newest, BranchHead(MERGED, newest, revision).encode()
            self._in_doubt.pop(root, None)
        for root in list(self._merged):
            self._close(root)

    def _close(self, root: int) -> bool:
        pending = self._merged.get(root)
        if pending is None:
            return True
        newest, end = pending
        ended = self.move(root, schema.revision_key(newest), end)
        self._merged.pop(root, None)
        return ended

    # --- the sweep ---------------------------------------------------------------------------------------

    def sweep(
        self,
        retention_ms: int | None,
        above: int = 0,
        *,
        deletes: bool = True,
        between: Callable[[], object] | None = None,
    ) -> dict[int, list[int]]:
        """Abandon branches without commits for the retention time, and delete the cells of branches that ended earlier.

        Ages are measured by the store's clock. ``retention_ms`` 0 abandons every branch, None abandons none. The sweep
        deletes a branch :data:`ENDED_MS` after its end, or ``retention_ms`` after it if that is shorter. So a later sweep
        deletes what this one abandons, unless ``retention_ms`` is 0. If an earlier sweep of a branch was interrupted, this one
        finishes it immediately. It also deletes aborted revisions of live branches that a dead writer did not roll back. If
        ``deletes`` is False, the sweep deletes nothing and only abandons branches.

        Returns the revisions of the branches that it abandoned, or whose cells it deleted, by the first revision. The sweep is
        idempotent and may run concurrently. It reads the branch rows of the journal above an id (:func:`sparse_rows`), and
        again the flags of the rows that stay. A branch that is not swept is above the horizon, so below it only a request that
        arrived late can have left a row. ``between`` is called between two calls of this scan. Raises FormatError at the end if
        the changes of a revision are damaged.
        """
        now = self._lease.time()
        server_ms = self._lease.server.at_least(self._runtime.monotonic())
        ended_ms = ENDED_MS if retention_ms is None else min(retention_ms, ENDED_MS)
        heads, unswept = self._all_unswept(above, between)
        staying: dict[int, list[int]] = {}
        swept = {}
        damage = Damage()
        for root, own_revisions in unswept.items():
            head = heads.get(root)
            if head is None:
                continue
            newest = max(revisions.ms_of(revision) for revision in own_revisions)
            is_old = retention_ms is not None and (not retention_ms or newest + retention_ms <= now)
            if is_old and len(head.value) == 8:
                # End the branch before deleting anything, so that another sweep can continue after a crash. Readers that took
                # a snapshot from the open branch have as long as those of any ended branch.
                if not self.move(root, head.value, ABANDONED + head.value):
                    continue
                if ended_ms or not deletes:
                    swept[root] = own_revisions
                    continue
            elif not deletes or not _is_over(head, is_old=is_old, ended_ms=ended_ms, server_ms=server_ms):
                staying[root] = own_revisions
                continue
            self._record_end_of_rebase(root, head)
            self._sweep(own_revisions, damage)
            swept[root] = own_revisions
        if deletes:
            swept.update(self._finish(heads, staying, damage))
        damage.report()
        return swept

    def _all_unswept(
        self, above: int = 0, between: Callable[[], object] | None = None
    ) -> tuple[dict[int, Cell], dict[int, list[int]]]:
        """Return the head cells of all branches above an id, and the unswept revisions of each branch."""
        columns = (schema.BRANCH, schema.BRANCH_HEAD, schema.SWEPT)
        scan = Scan(schema.revision_key(above + 1), None, 1000, columns=columns)
        rows = sparse_rows(self._store, self._runtime, self._lease.settings, scan, between)
        heads: dict[int, Cell] = {}
        unswept: dict[int, list[int]] = {}
        for row in journal_row.decode(rows):
            root, head = row.branch_root, row.cell(schema.BRANCH_HEAD)
            if root is None or not row.is_branch:
                continue
            if row.swept is None:
                unswept.setdefault(root, []).append(row.revision)
            if row.revision == root and head is not None:
                heads[root] = head
        return heads, unswept

    def _finish(
        self, heads: Mapping[int, Cell], staying: Mapping[int, list[int]], damage: Damage
    ) -> dict[int, list[int]]:
        """Finish the work of dead instances: sweeps of ended branches, and roll-backs of single revisions."""
        finished = {}
        outcomes = self._outcomes.of_many(
            [revision for own_revisions in staying.values() for revision in own_revisions]
        )
        aborted = {revision for revision, outcome in outcomes.items() if outcome is Outcome.ABORTED}
        for root, own_revisions in staying.items():
            head = BranchHead.decode(heads[root].value)
            aborted_revisions = [revision for revision in own_revisions if revision in aborted]
            if head is None or not head.how:
                # A live writer rolls back its own revisions.
                for revision in aborted_revisions:
                    with damage.kept(_undeletable(revision)):
                        self._outcomes.recover_if_over(revision)
            elif head.newest in aborted or (
                head.newest not in own_revisions if head.newest is not None else aborted_revisions
            ):
                # Only a sweep aborts or sweeps the newest revision of a branch.
                self._record_end_of_rebase(root, heads[root])
                self._sweep(own_revisions, damage)
                finished[root] = own_revisions
            else:
                self._sweep(aborted_revisions, damage)
        return finished

    def _record_end_of_rebase(self, root: int, cell: Cell) -> None:
        """Record in the branch to which a branch was rebased that the rebase is over: the head that shows it will be deleted.

        No round trip for a branch that was not rebased, else two; one more if nobody has recorded it, and the new branch is open.
        """
        head = BranchHead.decode(cell.value)
        if head is None or head.how != REBASED or head.into is None:
            return
        new = next(journal_rows(self._store, [head.into], (schema.BRANCH,))).branch_root
        if new is None:
            return
        row = self.row(new, schema.REBASE_OF)
        link, its_head = row.rebase_of, row.branch_head
        # Nobody merges or rebases a branch that has ended.
        is_open = its_head is None or its_head.how == b""
        if link is not None and link.root == root and not link.is_over and is_open:
            self.record_end_of_rebase(new, link)

    def record_end_of_rebase(self, root: int, link: RebaseOf) -> None:
        """Record in the first row of the new branch ``root`` that its rebase is over. One round trip."""
        cell = NewCell(*schema.REBASE_OF, link._replace(is_over=True).encode())
        # A put without a comparison would create a row that a collector has deleted.
        put = Put(schema.revision_key(root), [cell])
        self._store.check_and_write(schema.JOURNAL, schema.REBASE_OF, link.encode(), put)

    def _sweep(self, own_revisions: Sequence[int], damage: Damage) -> None:
        for revision in sorted(own_revisions, reverse=True):
            is_swept = False
            with damage.kept(_undeletable(revision)):
                self._outcomes.abort_own(revision, self.changes_of((revision,)), clean=False)
                is_swept = True
            if not is_swept:
                # A revision with damaged changes is not aborted, so readers of it still see the earlier ones.
                return

    def changes_of(self, own: Sequence[int]) -> list[RowChange]:
        """Return the changes of branch revisions, in order."""
        touched: list[RowChange] = []
        for row in journal_rows(self._store, own):
            touched += row.changes
        return touched
