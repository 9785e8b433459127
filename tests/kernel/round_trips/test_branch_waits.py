"""How often the steps of a branch wait for a store that makes calls together and in parallel, as HBase does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbasemk import BranchError, Repository
from hbasemk.repository import instance_of
from tests.support.repositories import problems
from tests.support.round_trips import ParallelMemory
from tests.support.waits import Waits

ROW = "check_and_write journal"
BEGIN = f"{ROW} and read cluster"
"""The first row of a branch, and the horizon of the collection."""
HEAD = "read journal"
CLAIM = f"{ROW} and {HEAD}"
"""The claim, and the head after it."""
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
    # The new branch with the claim; the commit; the claim becomes final, and the old branch ends.
    assert store.take() == [f"{BEGIN} and {CLAIM}", *COMMIT_TO_BRANCH, ROW, ROW]
    branch.merge()
    # Announcement and journal row; the claim; cells and read-back; the decision; the end of the branch.
    assert store.take() == [
        f"{ROW} and check_and_write cluster",
        CLAIM,
        "write nodes and read nodes",
        ROW,
        ROW,
    ]
    assert dict(repository.head["/a"]) == {"p": 1}


def test_a_rebase_of_no_changes_claims_nothing(store: Waits, repository: Repository) -> None:
    branch = repository.branch()
    repository.run(lambda tx: tx.set("/b", "p", 1))
    store.take()
    branch.rebase()
    # The head of the old branch, because there is no claim, and that of the new one, because its commit has no changes; the end
    # of the old branch.
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


def test_a_branch_of_another_process_is_read_first(store: Waits, repository: Repository) -> None:
    branch = repository.branch("adopted")
    branch.run(lambda tx: tx.set("/a", "p", 1))
    with Repository(store, poll_interval=0, owns_store=False) as other:
        adopted = other.resume_branch(branch.revision)
        store.take()
        adopted.merge()
        assert HEAD in store.take()[:3]
        assert other.refresh().revision == adopted.merged
        assert next(entry.message for entry in other.log()) == "adopted"


def test_a_merge_finds_that_another_process_has_committed_to_the_branch(repository: Repository, store: Waits) -> None:
    branch = repository.branch()
    branch.run(lambda tx: tx.set("/a", "p", 1))
    with Repository(store, poll_interval=0, owns_store=False) as other:
        adopted = other.resume_branch(branch.revision)
        adopted.run(lambda tx: tx.set("/b", "p", 1))
        for act in (branch.merge, branch.rebase):
            repository.run(lambda tx: tx.set("/", act.__name__, 1))  # noqa: B023 - it runs at once
            with pytest.raises(BranchError, match="is not the newest of its branch") as raised:
                act()
            assert raised.value.continues_at == adopted.revision
        assert dict(repository.refresh()["/a"]) == {"p": 0}
        adopted.merge()
    assert [dict(repository.refresh()[path]) for path in ("/a", "/b")] == [{"p": 1}] * 2
    assert repository.branches() == []
