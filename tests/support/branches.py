"""Commits to branches, without the repository's interface, and the kinds of stores for branches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Operation
from hbasemk.kernel.instance import Instance

STEPS = pytest.mark.parametrize(
    ("transactions", "parallel"),
    [(False, False), (False, True), (True, False)],
    ids=["steps", "parallel steps", "transactions"],
)
"""How a store lets a branch change: by calls one after another, partly at the same time, or in one transaction."""


def commit_on_branch(instance: Instance, revision: int, operations: Sequence[Operation]) -> int:
    """Commit to a branch at its newest revision; return its new newest revision."""
    return instance.branches.commit(revision, OperationList(operations), "")
