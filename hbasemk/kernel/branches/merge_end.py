"""The end of a branch by one merge: a branch takes effect at most once."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.errors import BranchError, ConflictError
from hbasemk.format import revisions, schema
from hbasemk.format.branch_head import MERGED, BranchClaim, BranchHead
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.branches import heads
from hbasemk.kernel.branches.claims import BranchClaims, EarlierMergeError
from hbasemk.kernel.commit.branch_end import BranchEnd
from hbasemk.store.abc import Put, Row


class MergeEnd(BranchEnd):
    """The end of the branch ``root`` at ``revision``; ``reason`` says why :meth:`claim` has refused a merge.

    ``known`` is the first row of the branch, if the merge has just read it; the first claim uses it. ``yields``: the merge yields
    to one with a lower id even if it adjusts. ``claimed`` is the merge that has the claim, or had it until another merge or a
    rebase replaced it.
    """

    def __init__(
        self, claims: BranchClaims, root: int, revision: int, known: JournalRow | None, *, yields: bool = False
    ) -> None:
        self._claims = claims
        self._root = root
        self._revision = revision
        self._known = known
        self._yields = yields
        self.rows = (heads.get_first_row(root),)
        self.reason: BranchError | None = None
        self.claimed: int | None = None
        self.is_yielding = False

    def is_possible(self, rows: Sequence[Row]) -> bool:
        """Return whether the branch is still at its revision, and nobody has claimed it."""
        return heads.is_unclaimed(self._revision, rows[0])

    def put(self, merge: int) -> Put:
        """Return the head of the ended branch, and a claim, so that a claim that is on its way does not apply."""
        claim, head = BranchClaim(merge, self._revision), BranchHead(MERGED, self._revision, merge)
        return Put(schema.revision_key(self._root), heads.cells_of_end(head, claim))

    def claim(self, merge: int, *, yields: bool) -> int | None:
        """Claim the branch; if an earlier merge has committed, end the branch for it."""
        known, self._known = self._known, None
        try:
            found = self._claims.take(self._root, merge, self._revision, known, yields=yields or self._yields)
        except EarlierMergeError as earlier:
            self.is_yielding = True
            return earlier.merge
        except BranchError as error:
            self.reason = error
            return merge
        if found is None:
            self.claimed = merge
            return None
        self._claims.end_merged(self._root, found)
        return found.claimant

    def is_lost_to(self, claim: BranchClaim, error: ConflictError) -> bool:
        """Return whether a merge has lost to the merge or rebase that has the claim on the branch, not to a commit to trunk.

        A merge that claims the branch before it is decided is replaced only by another one.
        """
        if claim.claimant == self.claimed:
            return False
        return self.claimed is not None or self.is_yielding or error.other == revisions.to_text(claim.claimant)
