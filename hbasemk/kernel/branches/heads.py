"""How branches end: the head of a branch and the compare-and-sets that move it, and the sweep of what ended branches left.

A branch ends when it is merged, rebased to another one, abandoned, or given up because nobody has touched it for a time.
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
"""How long an ended branch can still be read by whoever knows a revision of it, unless a sweep is told a shorter time."""


class Head(NamedTuple):
    """What a branch's first row tells of its head: the branch's ``newest`` revision and, once it has ended, how.

    ``how`` is empty before that; ``into`` is what it was merged as or rebased to. ``newest`` is None where an older version
    of this library ended it, which did not keep that.
    """

    how: bytes
    newest: int | None
    into: int | None = None

    def encode(self) -> bytes:
        """The bytes of the cell."""
        told = (one.to_bytes(8, "big") for one in (self.into, self.newest) if one is not None)
        return self.how + b"".join(told)

    def __str__(self) -> str:
        """What it says of the branch, in words."""
        if self.how == ABANDONED:
            return "its branch was abandoned"
        if self.into is not None:
            how = "merged into trunk as" if self.how == MERGED else "rebased to"
            return f"its branch has been {how} {revisions.to_text(self.into)}"
        if self.newest is None:
            return "its branch has moved on"
        return f"its branch goes on at {revisions.to_text(self.newest)}"


def decode(data: bytes) -> Head | None:
    """Read the cell of a branch's head; None when it is damaged."""
    how = b"" if len(data) == 8 else data[:1]
    told = [int.from_bytes(data[at : at + 8], "big") for at in range(len(how), len(data), 8)]
    if (len(data) - len(how)) % 8 or any(one >= 1 << 63 for one in told):
        return None
    if not how or (how == ABANDONED and len(told) < 2):
        return Head(how, told[0] if told else None)
    if how in (MERGED, REBASED) and 1 <= len(told) <= 2:
        return Head(how, told[1] if len(told) == 2 else None, told[0])
    return None


def _has_ended(data: bytes) -> bool:
    head = decode(data)
    return head is not None and head.how != b""


@contextmanager
def _noted(made: int, damaged: list[FormatError]) -> Iterator[None]:
    """Lets the rest go on where a revision's changes cannot be read, and keeps the error for the end."""
    try:
        yield
    except FormatError as error:
        text = revisions.to_text(made)
        damaged.append(FormatError(f"the cells of the branch revision {text} stay: {error}"))


class BranchEnds:
    """The heads of branches, for one instance, and its merges that could not be told to their branches yet."""

    def __init__(self, store: Store, runtime: Runtime, outcomes: Outcomes, lease: Lease) -> None:
        self._store = store
        self._runtime = runtime
        self._outcomes = outcomes
        self._lease = lease
        self._merged: dict[int, tuple[int, bytes]] = {}
        self._in_doubt: dict[int, tuple[int, int]] = {}

    # --- the head ----------------------------------------------------------------------------------------

    def head(self, root: int) -> bytes | None:
        """What the branch's first row tells of its head; None when there is no such branch. One round trip."""
        get = Get(schema.revision_key(root), columns=(schema.BRANCH_HEAD,))
        row = again(self._runtime, lambda: self._store.read(schema.JOURNAL, [get]))[0]
        return row.cells[0].value if row.cells else None

    def move(self, root: int, expected: bytes, wanted: bytes, in_doubt: Callable[[], None] | None = None) -> bool:
        """Let the head be ``wanted`` if it is ``expected``; whether it is now.

        ``in_doubt`` is called when the store may have applied it without saying so, before anything else is asked.
        """
        put = Put(schema.revision_key(root), [NewCell(*schema.BRANCH_HEAD, wanted)])

        def compare_and_set() -> bool:
            return self._store.check_and_write(schema.JOURNAL, schema.BRANCH_HEAD, expected, put)

        if again(self._runtime, compare_and_set, in_doubt):
            return True
        # After a lost reply the second attempt finds the first one's value.
        if in_doubt is not None:
            in_doubt()
        return self.head(root) == wanted

    def told(self, root: int) -> Head | None:
        """The head, read. One round trip. Raises FormatError when it is damaged."""
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

    def abandoned(self, root: int, on: int) -> bool:
        """Let a branch end as it is; whether it has."""
        return self.move(root, schema.revision_key(on), Head(ABANDONED, on).encode())

    def rebased(self, root: int, on: int, into: int) -> bool:
        """Let a branch end because it goes on as another one; whether it has."""
        return self.move(root, schema.revision_key(on), Head(REBASED, on, into).encode())

    def merged(self, root: int, on: int, made: int) -> bool:
        """Let a branch end that is merged; False when it could not, for it is no more at ``on``.

        Where the store cannot be reached this is no error, and is done later.
        """
        self._merged[root] = on, Head(MERGED, on, made).encode()
        try:
            return self._end(root)
        except StoreError:
            return True

    def in_doubt(self, root: int, on: int, made: int) -> None:
        """The store went away during a merge: should it turn out to be committed, :meth:`resolve_pending` lets the branch end."""
        self._in_doubt[root] = on, made

    def resolve_pending(self) -> None:
        """Let the branches end that are merged and could not be told so."""
        for root, (on, made) in list(self._in_doubt.items()):
            outcome = self._outcomes.final_outcome(made)
            if outcome is Outcome.PENDING:
                continue
            if outcome is Outcome.COMMITTED:
                self._merged[root] = on, Head(MERGED, on, made).encode()
            self._in_doubt.pop(root, None)
        for root in list(self._merged):
            self._end(root)

    def _end(self, root: int) -> bool:
        told = self._merged.get(root)
        if told is None:
            return True
        on, end = told
        ended = self.move(root, schema.revision_key(on), end)
        self._merged.pop(root, None)
        return ended

    # --- the sweep ---------------------------------------------------------------------------------------

    def sweep(self, retention_ms: int | None) -> dict[int, list[int]]:
        """Give up the branches that nobody has touched for the retention time, and delete what ended ones left.

        For how long goes by the store's clock, like all that one process ends of another's; 0 takes every branch there is,
        None gives up none.
        An ended branch waits no longer than :data:`ENDED_MS`, and where somebody died while sweeping it, not at all. What
        is aborted on a branch that goes on, and its dead writer did not live to roll back, is deleted too. Returns what was
        swept: each branch's first revision with the revisions of it. May be done by several at once, and again. Reads the
        whole journal's branch rows, in batches, and of those that are to stay once more the flags. Raises FormatError, after
        all the rest is done, where what a revision touched is damaged.
        """
        now = self._lease.time()
        server_ms = self._lease.server.at_least(self._runtime.monotonic())
        ended_ms = ENDED_MS if retention_ms is None else min(retention_ms, ENDED_MS)
        heads, unswept = self._all_unswept()
        staying: dict[int, list[int]] = {}
        swept = {}
        damaged: list[FormatError] = []
        for root, made_all in unswept.items():
            head = heads.get(root)
            if head is None:
                continue
            newest = max(revisions.ms_of(made) for made in made_all)
            old = retention_ms is not None and (not retention_ms or newest + retention_ms <= now)
            if not old and not (_has_ended(head.value) and head.timestamp + ended_ms <= server_ms):
                staying[root] = made_all
                continue
            # The decision before anything is deleted: whoever finds what one that dies on the way leaves can go on with it.
            if len(head.value) == 8 and not self.move(root, head.value, ABANDONED + head.value):
                continue
            self._sweep(made_all, damaged)
            swept[root] = made_all
        swept.update(self._finish(heads, staying, damaged))
        if damaged:
            raise damaged[0]
        return swept

    def _all_unswept(self) -> tuple[dict[int, Cell], dict[int, list[int]]]:
        """The cells of all branches' heads, and the revisions of each that are not swept."""
        columns = (schema.BRANCH, schema.BRANCH_HEAD, schema.SWEPT)
        heads: dict[int, Cell] = {}
        unswept: dict[int, list[int]] = {}
        for row in scan_all(self._store, schema.JOURNAL, Scan(None, None, 1000, columns=columns)):
            made = int.from_bytes(row.key, "big")
            told = {(cell.family, cell.qualifier): cell for cell in row.cells}
            if len(row.key) != 8 or not revisions.is_branch(made) or schema.BRANCH not in told:
                # A key of another length is damage that the check reports; nothing else depends on that row.
                continue
            root = int.from_bytes(told[schema.BRANCH].value[:8], "big")
            if schema.SWEPT not in told:
                unswept.setdefault(root, []).append(made)
            if made == root and schema.BRANCH_HEAD in told:
                heads[root] = told[schema.BRANCH_HEAD]
        return heads, unswept

    def _finish(
        self, heads: Mapping[int, Cell], staying: Mapping[int, list[int]], damaged: list[FormatError]
    ) -> dict[int, list[int]]:
        """End what somebody began and did not live to end: the sweep of an ended branch, or the roll-back of one revision."""
        finished = {}
        outcomes = self._outcomes.of_many([made for made_all in staying.values() for made in made_all])
        aborted = {made for made, outcome in outcomes.items() if outcome is Outcome.ABORTED}
        for root, made_all in staying.items():
            head = decode(heads[root].value)
            left = [made for made in made_all if made in aborted]
            if head is None or not head.how:
                # A writer that lives rolls back itself.
                for made in left:
                    with _noted(made, damaged):
                        self._outcomes.recover_if_over(made)
            elif head.newest in aborted or (head.newest not in made_all if head.newest is not None else left):
                # Nobody but a sweep aborts, or sweeps, what was a branch's newest revision.
                self._sweep(made_all, damaged)
                finished[root] = made_all
            else:
                self._sweep(left, damaged)
        return finished

    def _sweep(self, made_all: Sequence[int], damaged: list[FormatError]) -> None:
        for made in sorted(made_all, reverse=True):
            with _noted(made, damaged):
                self._outcomes.abort_own(made, self.changes_of((made,)), clean=False)

    def changes_of(self, own: Sequence[int]) -> list[RowChange]:
        """What branch revisions touched, in their order."""
        told: list[RowChange] = []
        for row in journal_rows(self._store, self._runtime, own):
            told += changes.of_row(row)
        return told
