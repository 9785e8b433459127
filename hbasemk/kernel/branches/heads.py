"""Branch heads: the compare-and-sets that move them and end branches, and the sweep of ended branches.

A branch ends when it is merged, rebased to another branch or abandoned, also by a sweep after a time without commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from hbasemk.errors import FormatError, StoreError
from hbasemk.format import changes, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.batches import journal_rows
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.outcomes import Outcome, Outcomes
from hbasemk.kernel.retry import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Cell, Get, NewCell, Put, Scan, Store, scan_all

MERGED: Final = b"m"
REBASED: Final = b"r"
ABANDONED: Final = b"a"
ENDED_MS: Final = 3600 * 1000
"""Milliseconds for which the revisions of an ended branch stay readable, unless a sweep is given a shorter time."""


class Head(NamedTuple):
    """The head in a branch's first row: the branch's ``newest`` revision and, once it has ended, how it ended.

    ``how`` is empty before the end. ``into`` is the revision that it was merged as or rebased to. ``newest`` is None if an
    older version of this library, which did not store it, ended the branch.
    """

    how: bytes
    newest: int | None
    into: int | None = None

    def encode(self) -> bytes:
        """Return the value of the cell."""
        ids = (one.to_bytes(8, "big") for one in (self.into, self.newest) if one is not None)
        return self.how + b"".join(ids)

    def __str__(self) -> str:
        """Describe the state of the branch."""
        if self.how == ABANDONED:
            return "its branch was abandoned"
        if self.into is not None:
            how = "merged into trunk as" if self.how == MERGED else "rebased to"
            return f"its branch has been {how} {revisions.to_text(self.into)}"
        if self.newest is None:
            return "its branch has moved on"
        return f"its branch continues at {revisions.to_text(self.newest)}"


def decode(data: bytes) -> Head | None:
    """Decode the cell of a branch's head; return None if it is damaged."""
    how = b"" if len(data) == 8 else data[:1]
    ids = [int.from_bytes(data[at : at + 8], "big") for at in range(len(how), len(data), 8)]
    if (len(data) - len(how)) % 8 or any(one >= 1 << 63 for one in ids):
        return None
    if not how or (how == ABANDONED and len(ids) < 2):
        return Head(how, ids[0] if ids else None)
    if how in (MERGED, REBASED) and 1 <= len(ids) <= 2:
        return Head(how, ids[1] if len(ids) == 2 else None, ids[0])
    return None


def _has_ended(data: bytes) -> bool:
    head = decode(data)
    return head is not None and head.how != b""


@contextmanager
def _collect_damage(revision: int, damaged: list[FormatError]) -> Iterator[None]:
    """Continue after a revision whose changes cannot be decoded; collect the error."""
    try:
        yield
    except FormatError as error:
        text = revisions.to_text(revision)
        damaged.append(FormatError(f"the cells of branch revision {text} cannot be deleted: {error}"))


class BranchHeads:
    """The branch heads, and this instance's merges whose heads are not updated yet."""

    def __init__(self, store: Store, runtime: Runtime, outcomes: Outcomes, lease: Lease) -> None:
        self._store = store
        self._runtime = runtime
        self._outcomes = outcomes
        self._lease = lease
        self._merged: dict[int, tuple[int, bytes]] = {}
        self._in_doubt: dict[int, tuple[int, int]] = {}

    # --- the head ----------------------------------------------------------------------------------------

    def head(self, root: int) -> bytes | None:
        """Return the encoded head of a branch; None if the branch does not exist. One round trip."""
        get = Get(schema.revision_key(root), columns=(schema.BRANCH_HEAD,))
        row = again(self._runtime, lambda: self._store.read(schema.JOURNAL, [get]))[0]
        return row.cells[0].value if row.cells else None

    def move(self, root: int, expected: bytes, wanted: bytes, in_doubt: Callable[[], None] | None = None) -> bool:
        """Change the head from ``expected`` to ``wanted`` by compare-and-set; return whether it is ``wanted`` now.

        Calls ``in_doubt`` if a reply was lost, before the next call to the store.
        """
        put = Put(schema.revision_key(root), [NewCell(*schema.BRANCH_HEAD, wanted)])

        def compare_and_set() -> bool:
            return self._store.check_and_write(schema.JOURNAL, schema.BRANCH_HEAD, expected, put)

        if again(self._runtime, compare_and_set, in_doubt):
            return True
        # After a lost reply, the retry finds the value that the first attempt wrote.
        if in_doubt is not None:
            in_doubt()
        return self.head(root) == wanted

    def read(self, root: int) -> Head | None:
        """Read and decode the head of a branch. One round trip. Raises FormatError if it is damaged."""
        data = self.head(root)
        found = None if data is None else decode(data)
        if data is not None and found is None:
            text = revisions.to_text(root)
            raise schema.damaged(
                f"the head {data[:20].hex()!r} of branch {text} is damaged",
                schema.JOURNAL,
                schema.revision_key(root),
                schema.BRANCH_HEAD,
            )
        return found

    # --- ends --------------------------------------------------------------------------------------------

    def abandon(self, root: int, newest: int) -> bool:
        """End a branch as abandoned; return whether it has ended."""
        return self.move(root, schema.revision_key(newest), Head(ABANDONED, newest).encode())

    def close_rebased(self, root: int, newest: int, into: int) -> bool:
        """End a branch as rebased to another branch; return whether it has ended."""
        return self.move(root, schema.revision_key(newest), Head(REBASED, newest, into).encode())

    def close_merged(self, root: int, newest: int, revision: int) -> bool:
        """End a branch as merged; return False if its head is not at ``on`` any more.

        After a store error, returns True; :meth:`resolve_pending` retries.
        """
        self._merged[root] = newest, Head(MERGED, newest, revision).encode()
        try:
            return self._close(root)
        except StoreError:
            return True

    def record_doubt(self, root: int, newest: int, revision: int) -> None:
        """Record a merge with an unknown outcome; :meth:`resolve_pending` ends the branch if it committed."""
        self._in_doubt[root] = newest, revision

    def resolve_pending(self) -> None:
        """Retry closing merged branches whose head could not be updated."""
        for root, (newest, revision) in list(self._in_doubt.items()):
            outcome = self._outcomes.final_outcome(revision)
            if outcome is Outcome.PENDING:
                continue
            if outcome is Outcome.COMMITTED:
                self._merged[root] = newest, Head(MERGED, newest, revision).encode()
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

    def sweep(self, retention_ms: int | None) -> dict[int, list[int]]:
        """Abandon branches without commits for the retention time, and delete the cells of ended branches.

        Ages are measured by the store's clock. ``retention_ms`` 0 abandons every branch, None abandons none. The sweep
        deletes an ended branch after at most :data:`ENDED_MS`, and immediately if an earlier sweep of it was interrupted. It
        also deletes aborted revisions of live branches that a dead writer did not roll back.

        Returns the swept revisions by each branch's first revision. The sweep is idempotent and may run concurrently. It
        reads all branch rows of the journal in batches, and again the flags of the rows that stay. Raises FormatError at
        the end if the changes of a revision are damaged.
        """
        now = self._lease.time()
        server_ms = self._lease.server.at_least(self._runtime.monotonic())
        ended_ms = ENDED_MS if retention_ms is None else min(retention_ms, ENDED_MS)
        heads, unswept = self._all_unswept()
        staying: dict[int, list[int]] = {}
        swept = {}
        damaged: list[FormatError] = []
        for root, own_revisions in unswept.items():
            head = heads.get(root)
            if head is None:
                continue
            newest = max(revisions.ms_of(revision) for revision in own_revisions)
            old = retention_ms is not None and (not retention_ms or newest + retention_ms <= now)
            if not old and not (_has_ended(head.value) and head.timestamp + ended_ms <= server_ms):
                staying[root] = own_revisions
                continue
            # End the branch before deleting anything, so that another sweep can continue after a crash.
            if len(head.value) == 8 and not self.move(root, head.value, ABANDONED + head.value):
                continue
            self._sweep(own_revisions, damaged)
            swept[root] = own_revisions
        swept.update(self._finish(heads, staying, damaged))
        if damaged:
            raise damaged[0]
        return swept

    def _all_unswept(self) -> tuple[dict[int, Cell], dict[int, list[int]]]:
        """Return the head cells of all branches, and the unswept revisions of each branch."""
        columns = (schema.BRANCH, schema.BRANCH_HEAD, schema.SWEPT)
        heads: dict[int, Cell] = {}
        unswept: dict[int, list[int]] = {}
        for row in scan_all(self._store, schema.JOURNAL, Scan(None, None, 1000, columns=columns)):
            revision = int.from_bytes(row.key, "big")
            cells = {(cell.family, cell.qualifier): cell for cell in row.cells}
            if len(row.key) != 8 or not revisions.is_branch(revision) or schema.BRANCH not in cells:
                # The integrity check reports a key of another length; nothing else depends on that row.
                continue
            root = int.from_bytes(cells[schema.BRANCH].value[:8], "big")
            if schema.SWEPT not in cells:
                unswept.setdefault(root, []).append(revision)
            if revision == root and schema.BRANCH_HEAD in cells:
                heads[root] = cells[schema.BRANCH_HEAD]
        return heads, unswept

    def _finish(
        self, heads: Mapping[int, Cell], staying: Mapping[int, list[int]], damaged: list[FormatError]
    ) -> dict[int, list[int]]:
        """Finish the work of dead instances: sweeps of ended branches, and roll-backs of single revisions."""
        finished = {}
        outcomes = self._outcomes.of_many(
            [revision for own_revisions in staying.values() for revision in own_revisions]
        )
        aborted = {revision for revision, outcome in outcomes.items() if outcome is Outcome.ABORTED}
        for root, own_revisions in staying.items():
            head = decode(heads[root].value)
            aborted_revisions = [revision for revision in own_revisions if revision in aborted]
            if head is None or not head.how:
                # A live writer rolls back its own revisions.
                for revision in aborted_revisions:
                    with _collect_damage(revision, damaged):
                        self._outcomes.recover_if_over(revision)
            elif head.newest in aborted or (
                head.newest not in own_revisions if head.newest is not None else aborted_revisions
            ):
                # Only a sweep aborts or sweeps the newest revision of a branch.
                self._sweep(own_revisions, damaged)
                finished[root] = own_revisions
            else:
                self._sweep(aborted_revisions, damaged)
        return finished

    def _sweep(self, own_revisions: Sequence[int], damaged: list[FormatError]) -> None:
        for revision in sorted(own_revisions, reverse=True):
            with _collect_damage(revision, damaged):
                self._outcomes.abort_own(revision, self.changes_of((revision,)), clean=False)

    def changes_of(self, own: Sequence[int]) -> list[RowChange]:
        """Return the changes of branch revisions, in order."""
        touched: list[RowChange] = []
        for row in journal_rows(self._store, self._runtime, own):
            touched += changes.of_row(row)
        return touched
