"""The number of round trips of commits and merges."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import MicroKernel, Repository
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import problems
from tests.support.round_trips import ANNOUNCE, CREATE, POLL, READ, WRITE, WRITE_IF, Counted, ParallelMemory, fresh
from tests.support.waits import Waits


def test_a_commit_on_cached_nodes_takes_four_calls_in_sequence(counted: Counted) -> None:
    with counted.repository.transaction(base=counted.repository.head) as tx:
        tx.set("/a", "p", 1)
    assert counted.store.take() == {CREATE: 2, ANNOUNCE: 1, WRITE: 1, READ: 1}


def test_a_commit_waits_three_times_for_a_store_with_joint_calls() -> None:
    store = Waits(MemoryStore())
    repository = Repository(store, poll_interval=0)
    repository.run(lambda tx: tx.add("/a", {"p": 0}))
    base = repository.head
    store.take()
    with repository.transaction(base=base) as tx:
        tx.set("/a", "p", 1)
    assert store.take() == [
        "check_and_write journal and check_and_write cluster",
        "write nodes and read nodes",
        "check_and_write journal",
    ]
    with repository.transaction(base=repository.head) as tx:
        # The children of a node are looked for by one more read. The existing node is written first, and its marks are read.
        # The last of several writes is joined by the read.
        for number in range(1200):
            tx.add(f"/a/{number}")
    assert store.take() == [
        "read nodes",
        "check_and_write journal and check_and_write cluster",
        "write nodes and read nodes",
        "write nodes",
        "write nodes and read nodes",
        "check_and_write journal",
    ]
    assert problems(repository) == []
    repository.close()


def test_a_revision_is_announced_while_its_journal_row_is_created() -> None:
    # Each of the two calls ends only after the other has begun, so sequential calls would never end.
    announcing, creating = threading.Event(), threading.Event()
    store = FaultyStore(ParallelMemory())
    repository = Repository(store, poll_interval=0)
    repository.run(lambda tx: tx.set("/", "p", 0))

    def before(call: Call) -> None:
        if (call.method, call.table) == ANNOUNCE:
            announcing.set()
            assert creating.wait(60)
        elif (call.method, call.table) == CREATE:
            creating.set()
            assert announcing.wait(60)

    with repository.transaction(base=repository.head) as tx:
        tx.set("/", "p", 1)
        store.before = before
    store.before = None
    assert announcing.is_set()
    assert repository.head["/"]["p"] == 1
    assert problems(repository) == []
    repository.close()


def test_a_commit_on_a_store_with_transactions_takes_one_call() -> None:
    counted = Counted(MemoryStore(transactions=True))
    with counted.repository.transaction(base=counted.repository.head) as tx:
        tx.set("/a", "p", 1)
    assert counted.store.take() == {("write_if", "nodes"): 1}
    with counted.repository.transaction(base=counted.repository.head, isolation="serializable") as tx:
        tx.set("/a", "p", tx.get("/a", "n"))
    assert counted.store.take() == {("write_if", "nodes"): 1}
    assert problems(counted.repository) == []
    counted.repository.close()


def test_a_commit_of_a_full_batch_takes_four_calls_too(counted: Counted) -> None:
    with counted.repository.transaction(base=counted.repository.head) as tx:
        for number in range(900):
            tx.add(f"/a/new{number}", {"n": number})
    # One more read shows that none of the 900 exists yet (a list of the children, not 900 rows). On HBase it runs in
    # parallel to the creation of the journal row.
    assert counted.store.take() == {CREATE: 2, ANNOUNCE: 1, WRITE: 1, READ: 2}


def test_a_commit_on_nodes_that_are_not_cached_reads_them_once(counted: Counted) -> None:
    other = fresh(counted)
    with other.transaction(base=other.head) as tx:
        tx.set("/a/1", "p", 1)
        tx.set("/a/2", "p", 1)
    calls = counted.store.take()
    # The first commit of an instance also claims its lease.
    assert {kind: count for kind, count in calls.items() if kind[1] != "cluster"} == {
        CREATE: 2,
        WRITE: 1,
        READ: 2,
    }
    other.close()


def _unread(repository: Repository) -> None:
    with repository.transaction(base=repository.head) as tx:
        tx.set("/a/1", "p", 1)
        tx.add("/a/new")


def _unread_serializable(repository: Repository) -> None:
    with repository.transaction(base=repository.head, isolation="serializable") as tx:
        tx.set("/a/1", "p", 1)
        tx.add("/a/new")


def _after_a_read(repository: Repository) -> None:
    with repository.transaction(base=repository.head) as tx:
        assert tx.get("/a", "n") == 0
        tx.set("/a/1", "p", 1)
        tx.add("/a/new")


def _jsop(repository: Repository) -> None:
    text = '^"a/1/p":1 +"a/new":{"p":1,"below":{}} ^"a/new/p":2'
    MicroKernel(repository).commit("/", text, repository.head.revision)


def _jsop_on_the_head(repository: Repository) -> None:
    MicroKernel(repository).commit("/", '^"a/1/p":1 +"a/new":{"p":1,"below":{}}')


@pytest.mark.parametrize(
    ("commit", "besides"),
    [(_unread, 0), (_unread_serializable, 0), (_after_a_read, 1), (_jsop, 0), (_jsop_on_the_head, 1)],
)
def test_every_commit_creates_its_journal_row_while_it_reads(
    monkeypatch: pytest.MonkeyPatch, commit: Callable[[Repository], None], besides: int
) -> None:
    # Besides the commit, a transaction's read or the poll of a commit on the head is one round trip.
    counted = Counted(ParallelMemory())
    other = fresh(counted)
    with other.transaction(base=other.head) as tx:
        tx.set("/", "claims", "the lease")
    counted.store.take()
    hidden = 0

    def run_parallel(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
        nonlocal hidden
        before = len(counted.store.calls)
        one = first()
        between = len(counted.store.calls)
        two = second()
        hidden += min(between - before, len(counted.store.calls) - between)
        return one, two

    monkeypatch.setattr(instance_of(other).runtime, "run_parallel", run_parallel)
    commit(other)
    assert len(counted.store.calls) - hidden == 4 + besides
    assert hidden == 2
    assert other.head["/a/1"]["p"] == 1
    assert "/a/new" in other.head
    other.close()
    assert problems(counted.repository) == []
    counted.repository.close()


def test_a_serializable_commit_reads_its_reads_back_in_the_same_call(counted: Counted) -> None:
    with counted.repository.transaction(base=counted.repository.head, isolation="serializable") as tx:
        assert [tx.get(f"/a/{number}", "n") for number in range(20)] == list(range(20))
        tx.set("/a", "p", 1)
    assert counted.store.take() == {CREATE: 2, ANNOUNCE: 1, WRITE: 1, READ: 1}
    with counted.repository.transaction(base=counted.repository.head, isolation="serializable") as tx:
        tx.get("/a", "n")
    assert counted.store.take() == {READ: 1}


def test_a_commit_with_expected_versions_takes_no_call_more(counted: Counted) -> None:
    head = counted.repository.head
    versions = {
        path: node.version for path, node in head.nodes([f"/a/{number}" for number in range(20)]).items() if node
    }
    counted.store.take()
    with counted.repository.transaction(base=head) as tx:
        tx.set("/a/0", "p", 1, if_version=versions.pop("/a/0"))
        for path, version in versions.items():
            tx.expect(path, version)
    assert counted.store.take() == {CREATE: 2, ANNOUNCE: 1, WRITE: 1, READ: 1}
    with counted.repository.transaction(base=counted.repository.head) as tx:
        tx.expect("/a/1", versions["/a/1"])
    assert counted.store.take() == {READ: 1}
    other = fresh(counted)
    other.run(lambda tx: tx.set("/", "leased", True))
    counted.store.take()
    with other.transaction(base=other.head) as tx:
        tx.set("/a/1", "p", 1, if_version=versions["/a/1"])
        tx.expect("/a/2", versions["/a/2"])
        tx.expect("/a/none", None)
    # One read of all nodes that are not cached, and the read-back.
    assert counted.store.take() == {CREATE: 2, ANNOUNCE: 1, WRITE: 1, READ: 2}
    other.close()


def test_a_lost_conflict_is_rolled_back_in_four_more_calls(counted: Counted) -> None:
    other = fresh(counted)
    base = other.head
    list(base.nodes(["/a"]))
    counted.repository.run(lambda tx: tx.set("/a", "p", 1))
    with other.transaction(base=base) as tx:
        tx.set("/a/1", "claims", "the lease")
    counted.store.take()
    transaction = other.transaction(base=base)
    transaction.set("/a", "p", 2)
    with pytest.raises(Exception, match="conflicts with"):
        transaction.commit()
    assert counted.store.take() == {
        CREATE: 2,
        WRITE: 1,
        READ: 1,
        ANNOUNCE: 1,
        ("read", "journal"): 1,
        ("delete", "nodes"): 1,
        ("write", "journal"): 1,
    }
    other.close()


def merge_a_branch(counted: Counted) -> None:
    """Merge a branch that sets a property; only the calls of the merge are counted."""
    branch = counted.repository.branch()
    branch.run(lambda tx: tx.set("/a", "p", 1))
    assert branch.head["/a"]["p"] == 1
    counted.store.take()
    branch.merge()


def test_merge_reads_the_head_claims_the_branch_and_is_one_commit(counted: Counted) -> None:
    merge_a_branch(counted)
    # A poll. The head with the claim, the new claim, the end of the branch. The nodes of trunk are cached, and this instance
    # made the effect. Then the commit, whose read-back finds the branch's own cells and ignores them, because their ids are not
    # trunk's.
    assert counted.store.take() == {
        POLL: 1,
        ("read", "journal"): 1,
        READ: 1,
        ANNOUNCE: 1,
        CREATE: 4,
        WRITE: 1,
    }


def test_a_merge_on_a_store_with_transactions_ends_its_branch_in_the_transaction() -> None:
    counted = Counted(MemoryStore(transactions=True))
    merge_a_branch(counted)
    # A poll, the head, and the transaction.
    assert counted.store.take() == {
        ("arrivals", "journal"): 1,
        ("read", "journal"): 1,
        ("write_if", "nodes"): 1,
    }
    counted.repository.close()


def test_a_rebase_claims_the_old_branch_and_makes_the_claim_final() -> None:
    counted = Counted(MemoryStore())
    calls = []
    for change in (None, lambda tx: tx.set("/a", "p", 1)):
        branch = counted.repository.branch()
        if change is not None:
            branch.run(change)
            assert branch.head["/a"]["p"] == 1
        counted.repository.run(lambda tx: tx.set("/a/1", "q", len(calls)))
        counted.store.take()
        branch.rebase()
        calls.append(counted.store.take())
        branch.abandon()
    # Both create the first revision of the new branch, and end the old one. A rebase of changes also claims the old branch, makes
    # the claim final, and creates the row and moves the head of the new branch.
    assert calls[1][CREATE] == calls[0][CREATE] + 4
    counted.repository.close()


def test_a_branch_on_a_store_with_transactions_takes_one_for_each_step() -> None:
    counted = Counted(MemoryStore(transactions=True))
    one = counted.repository
    one.run(lambda tx: tx.set("/a/1", "q", 1))
    counted.store.take()
    branch = one.branch()
    assert counted.store.take() == {("arrivals", "journal"): 1, WRITE_IF: 1}
    branch.run(lambda tx: tx.set("/a", "n", 1))
    # The child that may have the name of the property. The node is cached on trunk, and this instance made the head.
    assert counted.store.take() == {READ: 1, WRITE_IF: 1}
    one.run(lambda tx: tx.set("/a/1", "q", 2))
    assert branch.head["/a"]["n"] == 1
    counted.store.take()
    branch.rebase()
    # The head of the old branch. Only nodes with the name of a marker are read again for it.
    assert counted.store.take() == {("arrivals", "journal"): 1, ("read", "journal"): 1, WRITE_IF: 1}
    branch.abandon()
    assert problems(one) == []
    one.close()
