"""A name is a property or a child of a node, never both, in any order of concurrent commits."""

from __future__ import annotations

import pytest

from hbasemk import ConflictError, InvalidChangeError, Repository
from hbasemk.kernel.commit.change_set import MANY
from hbasemk.transaction import Transaction
from tests.support.repositories import Instances

BOTH = "cannot be both a property and a child"


def refused(repo: Repository, *changes: object) -> None:
    before = repo.refresh().revision
    for change in changes:
        with pytest.raises(InvalidChangeError, match=BOTH):
            repo.run(change)  # type: ignore[arg-type]
    assert repo.refresh().revision == before


def test_within_one_transaction(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"p": 1}))
    refused(
        repo,
        lambda tx: (tx.set("/a", "x", 1), tx.add("/a/x")),
        lambda tx: (tx.add("/a/x"), tx.set("/a", "x", 1)),
        lambda tx: (tx.add("/a/x"), tx.increment("/a", "x")),
        lambda tx: tx.add("/a/p"),
        lambda tx: (tx.add("/b", {"x": 1}), tx.add("/b/x")),
        lambda tx: (tx.add("/b"), tx.move("/b", "/a/p")),
        lambda tx: tx.copy("/a", "/a/p"),
    )


@pytest.mark.parametrize("cached", [True, False])
def test_a_property_cannot_have_the_name_of_an_existing_child(opened: Instances, cached: bool) -> None:
    opened().run(lambda tx: (tx.add("/a", {"p": 1}), tx.add("/a/x")))
    repo = opened()
    if cached:
        assert repo.refresh()["/a"]["p"] == 1
    refused(repo, lambda tx: tx.set("/a", "x", 1), lambda tx: tx.update("/a", {"p": 2, "x": 1, "z": 3}))
    with pytest.raises(InvalidChangeError, match=BOTH), repo.transaction() as tx:
        tx.increment("/a", "x")
    repo.run(lambda tx: tx.unset("/a", "x"))
    assert repo.statistics.conflicts == 0


def test_a_name_can_change_from_property_to_child_and_back_in_separate_commits(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.add("/a"), tx.add("/a/x")))
    repo.run(lambda tx: (tx.remove("/a/x"), tx.set("/a", "x", 1)))
    assert (dict(repo.head["/a"]), repo.head.children("/a")) == ({"x": 1}, [])
    repo.run(lambda tx: (tx.unset("/a", "x"), tx.add("/a/x")))
    assert (dict(repo.head["/a"]), repo.head.children("/a")) == ({}, ["x"])
    repo.run(lambda tx: tx.remove("/a/x"))
    repo.run(lambda tx: tx.set("/a", "x", 2))
    assert dict(repo.head["/a"]) == {"x": 2}


def test_a_child_of_an_earlier_life_does_not_count(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.add("/a"), tx.add("/a/x")))
    repo.run(lambda tx: tx.remove("/a"))
    repo.run(lambda tx: tx.add("/a"))
    repo.run(lambda tx: tx.set("/a", "x", 1))
    assert (dict(repo.head["/a"]), repo.head.children("/a")) == ({"x": 1}, [])


def add(tx: Transaction) -> None:
    tx.add("/a/x")


def add_many(tx: Transaction) -> None:
    for number in range(2 * MANY):
        tx.add(f"/a/{number}")
    tx.add("/a/x")


def put(tx: Transaction) -> None:
    tx.set("/a", "x", 1)


@pytest.mark.parametrize("child", [add, add_many])
@pytest.mark.parametrize("child_first", [True, False])
def test_two_at_the_same_time(opened: Instances, child: object, child_first: bool) -> None:
    one, other = opened(), opened()
    one.run(lambda tx: tx.add("/a", {"p": 1}))
    other.refresh()
    first, second = one.transaction(), other.transaction()
    for transaction, change in ((first, child if child_first else put), (second, put if child_first else child)):
        change(transaction)  # type: ignore[operator]
    first.commit()
    with pytest.raises(ConflictError, match="child 'x' of /a" if child_first else "property 'x' of /a"):
        second.commit()
    refused(other, put if child_first else child)


def test_different_properties_and_children_do_not_conflict(opened: Instances) -> None:
    one, other = opened(), opened()
    one.run(lambda tx: tx.add("/a", {"p": 1}))
    other.refresh()
    first, second = one.transaction(), other.transaction()
    first.set("/a", "p", 2)
    add_many(second)
    first.commit()
    second.commit()
    assert one.refresh()["/a"]["p"] == 2
    assert one.head.child_count("/a") == 2 * MANY + 1


def test_on_a_branch_and_when_it_is_merged(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.add("/a", {"p": 1}), tx.add("/a/x")))
    branch = repo.branch()
    with pytest.raises(InvalidChangeError, match=BOTH):
        branch.run(lambda tx: tx.set("/a", "x", 1))
    branch.run(lambda tx: tx.set("/a", "y", 1))
    repo.run(lambda tx: tx.add("/a/y"))
    with pytest.raises(ConflictError, match="child 'y' of /a.* Rebase the branch"):
        branch.merge()
    other = repo.branch()
    other.run(lambda tx: tx.add("/a/z"))
    repo.run(lambda tx: tx.set("/a", "z", 1))
    with pytest.raises(ConflictError, match="property 'z' of /a"):
        other.merge()
