"""The version of a node."""

from __future__ import annotations

import random

import pytest

from hbasemk import (
    Repository,
    Transaction,
)
from tests.support.repositories import Instances
from tests.support.versions import Change, pair_with_nodes, version


@pytest.fixture
def two(opened: Instances) -> tuple[Repository, Repository]:
    return pair_with_nodes(opened)


CHANGING: dict[str, Change] = {
    "set": lambda tx: tx.set("/a", "p", 2),
    "set another": lambda tx: tx.set("/a", "new", 2),
    "unset": lambda tx: tx.unset("/a", "p"),
    "update": lambda tx: tx.update("/a", {"p": 5, "q": None}),
    "increment": lambda tx: tx.increment("/a", "p"),
}
KEEPING: dict[str, Change] = {
    "nothing": lambda tx: None,
    "set to its value": lambda tx: tx.set("/a", "p", 1),
    "unset an absent one": lambda tx: tx.unset("/a", "absent"),
    "add a child": lambda tx: tx.add("/a/new"),
    "remove a child": lambda tx: tx.remove("/a/b"),
    "change a child": lambda tx: tx.set("/a/b", "p", 2),
    "copy it": lambda tx: tx.copy("/a", "/copy"),
    "move a node below it": lambda tx: tx.move("/c", "/a/c"),
    "expect": lambda tx: tx.expect("/c", None) if not tx.exists("/c") else None,
}


@pytest.mark.parametrize("name", CHANGING)
def test_each_change_of_a_property_changes_the_version_everywhere(
    two: tuple[Repository, Repository], name: str
) -> None:
    first, second = two
    before = version(first, "/a")
    assert version(second, "/a") == before
    first.run(CHANGING[name])
    after = version(first, "/a")
    assert after != before
    assert version(second, "/a") == after


@pytest.mark.parametrize("name", KEEPING)
def test_children_and_changes_without_effect_keep_the_version(two: tuple[Repository, Repository], name: str) -> None:
    first, second = two
    before = version(first, "/a")
    first.run(KEEPING[name])
    assert version(first, "/a") == version(second, "/a") == before


def test_the_same_values_again_have_another_version(two: tuple[Repository, Repository]) -> None:
    first, _ = two
    seen = {version(first, "/a")}
    for value in (2, 1):
        first.run(lambda tx, value=value: tx.set("/a", "p", value))  # type: ignore[misc]
        seen.add(version(first, "/a"))

    def renew(tx: Transaction) -> None:
        tx.remove("/a")
        tx.add("/a", {"p": 1, "q": 1})

    first.run(renew)
    seen.add(version(first, "/a"))
    first.run(lambda tx: tx.remove("/a"))
    assert version(first, "/a") is None
    first.run(lambda tx: tx.add("/a", {"p": 1, "q": 1}))
    seen.add(version(first, "/a"))
    assert len(seen) == 5


def test_a_cached_version_is_the_stored_one(opened: Instances) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    one = opened()
    paths = ["/a", "/b", "/a/x", "/b/x"]

    def change(tx: Transaction) -> None:
        for _ in range(draw.randint(1, 5)):
            path, name = draw.choice(paths), draw.choice("pqr")
            if not tx.exists(path):
                if path.count("/") == 1 or tx.exists(path[:2]):
                    tx.add(path, {name: 1} if draw.random() < 0.7 else None)
            elif draw.random() < 0.2:
                tx.remove(path)
            elif draw.random() < 0.3:
                tx.unset(path, name)
            else:
                tx.set(path, name, draw.randrange(3))

    for _ in range(60):
        one.run(change)
        head = one.head
        stored = opened()
        for path in paths:
            mine, others = head.get(path), stored.head.get(path)
            assert (mine and mine.version) == (others and others.version)
        stored.close()


def test_an_old_snapshot_shows_the_old_version_and_so_does_a_branch(two: tuple[Repository, Repository]) -> None:
    first, second = two
    old = first.head
    before = old["/a"].version
    branch = first.branch()
    first.run(lambda tx: tx.set("/a", "p", 2))
    assert old["/a"].version == before
    assert second.at(old.revision)["/a"].version == before
    assert branch.head["/a"].version == before
    branch.run(lambda tx: tx.set("/a", "q", 2))
    assert branch.head["/a"].version not in (before, version(first, "/a"))
