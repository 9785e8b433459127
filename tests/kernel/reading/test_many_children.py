"""A commit that adds many children reads the list of the existing ones."""

from __future__ import annotations

import random

import pytest

from hbasemk import NodeExistsError, Transaction
from hbasemk.kernel.commit.staging import MANY
from tests.support.repositories import Instances, tree

LETTERS = "ab\x00\x01ä\ud800z"


def drawn(chance: random.Random, count: int) -> set[str]:
    return {"".join(chance.choice(LETTERS) for _ in range(chance.randint(1, 4))) for _ in range(count)}


def add_all(tx: Transaction, names: set[str]) -> None:
    for name in names:
        tx.add(f"/a/{name}", {"name": 1})


@pytest.mark.parametrize("seed", range(12))
def test_existing_children_are_found_at_any_position(opened: Instances, seed: int) -> None:
    chance = random.Random(seed)
    one, other = opened(), opened()
    there = drawn(chance, chance.choice((0, 3, 60, 300)))
    one.run(lambda tx: (tx.add("/a"), add_all(tx, there)))
    gone = {name for name in sorted(there) if chance.random() < 0.3}
    one.run(lambda tx: [tx.remove(f"/a/{name}") for name in gone])
    left = there - gone
    names = drawn(chance, 3 * MANY)
    assert len(names) >= MANY
    other.refresh()
    if names & left:
        with pytest.raises(NodeExistsError):
            other.run(lambda tx: add_all(tx, names))
    other.run(lambda tx: add_all(tx, names - left))
    assert set(other.refresh().children("/a")) == left | names
    for name in names - left:
        assert other.head[f"/a/{name}"]["name"] == 1


def test_node_removed_and_added_again_has_no_children(opened: Instances) -> None:
    repository = opened()
    names = {f"n{number}" for number in range(2 * MANY)}
    repository.run(lambda tx: (tx.add("/a"), add_all(tx, names)))

    def again(tx: Transaction) -> None:
        tx.remove("/a")
        tx.add("/a")
        add_all(tx, {f"n{number}" for number in range(MANY)})

    repository.run(again)
    assert len(tree(repository)) == 2 + MANY


def test_additions_below_new_nodes_read_nothing(opened: Instances) -> None:
    repository = opened()
    repository.run(
        lambda tx: [
            tx.add("/".join(["", *"abcdefg"[: depth + 1]]), {"depth": depth}) for depth in range(len("abcdefg"))
        ]
    )
    assert tree(repository)["/a/b/c/d/e/f/g"] == {"depth": 6}


def test_many_children_can_be_added_below_the_root(opened: Instances) -> None:
    repository = opened()
    repository.run(lambda tx: [tx.add(f"/n{number}") for number in range(MANY)])
    assert set(repository.head.children("/")) == {f"n{number}" for number in range(MANY)}
    with pytest.raises(NodeExistsError):
        repository.run(lambda tx: [tx.add(f"/n{number}") for number in range(5, MANY + 5)])
