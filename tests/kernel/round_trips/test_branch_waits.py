"""How often the steps of a branch wait for a store that makes calls together and in parallel, as HBase does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbasemk import Repository
from hbasemk.repository import instance_of
from tests.support.repositories import problems
from tests.support.round_trips import ParallelMemory
from tests.support.waits import Waits

ROW = "check_and_write journal"
BEGIN = f"{ROW} and read cluster"
"""The first row of a branch, and the horizon of the collection."""
HEAD = "read journal"
COMMIT_TO_BRANCH = [ROW, "write nodes", ROW]


@pytest.fixture
def store() -> Waits:
    return Waits(ParallelMemory())


@pytest.fixture
def repository(store: Waits, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    with Repository(store, poll_interval=0) as repository:
        instance = instance_of(repository)
        monkeypatch.setattr(instance.runtime, "run_parallel", store.run_parallel)
        for path in ("/a", "/b"):
            repository.run(lambda tx, path=path: tx.add(path, {"p": 0}))
        # Cached: a property may not have the name of a child.
        assert "/a/p" not in repository.refresh()
        # As with background polls.
        instance.max_poll_age = 60.0
        store.take()
        yield repository
        assert problems(repository) == []


def test_each_step_of_a_branch(store: Waits, repository: Repository) -> None:
    branch = repository.branch()
    assert store.take() == [BEGIN]
    branch.run(lambda tx: tx.set("/a", "p", 1))
    assert store.take() == COMMIT_TO_BRANCH
    repository.run(lambda tx: tx.set("/b", "p", 1))
    store.take()
    assert branch.rebase() == []
    # The head; the new branch with the claim; the commit; the claim becomes final, and the old branch ends.
    assert store.take() == [HEAD, f"{BEGIN} and {ROW}", *COMMIT_TO_BRANCH, ROW, ROW]
    branch.merge()
    # The head; announcement and journal row; the claim with cells and read-back; the decision; the end of the branch.
    assert store.take() == [
        HEAD,
        f"{ROW} and check_and_write cluster",
        f"{ROW} and write nodes and read nodes",
        ROW,
        ROW,
    ]
    assert dict(repository.head["/a"]) == {"p": 1}


def test_a_rebase_of_no_changes_claims_nothing(store: Waits, repository: Repository) -> None:
    branch = repository.branch()
    repository.run(lambda tx: tx.set("/b", "p", 1))
    store.take()
    branch.rebase()
    # The heads of both branches, because the commit has no changes; the end of the old branch.
    assert store.take() == [HEAD, BEGIN, HEAD, ROW]


def test_after_a_conflict_a_branch_and_a_rebase_poll(store: Waits, repository: Repository) -> None:
    branch = repository.branch()
    branch.run(lambda tx: tx.set("/a", "p", 1))
    with Repository(store, poll_interval=0, owns_store=False) as other:
        other.run(lambda tx: tx.set("/a", "p", 2))
    with pytest.raises(Exception, match="conflicts with"):
        branch.merge()
    assert branch.rebase() == ["/a/:conflict"]
    assert repository.branch().head["/a"]["p"] == 2
