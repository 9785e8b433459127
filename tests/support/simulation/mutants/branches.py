"""Branches (section 7)."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.format import schema
from hbasemk.kernel.branches import branches
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.commit.committer import Committer
from hbasemk.store.abc import NewCell, Put


def merge_without_validation_against_later_commits(patch: pytest.MonkeyPatch) -> None:
    original = Committer.on_base

    def on_base(self: Committer, view: Any, *details: Any, **named: Any) -> int:
        if branches.REBASE in (*details, named.get("advice")):
            view = self._journal.head
        return original(self, view, *details, **named)

    patch.setattr(Committer, "on_base", on_base)


def branch_heads_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """Only two processes on one branch find it, which the schedules do not have."""

    def move(self: BranchHeads, root: int, _: bytes, then: bytes, *__: object, **___: object) -> bool:
        self._store.write(schema.JOURNAL, [Put(schema.revision_key(root), [NewCell(*schema.BRANCH_HEAD, then)])])
        return True

    patch.setattr(BranchHeads, "move", move)
