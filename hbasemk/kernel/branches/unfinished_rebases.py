"""Rebases in steps that may not have ended: their new branches take no effect before the old ones have ended.

Between the commit to the new branch and the end of the old one, both show the same changes. If both were merged, the changes
would count twice. So the first row of the new branch names the old one, until the rebase is over
(``docs/decisions/0058-unfinished-rebases.md``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from hbasemk.format import schema
from hbasemk.format.branch_head import REBASED, BranchClaim, BranchHead, RebaseOf
from hbasemk.kernel.branches import heads
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.retrying_store import RetryingStore

MOST_KNOWN: Final = 10_000
"""The number of rebases that an instance knows to be over without a record of it in the store."""


class UnfinishedRebases:
    """The new branches of rebases, as one instance uses them."""

    def __init__(self, store: RetryingStore, branch_heads: BranchHeads) -> None:
        self._store = store
        self._heads = branch_heads
        self._over: OrderedDict[int, None] = OrderedDict()

    def know_over(self, root: int) -> None:
        """Remember that the rebase to the new branch ``root`` has ended the old one. No round trip.

        The first merge or rebase of the branch by another instance records it in the store.
        """
        self._over[root] = None
        if len(self._over) > MOST_KNOWN:
            self._over.popitem(last=False)

    def is_over(self, root: int, newest: int, link: RebaseOf) -> bool:
        """Return whether a rebase has ended the old branch ``link``; ``newest`` is the newest revision of the new one.

        If its process has died in between, ends the old branch for it. No round trip if this instance has made the rebase, else
        two to six.
        """
        if root in self._over:
            return True
        row = self._heads.row(link.root)
        is_claimed = row.branch_claim == BranchClaim(root, link.revision, is_final=True)
        if is_claimed and row.branch_head == BranchHead(b"", link.revision):
            self._heads.close_rebased(link.root, link.revision, newest)
        if not self.has_ended_old(root, link):
            return False
        self._heads.record_end_of_rebase(root, link)
        return True

    def has_ended_old(self, root: int, link: RebaseOf) -> bool:
        """Return whether the old branch has ended as rebased to the new one. One or two round trips."""
        return leads_to(self._store, {root: link})[root]


def leads_to(store: RetryingStore, links: Mapping[int, RebaseOf]) -> dict[int, bool]:
    """Return for each new branch whether its old one has ended as rebased to it. Two round trips for each 1000."""
    old = {row.revision: row for row in journal_rows(store, [link.root for link in links.values()], heads.COLUMNS)}
    into: dict[int, int] = {}
    for root, link in links.items():
        head = old[link.root].branch_head
        if head is not None and head.how == REBASED and head.into is not None:
            into[root] = head.into
    targets = [one for one in dict.fromkeys(into.values()) if one not in links]
    roots = {row.revision: row.branch_root for row in journal_rows(store, targets, (schema.BRANCH,))}
    return {root: root in into and roots.get(into[root], into[root]) == root for root in links}
