"""The list of open branches: those of all processes that are neither merged nor rebased nor abandoned."""

from __future__ import annotations

import datetime

import pytest

from hbasemk import FormatError, OpenBranch, Repository
from hbasemk.format import revisions, schema
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.store.hbase import Address, HBaseStore
from tests.support.hbase import HBase
from tests.support.repositories import Instances, instances


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
