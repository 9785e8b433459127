"""A rebase compares the values of three sides: before the branch, on the branch, and on trunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hbasemk import ConflictError, Repository, Transaction
from hbasemk.repository import instance_of
from tests.support.folding import fold
from tests.support.repositories import Instances

Change = Callable[[Transaction], object]


@pytest.fixture
def repo(opened: Instances) -> Repository:
    """A node with a text, and with a number that was set to 10 and adjusted."""
    made = opened()
    made.run(lambda tx: tx.add("/a", {"n": 10, "text": "x"}))
    made.adjust("/a", "n", 5)
    return made


SAME: dict[str, tuple[Change, Sequence[Change], dict[str, Any]]] = {
    "a text": (
        lambda tx: tx.set("/a", "text", "mine"),
        [lambda tx: tx.set("/a", "text", "y"), lambda tx: tx.set("/a", "text", "x")],
        {"n": 15, "text": "mine"},
    ),
    "an absent property": (
        lambda tx: tx.set("/a", "new", 1),
        [lambda tx: tx.set("/a", "new", 2), lambda tx: tx.unset("/a", "new")],
        {"n": 15, "text": "x", "new": 1},
    ),
    "a number": (
        lambda tx: tx.set("/a", "n", 7),
        [lambda tx: tx.set("/a", "n", 99), lambda tx: tx.set("/a", "n", 15)],
        {"n": 7, "text": "x"},
    ),
    "a number, by adjusts": (
        lambda tx: (tx.set("/a", "n", 7), tx.adjust("/a", "n", 1)),
        [lambda tx: tx.set("/a", "n", 99), lambda tx: tx.adjust("/a", "n", -84)],
        {"n": 8, "text": "x"},
    ),
    "a number that the branch removes": (
        lambda tx: tx.unset("/a", "n"),
        [lambda tx: tx.set("/a", "n", 99), lambda tx: tx.set("/a", "n", 15)],
        {"text": "x"},
    ),
    "a number in another life of the node": (
        lambda tx: tx.set("/a", "n", 7),
        [lambda tx: tx.remove("/a"), lambda tx: tx.add("/a", {"n": 15, "text": "x"})],
        {"n": 7, "text": "x"},
    ),
}


@pytest.mark.parametrize("kind", SAME)
def test_what_trunk_has_changed_and_changed_back_is_no_conflict(repo: Repository, kind: str) -> None:
    mine, theirs, expected = SAME[kind]
    branch = repo.branch()
    branch.run(mine)
    for change in theirs:
        repo.run(change)
    with pytest.raises(ConflictError):
        branch.merge()
    assert branch.rebase() == []
    branch.merge()
    assert dict(repo.refresh()["/a"]) == expected


def test_a_fold_is_no_conflict_with_a_set_on_a_branch(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/a", "n", 7))
    assert fold(instance_of(repo), "/a", "n")
    with pytest.raises(ConflictError):
        branch.merge()
    assert branch.rebase() == []
    repo.adjust("/a", "n", 1)
    branch.merge()
    assert repo.refresh()["/a"]["n"] == 8


OTHER: dict[str, Sequence[Change]] = {
    "in another life of the node": [lambda tx: (tx.remove("/a"), tx.add("/a", {"n": 10}))],
    "after an adjust": [
        lambda tx: tx.adjust("/a", "n", -5),
        lambda tx: tx.set("/a", "n", 11),
        lambda tx: tx.set("/a", "n", 10),
    ],
}


@pytest.mark.parametrize("kind", OTHER)
def test_a_set_of_trunk_that_stores_the_same_bytes_is_marked(repo: Repository, kind: str) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/a", "n", 7))
    for change in OTHER[kind]:
        repo.run(change)
    assert repo.head["/a"]["n"] == 10
    assert branch.rebase() == ["/a/:conflict"]
    assert branch.head["/a"]["n"] == 10
    assert branch.head["/a/:conflict/changeChangedProperty"]["n"] == 7


@pytest.mark.parametrize("before", [{}, {"p": 1}], ids=["added", "changed"])
@pytest.mark.parametrize(
    "then", [lambda tx: tx.unset("/b", "p"), lambda tx: tx.set("/b", "p", 3)], ids=["unset", "set"]
)
def test_a_merge_depends_on_a_value_that_both_sides_have_set(
    repo: Repository, before: dict[str, Any], then: Change
) -> None:
    repo.run(lambda tx: tx.add("/b", before))
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/b", "p", 2))
    repo.run(lambda tx: tx.set("/b", "p", 2))
    assert branch.rebase() == []
    repo.run(then)
    with pytest.raises(ConflictError):
        branch.merge()
    assert branch.rebase() == ["/b/:conflict"]
    assert [dict(node) for node in branch.head.walk("/b/:conflict")][1:] == [{"p": 2}]


def test_a_merge_of_what_trunk_has_already_makes_no_revision(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/a", "text", "mine"))
    repo.run(lambda tx: tx.set("/a", "text", "mine"))
    assert branch.rebase() == []
    head = repo.refresh().revision
    assert branch.merge() == head == repo.refresh().revision
