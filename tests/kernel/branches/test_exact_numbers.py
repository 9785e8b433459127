"""Merges, rebases, moves and copies keep the exact sum and the kind of adjusted numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

import pytest

from hbasemk import Json, Repository, Transaction
from hbasemk.format import values
from hbasemk.format.adjusted import Adjusted
from hbasemk.format.limits import is_long_int
from hbasemk.kernel.branches import merged_part
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.store.memory import MemoryStore
from tests.support.repositories import Instances, problems
from tests.support.seeds import random_of_test
from tests.support.typed_values import Value, all_typed

Change = Callable[[Transaction], object]

CASES: Final = 60
NEXT: Final = 2**60 + 1
"""An int that no float holds."""
NAMES: Final = ("x", "y")
SETS: Final = (0, 1, 10, NEXT, 0.1, 1.5, 1e16, 1e308, Json("1.50"), Json("12"), "text")
AMOUNTS: Final = (1, -1, 5, 0.5, -0.5, 0.1, 0.2, -0.2, 1e16, -1e16, 1e308, -1e308, NEXT, -NEXT)


@pytest.fixture
def repo(opened: Instances) -> Repository:
    """A node with numbers that a read rounds: a sum and a first adjust."""
    made = opened()
    made.run(lambda tx: (tx.add("/a", {"x": NEXT, "text": "t"}), tx.add("/a/1", {"x": 0.1}), tx.add("/other")))
    for by in (0.25, 0.25):
        made.run(lambda tx, by=by: (tx.adjust("/a", "x", by), tx.adjust("/a", "y", by)))  # type: ignore[misc]
    made.adjust("/a/1", "x", 0.2)
    return made


def complete(repository: Repository, path: str) -> None:
    """Add to the sums what makes them readable exactly, and compare."""
    assert repository.refresh()[path] == {"x": float(NEXT), "y": 0.5, "text": "t"}
    repository.run(lambda tx: (tx.adjust(path, "x", 0.5), tx.adjust(path, "y", 0.5), tx.adjust(f"{path}/1", "x", -0.2)))
    expected = {"x": NEXT + 1, "y": 1, "text": "t"}
    assert all_typed(repository.refresh()[path]) == all_typed(expected)
    assert all_typed(repository.head[f"{path}/1"]) == all_typed({"x": 0.1})


def there_and_back(tx: Transaction) -> None:
    tx.move("/a", "/b")
    tx.move("/b", "/a")


WAYS: dict[str, tuple[Change, str]] = {
    "a move": (lambda tx: tx.move("/a", "/b"), "/b"),
    "a move after a read": (lambda tx: (tx.properties("/a"), tx.move("/a", "/b")), "/b"),
    "a copy": (lambda tx: tx.copy("/a", "/b"), "/b"),
    "a copy of a copy": (lambda tx: (tx.copy("/a", "/b"), tx.copy("/b", "/c")), "/c"),
    "a copy to where a node was": (lambda tx: (tx.remove("/other"), tx.copy("/a", "/other")), "/other"),
    "a move there and back": (there_and_back, "/a"),
    "a move with a change": (lambda tx: (tx.move("/a", "/b"), tx.set("/b", "z", 1), tx.unset("/b", "z")), "/b"),
    "adjusts around a move": (
        lambda tx: (tx.adjust("/a", "x", 0.25), tx.move("/a", "/b"), tx.adjust("/b", "x", -0.25)),
        "/b",
    ),
    "a copy of an adjusted copy": (
        lambda tx: (tx.copy("/a", "/b"), tx.adjust("/b", "y", 3), tx.copy("/b", "/c"), tx.adjust("/c", "y", -3)),
        "/c",
    ),
}


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_keeps_exact_sums(repo: Repository, way: str, isolation: Any) -> None:
    change, path = WAYS[way]
    repo.run(change, isolation=isolation)
    complete(repo, path)


@pytest.mark.parametrize("rebases", [False, True], ids=["merge", "rebase"])
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_on_a_branch_keeps_exact_sums(repo: Repository, way: str, rebases: bool) -> None:
    change, path = WAYS[way]
    branch = repo.branch()
    branch.run(change)
    if rebases:
        repo.run(lambda tx: tx.set("/", "t", 1))
        assert branch.rebase() == []
    branch.merge()
    complete(repo, path)


def test_a_marker_holds_the_rounded_number(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.remove("/a"))
    repo.run(lambda tx: tx.set("/a", "text", "theirs"))
    assert branch.rebase() == ["/:conflict"]
    branch.run(lambda tx: tx.adjust("/:conflict/deleteChangedNode/a", "x", 0.5))
    assert branch.head["/:conflict/deleteChangedNode/a"]["x"] == float(NEXT)


def test_a_branch_that_moves_a_node_there_and_back_has_no_effect(repo: Repository) -> None:
    head = repo.head.revision
    branch = repo.branch()
    branch.run(lambda tx: tx.move("/a", "/b"))
    branch.run(lambda tx: tx.move("/b", "/a"))
    assert branch.merge() == head == repo.refresh().revision
    complete(repo, "/a")


def test_a_branch_that_replaces_a_number_by_its_rounded_value_has_an_effect(repo: Repository) -> None:
    with repo.branch() as branch:
        branch.run(lambda tx: (tx.remove("/a/1"), tx.add("/a/1", {"x": 0.1 + 0.2})))
    repo.refresh()
    repo.adjust("/a/1", "x", -0.2)
    assert repo.head["/a/1"]["x"] == (0.1 + 0.2) - 0.2 != 0.1


def test_a_merged_node_that_the_branch_has_removed_again_leaves_nothing_to_do() -> None:
    merged = StagedNode("/b", None)
    merged.exists = merged.is_new = True
    merged.take_properties({"x": values.encode(float(NEXT))}, {"x": Adjusted(values.encode(NEXT), Fraction(-1, 2))})
    assert merged.adjusted == {"x": Fraction(1, 2)}
    # The branch has removed the node since, so its net effect lacks it.
    assert merged_part.without([merged], []) == []


def test_a_number_beyond_the_limits_stays_exact(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"n": 5 * 10**4299}))
    with repo.transaction() as one, repo.transaction() as two:
        for tx in (one, two):
            tx.adjust("/a", "n", 4 * 10**4299)
    repo.refresh()
    repo.adjust("/a", "n", -1.5)
    assert is_long_int(repo.head["/a"]["n"])
    repo.run(lambda tx: tx.move("/a", "/b"))
    branch = repo.branch()
    branch.run(lambda tx: tx.move("/b", "/c"))
    repo.run(lambda tx: tx.set("/", "t", 1))
    assert branch.rebase() == []
    branch.merge()
    repo.refresh()
    for by in (-6 * 10**4299, -6 * 10**4299, 0.5):
        repo.adjust("/c", "n", by)
    assert repo.head["/c"]["n"] == 10**4299 - 1


# --- random histories ------------------------------------------------------------------------------------


def random_changes(chance: random.Random, count: int) -> list[tuple[str, str, Any]]:
    """Return sets, unsets and mostly adjusts: the name of the method, the name of the property, and the argument."""
    found: list[tuple[str, str, Any]] = []
    for _ in range(count):
        kind = chance.choices(("set", "unset", "adjust"), (2, 1, 6))[0]
        argument = chance.choice(SETS if kind == "set" else AMOUNTS)
        found.append((kind, chance.choice(NAMES), argument))
    return found


def apply(tx: Transaction, path: str, changes: Sequence[tuple[str, str, Any]]) -> None:
    """Apply changes; leave out adjusts of a text."""
    for kind, name, argument in changes:
        if kind == "unset":
            tx.unset(path, name)
        elif kind == "set" or tx.get(path, name) != "text":
            getattr(tx, kind)(path, name, argument)


class History:
    """Changes of one node before, during and after a branch or a move; each inner list is one commit."""

    def __init__(self, chance: random.Random) -> None:
        self.begins_before = chance.random() < 0.5
        self.replaces = chance.random() < 0.3
        self.before, self.during, self.after = (
            [random_changes(chance, chance.randrange(1, 3)) for _ in range(chance.randrange(1, most))]
            for most in (4, 5, 7)
        )

    def values(self, way: str) -> Iterator[dict[str, Value]]:
        """Yield the properties before and after each of the last commits; ``way`` says how the ones before them are made."""
        with Repository(MemoryStore(), poll_interval=0) as repo:
            path = "/a"
            if self.begins_before:
                self._begin(repo.run)
            on_branch = way in ("merge", "rebase", "two rebases")
            branch = repo.branch() if on_branch else None
            run = repo.run if branch is None else branch.run
            if not self.begins_before:
                self._begin(run)
            elif self.replaces:
                run(lambda tx: (tx.remove("/a"), tx.add("/a", {"x": NEXT})))
            for at, changes in enumerate(self.during):
                run(lambda tx, changes=changes: apply(tx, path, changes))  # type: ignore[misc]
                if branch is not None and way != "merge" and (way == "two rebases" or at == len(self.during) - 1):
                    repo.run(lambda tx, at=at: tx.set("/", "t", at))  # type: ignore[misc]
                    assert branch.rebase() == []
            if branch is not None:
                branch.merge()
                repo.refresh()
            elif way != "direct":
                repo.run(lambda tx: (tx.move if way == "move" else tx.copy)("/a", "/b"))
                path = "/b"
            yield all_typed(repo.head[path])
            for changes in self.after:
                repo.run(lambda tx, changes=changes: apply(tx, path, changes))  # type: ignore[misc]
                yield all_typed(repo.head[path])
            assert problems(repo) == []

    def _begin(self, run: Callable[[Change], object]) -> None:
        run(lambda tx: tx.add("/a"))
        for changes in self.before:
            run(lambda tx, changes=changes: apply(tx, "/a", changes))  # type: ignore[misc]


def test_every_way_to_the_same_changes_gives_the_same_numbers() -> None:
    chance = random_of_test()
    for _ in range(CASES):
        history = History(chance)
        expected = list(history.values("direct"))
        for way in ("merge", "rebase", "two rebases", "move", "copy"):
            found = list(history.values(way))
            assert found == expected, (way, vars(history))
