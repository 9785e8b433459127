"""The list of open branches: those of all processes that are neither merged nor rebased nor abandoned."""

from __future__ import annotations

import datetime

import pytest

from hbasemk import FormatError, OpenBranch, Repository, StoreNotAppliedError
from hbasemk.format import revisions, schema
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.collecting import commit
from tests.support.hbase import HBase
from tests.support.interrupting import in_files, interrupted_at, place, points_of
from tests.support.repositories import Instances, instances
from tests.support.runtime import World, open_instance


def names(listed: list[OpenBranch]) -> list[str]:
    return [one.message for one in listed]


def endings(one: Repository, other: Repository) -> None:
    """List branches of two processes while they continue, move and end."""
    assert one.branches() == []
    base = one.run(lambda tx: (tx.add("/a"), tx)[1]).revision
    first, second = one.branch("the first"), other.branch("the second\nwith more")
    begun = second.revision
    second.run(lambda tx: tx.set("/", "n", 1))
    for repository in (one, other):
        found = repository.branches()
        assert names(found) == ["the first", "the second\nwith more"]
        assert [each.revision for each in found] == [first.revision, second.revision]
        assert [each.first for each in found] == [first.revision, begun]
        assert {each.base for each in found} == {base}
        assert all(repository.resume_branch(each.revision).revision == each.revision for each in found)
        assert found[1].begun == repository.at(begun).time
        assert found[1].time == repository.at(second.revision).time
        assert abs(datetime.datetime.now(datetime.timezone.utc) - found[1].time) < datetime.timedelta(minutes=5)
        assert all(each.writer is not None and "(format" in each.writer for each in found)
    later = one.run(lambda tx: (tx.add("/b"), tx)[1]).revision
    first.rebase()
    # The rebase has ended the first branch and begun another one.
    assert [each.revision for each in one.branches()] == [second.revision, first.revision]
    assert [each.base for each in one.branches()] == [base, later]
    second.merge()
    assert [each.revision for each in one.branches()] == [first.revision]
    first.abandon()
    assert one.branches() == other.branches() == []


def test_open_branches_are_listed_until_they_end(opened: Instances) -> None:
    endings(opened(), opened())


@pytest.mark.integration
def test_open_branches_are_listed_until_they_end_on_hbase(hbase: HBase) -> None:
    prefix = hbase.prefix_with_tables()
    with instances(lambda: HBaseStore([Address(hbase.host, hbase.thrift2)], prefix=prefix)) as opened:
        endings(opened(), opened())


def test_a_branch_that_a_sweep_ends_is_not_listed(opened: Instances) -> None:
    one = opened()
    one.branch("forgotten")
    assert names(one.branches()) == ["forgotten"]
    one.sweep_branches(0)
    assert one.branches() == []


def test_the_writer_is_unknown_when_another_process_holds_its_machine_id(opened: Instances) -> None:
    one = opened()
    branch = one.branch()
    (found,) = one.branches()
    assert found.writer is not None
    machine = schema.machine_key(revisions.machine_of(revisions.from_text(branch.revision)))
    (row,) = one.store.read(schema.CLUSTER, [Get(machine, columns=(schema.LEASE,))])
    record = row.cells[0].value
    for other in (b"\x00\x00\x01" + record[3:], b"short"):
        one.store.write(schema.CLUSTER, [Put(machine, [NewCell(*schema.LEASE, other)])])
        assert [each.writer for each in one.branches()] == [None]
    one.store.write(schema.CLUSTER, [Put(machine, [NewCell(*schema.LEASE, record)])])
    branch.abandon()


def test_a_damaged_branch_is_an_error_that_names_its_row(opened: Instances) -> None:
    one = opened()
    key = schema.revision_key(revisions.from_text(one.branch().revision))

    def set_head(head: bytes) -> None:
        one.store.write(schema.JOURNAL, [Put(key, [NewCell(*schema.BRANCH_HEAD, head)])])

    set_head(b"damaged")
    with pytest.raises(FormatError, match="table 'journal'"):
        one.branches()
    set_head(key)
    assert len(one.branches()) == 1


@pytest.mark.parametrize("rebased", [False, True])
@pytest.mark.parametrize("given", [None, "another"])
def test_a_branch_that_another_process_continues_keeps_its_message(
    opened: Instances, rebased: bool, given: str | None
) -> None:
    one, two = opened(), opened()
    branch = one.branch("ü draft")
    branch.run(lambda tx: tx.add("/mine"), "step")
    one.run(lambda tx: tx.add("/theirs"))
    resumed = two.resume_branch(branch.revision)
    if rebased:
        resumed.rebase()
        assert [found.message for found in one.branches()] == ["ü draft"]
        resumed = one.resume_branch(resumed.revision)
    merged = resumed.merge(given)
    (entry,) = (entry for entry in one.log() if entry.revision == merged)
    assert entry.message == (given or "ü draft")


def test_the_end_of_a_block_ends_a_branch_without_effect(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"n": 1}))
    head = repo.head.revision
    with repo.branch("no change") as branch:
        pass
    assert (branch.merged, repo.branches()) == (head, [])
    with repo.branch("there and back") as branch:
        branch.run(lambda tx: tx.set("/a", "n", 2))
        branch.run(lambda tx: tx.set("/a", "n", 1))
    assert (branch.merged, repo.branches()) == (head, [])


def test_a_merge_without_effect_leaves_the_branch_open(opened: Instances) -> None:
    repo = opened()
    branch = repo.branch("no change yet")
    assert branch.merge() == repo.head.revision
    assert names(repo.branches()) == ["no change yet"]
    branch.run(lambda tx: tx.add("/a"))
    branch.merge()
    assert repo.branches() == []
    assert repo.head.children("/") == ["a"]


def test_a_branch_without_effect_stays_open_if_another_process_commits_to_it(opened: Instances) -> None:
    store = FaultyStore(opened.new_store())
    one, two = opened(store), opened()

    def commit_elsewhere(call: Call) -> None:
        if call.method == "check_and_write":
            store.before = None
            two.resume_branch(first).run(lambda tx: tx.add("/a"))

    with one.branch("shared") as branch:
        first = branch.revision
        store.before = commit_elsewhere
    assert store.before is None
    (found,) = two.branches()
    two.resume_branch(found.revision).merge()
    assert one.refresh().children("/") == ["a"]


def test_a_block_without_effect_succeeds_although_its_branch_cannot_be_ended(opened: Instances) -> None:
    store = FaultyStore(opened.new_store())
    repo = opened(store, retry_timeout=0)

    def refuse(call: Call) -> None:
        if call.method == "check_and_write":
            raise StoreNotAppliedError("the test refuses this")

    with repo.branch("no change") as branch:
        store.before = refuse
    assert branch.merged == repo.head.revision
    store.before = None
    assert names(repo.branches()) == ["no change"]
    branch.abandon()


@pytest.mark.parametrize("transactions", [False, True], ids=["scanned", "ordered"])
def test_an_interrupted_begin_leaves_no_branch_open(world: World, transactions: bool) -> None:
    one = open_instance(MemoryStore(world.clock, transactions=transactions), world, mac=1)
    commit(one, AddNode("/a", {}))
    points = points_of(
        lambda: one.abandon_branch(one.begin_branch(one.head())),
        in_files("branches/branches.py", "branches/branch_revisions.py"),
    )
    points = [point for point in points if point[0].co_name in ("begin", "_create", "add")]
    assert {point[0].co_name for point in points} == {"begin", "_create", "add"}
    for point in points:
        if interrupted_at(point, lambda: one.begin_branch(one.head())):
            assert one.open_branches() == [], f"interrupted at {place(point)}"
