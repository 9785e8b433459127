"""The number of round trips of every operation matches the documentation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hbasemk import MicroKernel, Repository, Transaction
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.repositories import problems

CREATE = ("check_and_write", "journal")
WRITE = ("write", "nodes")
READ = ("read", "nodes")
POLL = ("scan", "journal")
CREATED = ("read", "journal")
"""The read of the journal row's timestamp, parallel to the write of the cells."""


class ParallelMemory(MemoryStore):
    """Memory that reports parallel calls, like HBase."""

    @property
    def supports_parallel_calls(self) -> bool:
        return True


class Counted:
    """A repository and its counting store."""

    def __init__(self, inner: MemoryStore) -> None:
        self.store = CountingStore(inner)
        self.repository = Repository(self.store, poll_interval=0)
        with self.repository.transaction() as tx:
            tx.add("/a", {"n": 0})
            for number in range(20):
                tx.add(f"/a/{number}", {"n": number})
                tx.add(f"/a/{number}/x")
        self.store.take()


@pytest.fixture(params=[MemoryStore, ParallelMemory])
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    counted = Counted(request.param())
    yield counted
    assert problems(counted.repository) == []
    counted.repository.close()


def fresh(counted: Counted) -> Repository:
    """Open another instance with an empty cache; opening is not counted."""
    other = Repository(counted.store, poll_interval=0, owns_store=False)
    counted.store.take()
    return other


def test_a_commit_on_cached_nodes_takes_four_calls_in_sequence(counted: Counted) -> None:
    with counted.repository.transaction(base=counted.repository.head) as tx:
        tx.set("/a", "p", 1)
    assert counted.store.take() == {CREATE: 2, CREATED: 1, WRITE: 1, READ: 1}


def test_the_timestamp_of_the_journal_row_is_read_while_the_cells_are_written() -> None:
    # Each of the two calls ends only after the other has begun, so sequential calls would never end.
    reading, writing = threading.Event(), threading.Event()
    store = FaultyStore(ParallelMemory())
    repository = Repository(store, poll_interval=0)
    repository.run(lambda tx: tx.set("/", "p", 0))

    def before(call: Call) -> None:
        if (call.method, call.table) == CREATED:
            reading.set()
            assert writing.wait(60)
        elif (call.method, call.table) == WRITE:
            writing.set()
            assert reading.wait(60)

    with repository.transaction(base=repository.head) as tx:
        tx.set("/", "p", 1)
        store.before = before
    store.before = None
    assert reading.is_set()
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


ADJUSTS: dict[str, Callable[[Transaction, str], object]] = {
    "adjust": lambda tx, _: tx.adjust("/a", "n", 1),
    "first adjust": lambda tx, _: tx.adjust("/a", "first", 1),
    "adjust beside a set": lambda tx, _: (tx.adjust("/a", "n", 1), tx.set("/a", "p", 2), tx.set("/a/1", "p", 2)),
    "adjust that expects a version": lambda tx, version: tx.adjust("/a", "n", 1, if_version=version),
}


@pytest.mark.parametrize("kind", ADJUSTS)
@pytest.mark.parametrize("store", [MemoryStore, ParallelMemory, partial(MemoryStore, transactions=True)])
def test_an_adjust_takes_the_calls_of_a_set(store: Callable[[], MemoryStore], kind: str) -> None:
    counted = Counted(store())
    repository = counted.repository
    assert repository.head["/a/1"]["n"] == 1
    counted.store.take()
    with repository.transaction(base=repository.head) as tx:
        tx.set("/a", "p", 1)
    calls = counted.store.take()
    version = repository.head["/a"].version
    with repository.transaction(base=repository.head) as tx:
        ADJUSTS[kind](tx, version)
    assert counted.store.take() == calls
    assert problems(repository) == []
    repository.close()


def test_a_number_with_many_slots_is_read_in_one_call(counted: Counted) -> None:
    base = counted.repository.head
    for _ in range(20):
        with counted.repository.transaction(base=base) as tx:
            tx.adjust("/a", "n", 1)
    other = fresh(counted)
    assert other.head["/a"]["n"] == 20
    assert counted.store.take() == {READ: 1}
    assert other.head["/a"]["n"] == 20
    assert counted.store.take() == {}
    other.close()


def test_a_merge_with_adjusts_takes_two_calls_more_than_one_with_sets(counted: Counted) -> None:
    calls: list[int] = []
    for change in (lambda tx: tx.set("/a", "p", 1), lambda tx: tx.adjust("/a", "n", 1)):
        branch = counted.repository.branch()
        branch.run(change)
        counted.store.take()
        branch.merge()
        calls.append(sum(counted.store.take().values()))
    # The claim is read and replaced.
    assert calls[1] == calls[0] + 2


def test_a_commit_of_a_full_batch_takes_four_calls_too(counted: Counted) -> None:
    with counted.repository.transaction(base=counted.repository.head) as tx:
        for number in range(900):
            tx.add(f"/a/new{number}", {"n": number})
    # One more read shows that none of the 900 exists yet (a list of the children, not 900 rows). On HBase it runs in
    # parallel to the creation of the journal row.
    assert counted.store.take() == {CREATE: 2, CREATED: 1, WRITE: 1, READ: 2}


def test_a_commit_on_nodes_that_are_not_cached_reads_them_once(counted: Counted) -> None:
    other = fresh(counted)
    with other.transaction(base=other.head) as tx:
        tx.set("/a/1", "p", 1)
        tx.set("/a/2", "p", 1)
    calls = counted.store.take()
    # The first commit of an instance also claims its lease.
    assert {kind: count for kind, count in calls.items() if kind[1] != "cluster"} == {
        CREATE: 2,
        CREATED: 1,
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
    assert counted.store.take() == {CREATE: 2, CREATED: 1, WRITE: 1, READ: 1}
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
    assert counted.store.take() == {CREATE: 2, CREATED: 1, WRITE: 1, READ: 1}
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
    assert counted.store.take() == {CREATE: 2, CREATED: 1, WRITE: 1, READ: 2}
    other.close()


def test_transaction_polls_once_unless_a_poll_is_recent(counted: Counted) -> None:
    with counted.repository.transaction() as tx:
        tx.set("/a", "p", 1)
    assert counted.store.take() == {POLL: 1, CREATE: 2, CREATED: 1, WRITE: 1, READ: 1}
    background = Repository(counted.store, poll_interval=5, owns_store=False)
    counted.store.take()
    with background.transaction():
        pass
    assert counted.store.take() == {}
    background.close()


def test_reading_an_uncached_node_is_one_call(counted: Counted) -> None:
    other = fresh(counted)
    assert other.head["/a/3"]["n"] == 3
    assert counted.store.take() == {READ: 1}
    other.close()


def test_reading_a_cached_node_at_head_is_no_call(counted: Counted) -> None:
    other = fresh(counted)
    for _ in range(100):
        assert other.head["/a/3"]["n"] == 3
    assert counted.store.take() == {READ: 1}
    other.close()


def test_a_node_stays_cached_until_a_revision_touches_it(counted: Counted) -> None:
    other = fresh(counted)
    assert other.head["/a/3"]["n"] == 3
    counted.repository.run(lambda tx: tx.set("/a/4", "n", 0))
    other.refresh()
    counted.store.take()
    assert other.head["/a/3"]["n"] == 3
    assert counted.store.take() == {}
    counted.repository.run(lambda tx: tx.set("/a/3", "n", "new"))
    other.refresh()
    counted.store.take()
    assert other.head["/a/3"]["n"] == "new"
    assert counted.store.take() == {READ: 1}
    other.close()


def test_nodes_that_an_instance_commits_stay_in_its_cache(counted: Counted) -> None:
    counted.repository.run(lambda tx: tx.set("/a/3", "n", "own"))
    counted.store.take()
    assert counted.repository.head["/a/3"]["n"] == "own"
    assert counted.store.take() == {}


def test_many_nodes_at_once_are_one_call_a_batch(counted: Counted) -> None:
    other = fresh(counted)
    found = other.head.nodes([f"/a/{number}" for number in range(20)])
    assert len(found) == 20
    assert counted.store.take() == {READ: 1}
    other.close()


def test_a_subtree_is_one_call_a_level(counted: Counted) -> None:
    other = fresh(counted)
    assert len(list(other.head.walk("/a"))) == 41
    # Two levels, and one read that finds no third. HBase reads two levels at a time, so it also requests the next one.
    looks = 4 if counted.store.supports_parallel_calls else 3
    assert counted.store.take() == {READ: 1, ("scan", "nodes"): looks}
    other.close()
    other = fresh(counted)
    assert len(list(other.head.walk("/a", depth=1))) == 21
    assert counted.store.take() == {READ: 1, ("scan", "nodes"): 1}
    other.close()


def test_a_subtree_again_is_no_call_and_reads_only_what_has_changed(counted: Counted) -> None:
    other = fresh(counted)
    assert len(list(other.head.walk("/a"))) == 41
    old = other.head
    counted.store.take()
    for depth, nodes in ((None, 41), (1, 21)):
        assert len(list(other.head.walk("/a", depth))) == nodes
        assert other.head.children("/a") == sorted(map(str, range(20)))
        assert counted.store.take() == {}
    counted.repository.run(lambda tx: (tx.set("/a/3", "n", 4), tx.set("/a/4/x", "n", 5)))
    other.refresh()
    counted.store.take()
    assert sum(node.get("n") == 4 for node in other.head.walk("/a")) == 2
    # One call for a level with a changed node.
    assert counted.store.take() == {READ: 2}
    counted.repository.run(lambda tx: tx.add("/a/new", {"n": 4}))
    other.refresh()
    counted.store.take()
    assert sum(node.get("n") == 4 for node in other.head.walk("/a")) == 3
    assert sum(counted.store.take().values()) <= 5
    assert len(list(other.head.walk("/a"))) == 42
    assert counted.store.take() == {}
    assert len(list(old.walk("/a"))) == 41
    counted.store.take()
    assert len(list(old.walk("/a"))) == 41
    assert counted.store.take() == {}, "a held snapshot is cached as well"
    other.close()


def test_a_snapshot_at_an_old_revision_is_cached(counted: Counted) -> None:
    revision = counted.repository.head.revision
    for number in range(3):
        counted.repository.run(lambda tx, number=number: tx.set("/a/3", "n", -number))
    for repository in (counted.repository, fresh(counted)):
        held = repository.at(revision)
        counted.store.take()
        assert held["/a/3"]["n"] == 3
        assert sum(counted.store.take().values()) <= 2  # the newest version of a column is not visible
        for _ in range(2):
            assert held["/a/3"]["n"] == 3
            assert repository.at(revision)["/a/3"]["n"] == 3
            assert repository.head["/a/3"]["n"] == -2
        assert held.children("/a") == repository.at(revision).children("/a")
        assert counted.store.take()[READ] <= 2
        if repository is not counted.repository:
            repository.close()


def test_pages_of_children_read_all_names_after_some_time(counted: Counted) -> None:
    repository = counted.repository
    repository.run(lambda tx: [tx.add("/w"), *(tx.add(f"/w/{number:04}") for number in range(3_000))])
    other = fresh(counted)
    read = 0
    for number in range(40):
        after = f"{number * 7919 % 2_900:04}"
        page = other.head.children("/w", after, 100)
        assert page == [f"{one:04}" for one in range(int(after) + 1, int(after) + 101)]
        read += sum(counted.store.take().values())
    assert read == 26
    other.close()


def test_a_page_of_a_known_node_reads_only_names(counted: Counted) -> None:
    other = fresh(counted)
    for known, cells in ((False, 5), (True, 4)):
        if known:
            assert other.head["/a"] is not None
        counted.store.take()
        counted.store.traffic()
        assert other.head.children("/a", "15", 3) == ["16", "17", "18"]
        assert counted.store.take() == {READ: 1}
        traffic = counted.store.traffic()
        assert (traffic.rows_read, traffic.cells_read) == (1 if known else 2, cells)
    counted.repository.run(lambda tx: tx.remove("/a"))
    assert "/a" not in other.refresh()
    counted.store.take()
    assert instance_of(other).children(instance_of(other).head(), "/a", "15", 3) == []
    assert counted.store.take() == {}
    other.close()


def test_children_are_one_call(counted: Counted) -> None:
    other = fresh(counted)
    assert len(other.head.children("/a")) == 20
    assert counted.store.take() == {READ: 1}
    assert len(other.head.children("/a")) == 20
    assert other.head.children("/a", "15", 2) == ["16", "17"]
    assert counted.store.take() == {}
    other.close()


def test_counting_few_children_is_one_call_besides_the_node(counted: Counted) -> None:
    other = fresh(counted)
    assert other.head.child_count("/a") == 20
    assert counted.store.take() == {READ: 2}
    assert other.head.child_count("/a") == 20
    assert counted.store.take() == {}
    other.close()


@pytest.mark.parametrize("children", [1_500, 6_000])
def test_counting_many_children_takes_a_constant_number_of_calls(counted: Counted, children: int) -> None:
    repo = counted.repository
    repo.run(lambda tx: [tx.add(f"/a/20/{number}") for number in range(children)] if tx.add("/a/20") is None else None)
    counted.store.take()
    # The first count reads a page to see that they are many, looks for a memo, reads all, and writes a memo.
    assert repo.head.child_count("/a/20") == children
    assert counted.store.take() == {READ: 2, ("read", "cluster"): 1, ("write", "cluster"): 1}
    # The same process reads nothing unless the node changes; then it reads the written columns.
    repo.run(lambda tx: tx.set("/a/1", "n", 1))
    counted.store.take()
    assert repo.head.child_count("/a/20") == children
    assert counted.store.take() == {}
    repo.run(lambda tx: [tx.remove("/a/20/7"), tx.add("/a/20/new")])
    repo.run(lambda tx: tx.add("/a/20/another"))
    counted.store.take()
    assert repo.head.child_count("/a/20") == children + 1
    assert counted.store.take() == {READ: 1}
    # Another process reads the node, a page, the memo, the changes since it, and those columns. A poll shows that the memo
    # is not newer than the journal.
    other = fresh(counted)
    assert other.head.child_count("/a/20") == children + 1
    calls = counted.store.take()
    assert calls.pop(POLL, 0) <= 1
    assert calls.pop(("read", "journal"), 0) <= 1
    assert calls.pop(READ) <= 4
    assert calls == {("read", "cluster"): 1}
    assert other.head.child_count("/a/20") == children + 1
    assert counted.store.take() == {}
    other.close()


def test_an_idle_poll_is_one_call(counted: Counted) -> None:
    for _ in range(3):
        counted.repository.refresh()
        assert counted.store.take() == {POLL: 1}


def test_poll_reads_the_changes_of_new_revisions(counted: Counted) -> None:
    other = fresh(counted)
    counted.repository.run(lambda tx: tx.set("/a", "p", 1))
    counted.repository.run(lambda tx: tx.set("/a", "p", 2))
    counted.store.take()
    other.refresh()
    assert counted.store.take() == {POLL: 1, ("read", "journal"): 1}
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
        ("read", "journal"): 2,
        ("delete", "nodes"): 1,
        ("write", "journal"): 1,
    }
    other.close()


def test_reading_the_newest_of_many_versions_stays_one_call(counted: Counted) -> None:
    for number in range(300):
        counted.repository.run(lambda tx, number=number: tx.set("/a", "n", number))
    other = fresh(counted)
    assert other.head["/a"]["n"] == 299
    assert counted.store.take() == {READ: 1}
    other.close()


def test_opening_reads_settings_and_polls_once(counted: Counted, tmp_path: Path) -> None:
    other = Repository(counted.store, create=False, poll_interval=0, owns_store=False)
    calls = counted.store.take()
    assert calls[POLL] == 1
    assert calls["read", "cluster"] == 1
    other.close()


def test_merge_reads_the_effect_between_two_reads_of_the_head_and_is_one_commit(counted: Counted) -> None:
    branch = counted.repository.branch()
    branch.run(lambda tx: tx.set("/a", "p", 1))
    assert branch.head["/a"]["p"] == 1
    counted.store.take()
    branch.merge()
    # A poll. The head, the head again, the end of the branch. The nodes of the branch; those of trunk are cached, and this
    # instance made the effect. Then the commit, whose read-back finds the branch's own cells and ignores them, because their
    # ids are not trunk's.
    assert counted.store.take() == {
        POLL: 1,
        ("read", "journal"): 3,
        READ: 2,
        CREATE: 3,
        WRITE: 1,
    }
