"""Claims: of the merges and rebases of a branch, at most one takes effect.

Two merges of one branch could both commit: adjusts do not conflict, and what the first one added may be removed again before
the second. A merge that cannot end its branch in its own transaction therefore claims the branch before it decides, and each
rebase before it writes. A claim is a compare-and-set on the first row of the branch. It replaces an earlier claim only after it
has made sure that the earlier one never takes effect (``docs/decisions/0035-adjust.md``, ``docs/decisions/0055-merged-once.md``).
"""

from __future__ import annotations

from hbasemk.errors import BranchError
from hbasemk.format import revisions, schema
from hbasemk.format.branch_head import ABANDONED, BranchClaim
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.branches import heads
from hbasemk.kernel.branches.heads import BranchHeads, require_newest
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import CheckAndWrite, NewCell, Put


class EarlierMergeError(Exception):
    """A merge with a lower id, which is not decided yet, has claimed the branch."""

    def __init__(self, merge: int) -> None:
        super().__init__(merge)
        self.merge = merge


class BranchClaims:
    """The claims of one instance on branches."""

    def __init__(self, store: RetryingStore, outcomes: Outcomes, branch_heads: BranchHeads) -> None:
        self._store = store
        self._outcomes = outcomes
        self._heads = branch_heads

    def take(
        self, root: int, claimant: int, revision: int, known: JournalRow | None = None, *, yields: bool = False
    ) -> BranchClaim | None:
        """Let only ``claimant`` apply a branch up to ``revision``, its newest one; return None if it may.

        The claimant is a merge, or the first revision of the branch to which it is rebased. Returns the earlier claim if that
        one has taken effect. Raises BranchError if the branch has moved on without one, or has ended so long ago that its rows
        are deleted. ``known`` is the first row of the branch, as the caller has read it or expects it. Two round trips without an
        earlier claim, one with a known row.

        In a store that does not order all writes, the head is read again after the claim: a commit to the branch may have moved
        it. Then BranchError is raised, and the claim stays until another one replaces it.

        ``yields``: raise EarlierMergeError if a merge with a lower id is pending and its writer lives, as a read-back would. Two
        merges that write the same columns would otherwise abort each other.
        """
        wanted = BranchClaim(claimant, revision)
        while True:
            row = self._heads.row(root) if known is None else known
            found = row.branch_claim
            _require_head(revision, row)
            if found == wanted:
                # The reply was lost.
                require_newest(revision, row)
                return None
            if yields and found is not None and self._is_in_the_way(found.claimant, claimant):
                raise EarlierMergeError(found.claimant)
            if found is not None and self._is_in_effect(found, row):
                return found
            require_newest(revision, row)
            # The branch of a replaced rebase is not abandoned here: after a lost reply, the rebase may claim again.
            is_claimed, known = self._replace(root, row.value(schema.BRANCH_CLAIM), wanted)
            if is_claimed:
                if known is not None:
                    # A collector deletes a row that has only this claim.
                    _require_head(revision, known)
                    # If another claim has replaced this one since, the claimant has failed already.
                    require_newest(revision, known)
                return None

    def finalize(self, root: int, claimant: int, revision: int) -> bool:
        """Make the claim of a rebase final, before the rebase ends the branch; return False if it was replaced."""
        before, after = BranchClaim(claimant, revision), BranchClaim(claimant, revision, is_final=True)
        if self._store.check_and_write(*_replacement(root, before.encode(), after)):
            return True
        # After a lost reply, the retry finds the value that the first attempt wrote.
        return self._heads.row(root).branch_claim == after

    def _replace(self, root: int, before: bytes | None, after: BranchClaim) -> tuple[bool, JournalRow | None]:
        """Replace the claim on a branch by compare-and-set; return whether that is done, and the first row read afterwards.

        Where that read would be a call of its own, there is no row: the caller has just read the row, or reads the head later.
        """
        check = _replacement(root, before, after)
        if self._store.supports_transactions:
            return self._store.check_and_write(*check), None
        is_done, row = self._store.check_and_write_then_read(check, *heads.get_first_row(root))
        return is_done, JournalRow(row)

    def end_merged(self, root: int, claim: BranchClaim) -> None:
        """End a branch whose merge has committed: the process of the merge may have died before it did so."""
        if not revisions.is_branch(claim.claimant):
            self._heads.close_merged(root, claim.revision, claim.claimant)

    def _is_in_the_way(self, earlier: int, merge: int) -> bool:
        """Return whether a claimant is a merge with a lower id that is pending, and its writer lives."""
        if revisions.is_branch(earlier) or earlier > merge:
            return False
        is_pending = self._outcomes.of(earlier, check=True) is Outcome.PENDING
        return is_pending and not self._outcomes.recover_if_over(earlier)

    def _is_in_effect(self, claim: BranchClaim, row: JournalRow) -> bool:
        """Return whether a claimant has taken effect; if not, it never does once its claim is replaced."""
        if not revisions.is_branch(claim.claimant):
            outcome = self._outcomes.of(claim.claimant, check=True)
            if outcome is Outcome.ABSENT:
                outcome = self._outcomes.abort_missing(claim.claimant)
            if outcome is Outcome.PENDING:
                outcome = self._outcomes.abort_other(claim.claimant)
            return outcome is not Outcome.ABORTED
        if not claim.is_final:
            head = row.branch_head
            return head is not None and head.how != b""
        rebased = self._heads.read(claim.claimant)
        if rebased is not None and rebased.how not in (b"", ABANDONED):
            return True
        if rebased is not None and rebased.newest is not None and not rebased.how:
            # Its process may have died before it ended the old branch. If the branch has received commits, nobody can do
            # so any more: the head of a claimed branch never returns to an earlier revision.
            self._heads.close_rebased(row.revision, claim.revision, rebased.newest)
        # The rebase has given up, unless it ended the old branch and the new one was abandoned later.
        ended = self._heads.read(row.revision)
        return ended is not None and ended.how != b""


def _require_head(revision: int, row: JournalRow) -> None:
    """Raise BranchError if the first row of a branch has been deleted."""
    if row.value(schema.BRANCH_HEAD) is None:
        text = revisions.to_text(revision)
        raise BranchError(
            f"branch revision {text} belongs to a branch that has ended; begin a new branch", revision=text
        )


def _replacement(root: int, before: bytes | None, after: BranchClaim) -> CheckAndWrite:
    """Return the compare-and-set that replaces the claim on a branch."""
    put = Put(schema.revision_key(root), [NewCell(*schema.BRANCH_CLAIM, after.encode())])
    return CheckAndWrite(schema.JOURNAL, schema.BRANCH_CLAIM, before, put)
