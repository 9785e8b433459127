"""Commits to branches, without what the repository's interface does around them."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.instance import Instance


def commit_on_branch(instance: Instance, on: int, operations: Sequence[Operation]) -> int:
    """Commit to a branch whose newest revision is ``on``; returns what is its newest then."""
    return instance.branches.commit(on, OperationList(operations), "")
