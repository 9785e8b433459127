"""Commits to branches, without what the repository's interface does around them."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.kernel import changeset
from hbasemk.kernel.changeset import ChangeSet
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.operations import Operation
from hbasemk.kernel.snapshot import Snapshot
from hbasemk.kernel.staging import Staging


def staged(instance: Instance, snapshot: Snapshot, operations: Sequence[Operation]) -> ChangeSet:
    """What these operations make of a snapshot."""
    staging = Staging(instance.reader, snapshot)
    staging.apply(operations)
    return changeset.build(staging)


def commit_on_branch(instance: Instance, on: int, operations: Sequence[Operation]) -> int:
    """Commit to a branch whose newest revision is ``on``; returns what is its newest then."""
    return instance.branches.commit(on, lambda snapshot: staged(instance, snapshot, operations), "")
