"""Adjusts on branches: a branch that only adjusts never conflicts with what trunk adjusts or sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import ConflictError, Repository, Transaction
from hbasemk.format import paths, schema
from hbasemk.repository import instance_of
from hbasemk.store.abc import Get
from tests.support.repositories import Instances

Change = Callable[[Transaction], object]


@pytest.fixture
def repo(opened: Instances) -> Repository:
    """A node with two numbers, one of which has been adjusted."""
    made = opened()
    made.run(lambda tx: tx.add("/a", {"n": 10, "m": 1.5, "text": "x"}))
    made.adjust("/a", "n", 5)
    return made


def value(repository: Repository, name: str = "n") -> Any:
    return repository.refresh()["/a"].get(name)


MERGES: dict[str, tuple[Change, Change, Any]] = {
    "adjust and adjust": (lambda tx: tx.adjust("/a", "n", 100), lambda tx: tx.adjust("/a", "n", 1), 116),
    "adjust and set": (lambda tx: tx.adjust("/a", "n", 100), lambda tx: tx.set("/a", "n", 1), 101),
    "adjust and set of a text": (lambda tx: tx.adjust("/a", "n", 100), lambda tx: tx.set("/a", "n", "t"), "t"),
    "adjust and unset": (lambda tx: tx.adjust("/a", "n", 100), lambda tx: tx.unset("/a", "n"), None),
    "set and adjust": (lambda tx: tx.set("/a", "n", 100), lambda tx: tx.adjust("/a", "n", 1), 101),
    "set of the same value and adjust": (lambda tx: tx.set("/a", "n", 15), lambda tx: tx.adjust("/a", "n", 1), 16),
    "set, adjust and adjust": (
        lambda tx: (tx.set("/a", "n", 100), tx.adjust("/a", "n", 0.5)),
        lambda tx: tx.adjust("/a", "n", 1),
        101.5,
    ),
    "first adjusts": (lambda tx: tx.adjust("/a", "n2", 100), lambda tx: tx.adjust("/a", "n2", 1), 101),
    "first adjusts that add up to 0": (
        lambda tx: (tx.adjust("/a", "n2", 100), tx.adjust("/a", "n2", -100)),
        lambda tx: tx.adjust("/a", "n2", 1),
        1,
    ),
    "adjust of a plain number": (lambda tx: tx.adjust("/a", "m", 1), lambda tx: tx.adjust("/a", "m", 0.25), 2.75),
}


def name_of(change: str) -> str:
    return "n2" if change.startswith("first") else {"adjust of a plain number": "m"}.get(change, "n")


@pytest.mark.parametrize("kind", MERGES)
@pytest.mark.parametrize("commits", [1, 2])
def test_a_merge_includes_the_adjusts_of_both_sides(repo: Repository, kind: str, commits: int) -> None:
    change, on_trunk, expected = MERGES[kind]
    branch = repo.branch()
    branch.run(change)
    if commits == 2:
        branch.run(lambda tx: tx.adjust("/a", name_of(kind), 7))
        branch.run(lambda tx: tx.adjust("/a", name_of(kind), -7))
    repo.run(on_trunk)
    branch.merge()
    assert value(repo, name_of(kind)) == expected


@pytest.mark.parametrize("kind", [one for one in MERGES if "text" not in one and "unset" not in one])
def test_a_rebase_applies_adjusts_without_a_marker(repo: Repository, kind: str) -> None:
    change, on_trunk, expected = MERGES[kind]
    branch = repo.branch()
    branch.run(change)
    repo.run(on_trunk)
    assert branch.rebase() == []
    assert branch.head["/a"][name_of(kind)] == expected
    repo.adjust("/a", name_of(kind), 1)
    branch.merge()
    assert value(repo, name_of(kind)) == expected + 1


@pytest.mark.parametrize("rebases", [False, True])
def test_first_adjusts_that_add_up_to_0_create_the_property(repo: Repository, rebases: bool) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.adjust("/a", "n2", 2))
    branch.run(lambda tx: tx.adjust("/a", "n2", -2))
    repo.run(lambda tx: tx.set("/a", "m", 0))
    if rebases:
        assert branch.rebase() == []
        assert branch.head["/a"]["n2"] == 0
    branch.merge()
    assert value(repo, "n2") == 0


MARKERS: dict[str, tuple[Change, str]] = {
    "unset": (lambda tx: tx.unset("/a", "n"), "changeDeletedProperty"),
    "set of a text": (lambda tx: tx.set("/a", "n", "t"), "changeChangedProperty"),
}


@pytest.mark.parametrize("kind", MARKERS)
def test_a_rebase_marks_an_adjust_of_a_property_that_is_no_longer_a_number(repo: Repository, kind: str) -> None:
    on_trunk, marker = MARKERS[kind]
    branch = repo.branch()
    branch.run(lambda tx: tx.adjust("/a", "n", 100))
    repo.run(on_trunk)
    assert branch.rebase() == ["/a/:conflict"]
    assert branch.head[f"/a/:conflict/{marker}"]["n"] == 115


def test_a_rebase_marks_a_first_adjust_of_what_became_a_child_or_a_text(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: (tx.adjust("/a", "child", 1), tx.adjust("/a", "word", 2)))
    repo.run(lambda tx: (tx.add("/a/child"), tx.set("/a", "word", "text")))
    assert branch.rebase() == ["/a/:conflict"]
    assert dict(branch.head["/a/:conflict/addExistingProperty"]) == {"child": 1, "word": 2}


def test_a_merge_of_a_set_conflicts_with_a_set(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: (tx.adjust("/a", "n", 1), tx.set("/a", "n", 100)))
    repo.run(lambda tx: tx.set("/a", "n", 1))
    with pytest.raises(ConflictError):
        branch.merge()


def test_an_adjust_that_the_branch_dropped_has_no_effect(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: (tx.adjust("/a", "new", 5), tx.adjust("/a", "n", 5)))
    branch.run(lambda tx: (tx.unset("/a", "new"), tx.set("/a", "n", 15)))
    before = repo.refresh().revision
    branch.merge()
    assert repo.refresh().revision == before
    assert "new" not in repo.head["/a"]


def test_a_branch_continues_with_the_totals_of_another_process(repo: Repository, opened: Instances) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.adjust("/a", "n", 100))
    other = opened().resume_branch(branch.revision)
    other.run(lambda tx: tx.adjust("/a", "n", 1000))
    assert other.head["/a"]["n"] == 1115
    repo.adjust("/a", "n", 1)
    other.merge()
    assert value(repo) == 1116


def test_a_node_that_a_branch_adds_is_plain_in_trunk(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.add("/b", {"n": 1}))
    branch.run(lambda tx: tx.adjust("/b", "n", 2))
    branch.run(lambda tx: tx.adjust("/b", "new", 0.5))
    branch.merge()
    assert dict(repo.refresh()["/b"]) == {"n": 3, "new": 0.5}


def slots_of(repository: Repository) -> int:
    """Return the number of cells that a read of the property returns for its totals."""
    instance = instance_of(repository)
    row = instance.store.read(schema.NODES, [Get(paths.key("/a"), families=(schema.DATA,))])[0]
    return sum(schema.is_slot((cell.family, cell.qualifier)) for cell in row.cells)


def test_merges_of_many_branches_use_one_slot_of_each_process(repo: Repository, opened: Instances) -> None:
    other = opened()
    for number in range(30):
        process = (repo, other)[number % 2]
        process.refresh()
        branch = process.branch()
        branch.run(lambda tx: tx.adjust("/a", "n", 1))
        branch.merge()
    assert value(repo) == 15 + 30
    assert slots_of(repo) <= 2


def test_merges_of_branches_that_overlap_use_a_slot_for_each_of_them(repo: Repository) -> None:
    for _ in range(5):
        branches = [repo.branch() for _ in range(4)]
        for branch in branches:
            branch.run(lambda tx: tx.adjust("/a", "n", 1))
        for branch in branches:
            branch.merge()
    assert value(repo) == 15 + 20
    assert slots_of(repo) <= 5


@pytest.mark.parametrize("amounts", [[0], [1, -1]])
def test_adjusts_that_add_up_to_0_are_no_change_of_the_branch(repo: Repository, amounts: list[int]) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/a", "other", 1), isolation="serializable")
    before = branch.head["/a"].version

    def adjust(tx: Transaction) -> None:
        for by in amounts:
            tx.adjust("/a", "n", by)

    branch.run(adjust, isolation="serializable")
    assert branch.head["/a"].version == before
    repo.run(lambda tx: tx.unset("/a", "n"))
    assert branch.rebase() == []
    branch.merge()
    assert repo.refresh()["/a"] == {"m": 1.5, "text": "x", "other": 1}


def test_a_set_to_the_number_that_an_adjust_of_the_branch_has_created_counts_as_a_set(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.adjust("/a", "new", -1))
    branch.run(lambda tx: tx.set("/a", "new", -1))
    assert branch.head["/a"]["new"] == -1
    repo.run(lambda tx: tx.set("/a", "new", 2))
    with pytest.raises(ConflictError):
        branch.merge()
    assert branch.rebase() == ["/a/:conflict"]
    assert dict(branch.head["/a/:conflict/addExistingProperty"]) == {"new": -1}
    assert branch.head["/a"]["new"] == 2
    branch.run(lambda tx: (tx.remove("/a/:conflict"), tx.adjust("/a", "new", 5)))
    branch.merge()
    assert value(repo, "new") == 7
