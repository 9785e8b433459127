"""Claims: of the merges and rebases of a branch that adjusts, at most one takes effect.

Adjusts do not conflict, so two merges of one branch could both commit, and the branch would count twice. Each merge
therefore claims the branch before it decides, and each rebase before it writes. A claim is a compare-and-set on the first
row of the branch. It replaces an earlier claim only after it has made sure that the earlier one never takes effect
(``docs/decisions/0035-adjust.md``).
"""

from __future__ import annotations

from hbasemk.format import revisions, schema
from hbasemk.format.branch_head import BranchClaim
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import NewCell, Put


class BranchClaims:
    """The claims of one instance on branches."""

    def __init__(self, store: RetryingStore, outcomes: Outcomes, heads: BranchHeads) -> None:
        self._store = store
        self._outcomes = outcomes
        self._heads = heads

    def take(self, root: int, claimant: int, revision: int) -> BranchClaim | None:
        """Let only ``claimant`` apply the adjusts of a branch up to ``revision``; return None if it may.

        The claimant is a merge, or the first revision of the branch to which it is rebased. Returns the earlier claim if that
        one has taken effect. Two round trips without an earlier claim.
        """
        wanted = BranchClaim(claimant, revision)
        put = Put(schema.revision_key(root), [NewCell(*schema.BRANCH_CLAIM, wanted.encode())])
        while True:
            (row,) = journal_rows(self._store, [root], (schema.BRANCH_CLAIM, schema.BRANCH_HEAD))
            found = row.branch_claim
            if found == wanted:
                return None
            if found is not None and not self._revoke(found, row):
                return found
            if self._store.check_and_write(schema.JOURNAL, schema.BRANCH_CLAIM, row.value(schema.BRANCH_CLAIM), put):
                return None

    def for_merge(self, root: int, revision: int, merge: int) -> int | None:
        """Claim the adjusts of a branch for a merge; return the claimant that has them already, if any."""
        found = self.take(root, merge, revision)
        if found is None:
            return None
        self.end_merged(root, found)
        return found.claimant

    def end_merged(self, root: int, claim: BranchClaim) -> None:
        """End a branch whose merge has committed: the process of the merge may have died before it did so."""
        if not revisions.is_branch(claim.claimant):
            self._heads.close_merged(root, claim.revision, claim.claimant)

    def _revoke(self, claim: BranchClaim, row: JournalRow) -> bool:
        """Make sure that a claimant never takes effect; return False if it has."""
        if revisions.is_branch(claim.claimant):
            head = row.branch_head
            if head is not None and head.how:
                return False
            self._heads.abandon_always(claim.claimant)
            return True
        outcome = self._outcomes.of(claim.claimant)
        if outcome is Outcome.ABSENT:
            outcome = self._outcomes.abort_missing(claim.claimant)
        if outcome is Outcome.PENDING:
            outcome = self._outcomes.abort_other(claim.claimant)
        return outcome is Outcome.ABORTED
