"""What a commit that merges a branch must know of it, so that the branch is merged at most once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from hbasemk.store.abc import Get, Put, Row


class BranchEnd(ABC):
    """The end of a branch by a merge: in the transaction of the commit, or else after a claim."""

    rows: Sequence[tuple[str, Get]]
    """What a transaction must read of the branch."""
    is_written = False
    """Whether the transaction of the commit has ended the branch."""

    @abstractmethod
    def is_possible(self, rows: Sequence[Row]) -> bool:
        """Return whether a transaction may end the branch, by the rows that :attr:`rows` names.

        It may not if the branch has moved on, or if another merge or rebase has claimed it.
        """

    @abstractmethod
    def put(self, merge: int) -> Put:
        """Return what ends the branch as merged by ``merge``, in the transaction that commits this revision."""

    @abstractmethod
    def claim(self, merge: int, *, yields: bool) -> int | None:
        """Claim the branch for ``merge``, whose journal row exists; return None if it may commit.

        Otherwise returns the merge or rebase that has taken effect already, or ``merge`` if the branch has moved on. With
        ``yields``, returns also a pending merge with a lower id; without, aborts it.
        """
