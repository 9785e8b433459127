"""Commits to branches, without what the repository's interface does around them."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.kernel.commit import change_set
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.commit.staging import Staging
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View


def staged(instance: Instance, snapshot: View, operations: Sequence[Operation]) -> ChangeSet:
    """What these operations make of a snapshot."""
    staging = Staging(instance.reader, snapshot)
    staging.apply(operations)
    return change_set.build(staging)


def commit_on_branch(instance: Instance, on: int, operations: Sequence[Operation]) -> int:
    """Commit to a branch whose newest revision is ``on``; returns what is its newest then."""
    return instance.branches.commit(on, lambda snapshot: staged(instance, snapshot, operations), "")
