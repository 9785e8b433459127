"""``Branch.run``: its isolation, its time limit, and what its transaction says afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import (
    Branch,
    BranchError,
    NodeExistsError,
    NodeNotFoundError,
    Outcome,
    StoreNotAppliedError,
    Transaction,
    VersionMismatchError,
)
from hbasemk.kernel.branches import cache
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Instances

REFUSALS = 8
"""More refused calls than are retried in the 0.2 s that every call gets, and fewer than in a minute."""


def take(tx: Transaction, mine: str, other: str) -> None:
    """Take one of two duties, unless the other one is taken."""
    if tx.get("/duty", other) is None:
        tx.set("/duty", mine, True)


INVALID: dict[str, Callable[[Transaction], object]] = {
    "a node that exists": lambda tx: tx.add("/a"),
    "a node that never existed": lambda tx: tx.set("/b", "x", 1),
    "a node that trunk has removed": lambda tx: tx.set("/removed", "x", 1),
    "a node that this commit has removed": lambda tx: (tx.remove("/a"), tx.set("/a", "x", 1)),
    "another version": lambda tx: tx.expect("/a", "0" * 24),
}


@pytest.mark.parametrize("change", INVALID.values(), ids=INVALID)
@pytest.mark.parametrize("commits", [0, 1])
def test_an_error_names_the_revision_of_the_branch(
    opened: Instances, change: Callable[[Transaction], object], commits: int
) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.add("/a"), tx.add("/removed")))
    repo.run(lambda tx: tx.remove("/removed"))
    branch = repo.branch()
    if commits:
        branch.run(lambda tx: tx.set("/a", "n", 1))
    with pytest.raises((NodeExistsError, NodeNotFoundError, VersionMismatchError)) as failed:
        branch.run(change)
    if isinstance(failed.value, VersionMismatchError):
        assert f"in revision {branch.revision}" in str(failed.value)
    else:
        assert failed.value.revision == branch.revision


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_one_of_two_branch_writers_that_read_each_others_writes_commits(opened: Instances, isolation: Any) -> None:
    store = FaultyStore(opened.new_store())
    one, two = opened(store), opened()
    one.run(lambda tx: tx.add("/duty"))
    calls, interrupted_at = 0, -1

    def attempt(branch: Branch, mine: str, other: str) -> None:
        with contextlib.suppress(BranchError):
            branch.run(lambda tx: take(tx, mine, other), isolation=isolation)
            acknowledged.append(mine)

    def before(call: Call) -> None:
        # The other writer commits as a whole before the call with this number.
        nonlocal calls
        calls += 1
        if calls - 1 == interrupted_at:
            attempt(theirs, "two", "one")

    while calls > interrupted_at:
        acknowledged: list[str] = []
        mine = one.branch()
        theirs = two.resume_branch(mine.revision)
        calls, interrupted_at = 0, interrupted_at + 1
        store.before = before
        attempt(mine, "one", "two")
        store.before = None
        assert len(acknowledged) == 1, f"the other writer committed before call {interrupted_at}"
        # Raises BranchError if this is not the newest revision of the branch.
        newest = two.resume_branch((mine if acknowledged == ["one"] else theirs).revision)
        assert dict(newest.head["/duty"]) == {acknowledged[0]: True}
        newest.abandon()
    assert interrupted_at >= 3, "the schedules do not reach into the commit"


def test_a_transaction_that_only_reads_an_outdated_branch_raises_branch_error(opened: Instances) -> None:
    one, two = opened(), opened()
    one.run(lambda tx: tx.add("/duty"))
    mine = one.branch()
    two.resume_branch(mine.revision).run(lambda tx: tx.set("/duty", "two", True))
    with pytest.raises(BranchError):
        mine.run(lambda tx: tx.get("/duty", "two"), isolation="serializable")


def test_a_block_that_abandons_its_branch_merges_nothing(opened: Instances) -> None:
    repo = opened()
    with repo.branch() as branch:
        branch.run(lambda tx: tx.add("/a"))
        branch.abandon()
    assert branch.merged is None
    assert list(repo.refresh().children("/")) == []
    with pytest.raises(BranchError, match="abandoned"):
        branch.merge()


def refuse(store: FaultyStore, table: str) -> None:
    """Refuse the next calls to one table, :data:`REFUSALS` times."""
    left = REFUSALS

    def before(call: Call) -> None:
        nonlocal left
        if call.table == table and left:
            left -= 1
            raise StoreNotAppliedError(f"the test refuses this {call.method}")

    store.before = before


@pytest.mark.parametrize("table", ["nodes", "journal"])
def test_the_time_limit_of_a_run_replaces_that_of_the_repository(opened: Instances, table: str) -> None:
    store = FaultyStore(opened.new_store())
    patient, hasty = opened(store, retry_timeout=60), opened(store, retry_timeout=0)
    patient.run(lambda tx: tx.add("/a", {"n": 0}))
    # The process that has begun a branch does not read its head before the first commit.
    branch = patient.resume_branch(opened().branch().revision)
    refuse(store, table)
    with pytest.raises(StoreNotAppliedError):
        branch.run(lambda tx: tx.increment("/a", "n"), retry_timeout=0)
    store.before = None
    assert branch.head["/a"]["n"] == 0
    resumed = hasty.resume_branch(branch.revision)
    refuse(store, table)
    resumed.run(lambda tx: tx.increment("/a", "n"), retry_timeout=60)
    assert resumed.head["/a"]["n"] == 1


def test_the_transaction_has_the_revision_and_the_result_is_returned(opened: Instances) -> None:
    repo = opened()
    branch = repo.branch()
    tried: list[Transaction] = []
    assert branch.run(lambda tx: (tried.append(tx), tx.add("/a"), "done")[-1]) == "done"
    assert tried[0].revision == tried[0].attempted == branch.revision
    assert branch.run(lambda tx: (tried.append(tx), "nothing")[-1]) == "nothing"
    assert tried[1].revision == branch.revision
    assert tried[1].attempted is None


@pytest.mark.parametrize("write", [0, 1, 2, 3])
def test_the_outcome_of_an_interrupted_run_can_be_asked_for(opened: Instances, write: int) -> None:
    store = FaultyStore(opened.new_store())
    repo = opened(store)
    repo.run(lambda tx: tx.add("/a"))
    branch = repo.branch()
    tried: list[Transaction] = []
    left = write

    def before(call: Call) -> None:
        nonlocal left
        if "write" in call.method:
            left -= 1
            if left < 0:
                store.before = None
                raise KeyboardInterrupt

    store.before = before
    try:
        branch.run(lambda tx: (tried.append(tx), tx.set("/a", "n", 1)))
        assert left >= 0, "the interrupt was swallowed"
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    store.before = None
    attempted = tried[0].attempted
    assert attempted is not None
    expected = Outcome.ABORTED if interrupted else Outcome.COMMITTED
    assert repo.outcome(attempted) is expected
    repo.resume_branch(branch.revision).run(lambda tx: tx.set("/a", "n", 2))
    assert interrupted == (write < (1 if store.supports_transactions else 3))


@pytest.mark.parametrize("most", [0, 3, 100])
def test_a_merge_has_all_changes_of_a_branch_of_any_length(
    opened: Instances, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(cache, "MOST_CHANGES", most)
    one, two = opened(), opened()
    one.run(lambda tx: tx.add("/a"))
    branch = one.branch()
    branch.run(lambda tx: tx.add("/a/0", {"p": 0}))
    shared = two.resume_branch(branch.revision)
    shared.run(lambda tx: tx.add("/a/1", {"p": 1}))
    branch = one.resume_branch(shared.revision)
    for number in range(2, 6):
        branch.run(lambda tx, number=number: tx.add(f"/a/{number}", {"p": number}))
    one.run(lambda tx: tx.set("/a", "other", True))
    branch.rebase()
    branch.run(lambda tx: tx.set("/a/0", "p", 7))
    branch.merge()
    assert [one.head[f"/a/{number}"]["p"] for number in range(6)] == [7, 1, 2, 3, 4, 5]
    assert one.head["/a"]["other"] is True
