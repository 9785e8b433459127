"""Numbers with more digits than the limit: a rebase and its markers accept what a merge and a move accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import Repository, Transaction
from hbasemk.format.limits import is_long_int
from tests.support.repositories import Instances

Change = Callable[[Transaction], object]

LONG = 13 * 10**4299


@pytest.fixture
def repo(opened: Instances) -> Repository:
    """A node with a number beyond the limit, which concurrent adjusts have made."""
    made = opened()
    made.run(lambda tx: (tx.add("/a", {"n": 5 * 10**4299}), tx.add("/other")))
    with made.transaction() as one, made.transaction() as two:
        for tx in (one, two):
            tx.adjust("/a", "n", 4 * 10**4299)
    assert is_long_int(made.head["/a"]["n"])
    return made


MOVES: dict[str, tuple[Change, str]] = {
    "a moved node": (lambda tx: tx.move("/a", "/b"), "/b"),
    "a node below a moved node": (lambda tx: (tx.add("/d"), tx.move("/a", "/d/a")), "/d/a"),
    "a node that was moved away and back": (lambda tx: (tx.move("/a", "/b"), tx.move("/b", "/a")), "/a"),
}


@pytest.mark.parametrize("kind", MOVES)
def test_a_rebase_and_a_merge_of_a_move_keep_the_number(repo: Repository, kind: str) -> None:
    move, path = MOVES[kind]
    branch = repo.branch()
    branch.run(move)
    repo.run(lambda tx: tx.set("/other", "t", 1))
    assert branch.rebase() == []
    assert branch.head[path]["n"] == LONG
    branch.merge()
    assert repo.refresh()[path]["n"] == LONG


def test_a_rebase_applies_an_adjust_whose_amount_or_sum_is_too_long(repo: Repository) -> None:
    repo.run(lambda tx: tx.set("/a", "n", -9 * 10**4299))
    branch = repo.branch()
    for _ in range(2):
        branch.run(lambda tx: tx.adjust("/a", "n", 9 * 10**4299))
    repo.adjust("/a", "n", 6 * 10**4299)
    assert branch.rebase() == []
    branch.merge()
    assert repo.refresh()["/a"]["n"] == 15 * 10**4299


def test_a_rebase_applies_a_set_with_an_adjust_whose_sum_is_too_long(repo: Repository) -> None:
    repo.run(lambda tx: tx.set("/a", "n", 0))
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/a", "n", 9 * 10**4299))
    repo.adjust("/a", "n", 5 * 10**4299)
    assert branch.rebase() == []
    branch.merge()
    assert repo.refresh()["/a"]["n"] == 14 * 10**4299


MARKERS: dict[str, tuple[Change, Change, str, Any]] = {
    "deleteChangedNode": (lambda tx: tx.remove("/a"), lambda tx: tx.set("/a", "t", 1), "/:conflict", "/a"),
    "deleteDeletedNode": (lambda tx: tx.remove("/a"), lambda tx: tx.remove("/a"), "/:conflict", "/a"),
    "changeDeletedNode": (lambda tx: tx.set("/a", "t", 1), lambda tx: tx.remove("/a"), "/:conflict", "/a"),
    "deleteChangedProperty": (lambda tx: tx.unset("/a", "n"), lambda tx: tx.set("/a", "n", 1), "/a/:conflict", ""),
    "deleteDeletedProperty": (lambda tx: tx.unset("/a", "n"), lambda tx: tx.unset("/a", "n"), "/a/:conflict", ""),
    "changeDeletedProperty": (
        lambda tx: tx.adjust("/a", "n", -1),
        lambda tx: tx.unset("/a", "n"),
        "/a/:conflict",
        "",
    ),
}


@pytest.mark.parametrize("kind", MARKERS)
def test_a_marker_holds_the_number(repo: Repository, kind: str) -> None:
    mine, theirs, marker, below = MARKERS[kind]
    branch = repo.branch()
    branch.run(mine)
    repo.run(theirs)
    assert branch.rebase() == [marker]
    expected = LONG - 1 if kind == "changeDeletedProperty" else LONG
    assert branch.head[f"{marker}/{kind}{below}"]["n"] == expected
