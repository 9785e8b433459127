"""New branches, commits to branches, and rebases, in one transaction of the store: each is carried out as a whole, or not at all.

Such a rebase takes no claim: its transaction creates the new branch and ends the old one, if nobody has claimed the old one
(``docs/decisions/0057-branches-in-one-transaction.md``). None of them is carried out if this process does not accept the
present schema number; then SchemaVersionError is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hbasemk.format import changes, schema
from hbasemk.format.branch_head import BranchClaim, BranchHead
from hbasemk.kernel import schema_version
from hbasemk.kernel.branches import heads
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.one_transaction import fits_one_call
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.journal import fence
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Decision, Get, NewCell, Put, Row


class BranchTransactions:
    """The changes of branches that one transaction makes."""

    def __init__(self, store: RetryingStore, clock: IdClock, branch_heads: BranchHeads) -> None:
        self._store = store
        self._clock = clock
        self._heads = branch_heads

    def fits(self, plan: ChangeSet, encoded: Iterable[NewCell]) -> bool:
        """Return whether one transaction can write a branch revision: its cells, and its row with the encoded changes."""
        return fits_one_call(self._store, plan) and changes.size_of(encoded) <= changes.INLINE

    def begin(self, first: Put, floor: int) -> bool:
        """Create a branch by its first row; return whether that is done. One round trip.

        ``floor`` is the id up to which its view contains all of trunk. Nothing is written if the row exists, or if a collector
        has announced a horizon above the floor. After a lost reply, False may mean that the first request was applied.
        """
        decision = Decision(schema.JOURNAL, schema.COMMITTED, None, first)
        also = [fence.get_horizon(self._store)]
        return self._carry_out((), decision, lambda rows: fence.allows(self._store, floor, rows[0]), also)

    def commit(
        self,
        root: int,
        revision: int,
        new: int,
        rows: Sequence[Put],
        cells: Sequence[Put],
        in_doubt: Callable[[], None],
    ) -> bool:
        """Make a new revision of a branch the head; return False if the head is not ``revision``.

        ``rows`` and ``cells`` are the journal row and the cells of the new revision, if they are not written yet.
        ``in_doubt`` is called for each lost reply. After it, False, or SchemaVersionError, may mean that the first request was
        applied. One round trip.
        """
        head = NewCell(*schema.BRANCH_HEAD, BranchHead(b"", new).encode())
        decision = _if_newest(root, revision, [head], rows)
        return self._carry_out(cells, decision, in_doubt=in_doubt)

    def rebase(
        self, root: int, end: BranchHead, claim: BranchClaim, floor: int, rows: Sequence[Put], cells: Sequence[Put]
    ) -> bool:
        """Write the rows and the cells of a new branch, and end the branch ``root`` with a claim; return whether that is done.

        ``floor`` is the id up to which the view of the new branch contains all of trunk. Nothing is written if the old branch
        has moved on, if a merge or a rebase has claimed it, or if a collector has announced a horizon above the floor. One round
        trip; one more if nothing is written.
        """

        def is_possible(found: Sequence[Row]) -> bool:
            return self.may_end(claim.revision, found[0]) and fence.allows(self._store, floor, found[1])

        also = (heads.get_first_row(root), fence.get_horizon(self._store))
        decision = _if_newest(root, claim.revision, heads.cells_of_end(end, claim), rows)
        # After a lost reply, the repeated request finds what the first one wrote.
        return self._carry_out(cells, decision, is_possible, also, was_applied=lambda: self._heads.read(root) == end)

    def _carry_out(
        self,
        cells: Sequence[Put],
        decision: Decision,
        accept: Callable[[Sequence[Row]], bool] = lambda _: True,
        also: Sequence[tuple[str, Get]] = (),
        *,
        in_doubt: Callable[[], None] | None = None,
        was_applied: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Carry out one transaction, if ``accept`` returns True for the rows of ``also``; return whether that is done.

        If nothing is written, ``was_applied`` says whether an earlier request was; if not, an unaccepted schema number raises.
        """
        number = schema_version.NumberCheck(self._clock.accepted)

        def judge(rows: Sequence[Row]) -> bool:
            return number(rows[len(also) :]) and accept(rows)

        reads = (*also, *number.rows)
        if self._store.write_if(schema.NODES, cells, (), judge, decision, reads, in_doubt) or was_applied():
            return True
        number.require(self._store.location)
        return False

    def may_end(self, revision: int, row: Row) -> bool:
        """Return whether the first row of a branch has a revision as its newest one, and no claim."""
        return heads.is_unclaimed(revision, row)


def _if_newest(root: int, revision: int, cells: Sequence[NewCell], rows: Sequence[Put]) -> Decision:
    """Return the decision that writes cells to the first row of a branch, and other rows, if a revision is its newest one."""
    head = schema.revision_key(revision)
    return Decision(schema.JOURNAL, schema.BRANCH_HEAD, head, Put(schema.revision_key(root), cells), with_puts=rows)
