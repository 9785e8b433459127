"""Commits to branches, without the repository's interface."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.instance import Instance


def commit_on_branch(instance: Instance, revision: int, operations: Sequence[Operation]) -> int:
    """Commit to a branch at its newest revision; return its new newest revision."""
    return instance.branches.commit(revision, OperationList(operations), "")
