"""A process that has made a branch knows how the branch leaves its nodes, without a read; and this is what a read finds."""

from __future__ import annotations

import random

import pytest

from hbasemk.errors import InvalidChangeError, NodeExistsError, NodeNotFoundError
from hbasemk.format.node import NodeState
from hbasemk.kernel.branches.cache import MOST_BYTES, MOST_CHANGES
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.operations import AddNode, Adjust, Increment, MoveNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from tests.support.branches import commit_on_branch
from tests.support.collecting import commit
from tests.support.runtime import World, open_instance
from tests.support.seeds import random_of_test
from tests.support.simulation.crashes.sites import problems

ROUNDS = 400
PATHS = ("/a", "/b", "/a/c", "/b/c")


def random_change(chance: random.Random) -> Operation:
    choose = chance.choice
    path, name = choose(PATHS), choose("nm")
    return choose(
        [
            AddNode(path, {"n": choose([0, 1])}),
            RemoveNode(path),
            SetProperty(path, name, choose([0, 1, 2.5, "text", None])),
            SetProperty(path, name, choose([0, 1])),
            Adjust(path, name, choose([1, -1, 0.5])),
            Increment(path, name, 1),
            MoveNode(path, choose(PATHS)),
        ]
    )


def change(instance: Instance, chance: random.Random, revision: int | None) -> int:
    """Make random changes on trunk (None) or on a branch; return the newest revision."""
    try:
        operations = [random_change(chance) for _ in range(chance.choice([1, 1, 2, 3]))]
        if revision is None:
            commit(instance, *operations)
            return 0
        return commit_on_branch(instance, revision, operations)
    except (NodeExistsError, NodeNotFoundError, InvalidChangeError):
        return revision or 0


def parts(state: NodeState | None) -> object:
    if state is None:
        return None
    properties = {name: state.property_of(name) for name in "nm"}
    return state.path, state.created, state.revision, state.encoded, properties, dict(state.later)


@pytest.mark.no_cover
@pytest.mark.parametrize("transactions", [False, True])
def test_known_states_are_those_that_a_read_finds(transactions: bool) -> None:
    chance = random_of_test()
    known = sum(known_states_of_a_branch(chance, transactions=transactions) for _ in range(ROUNDS))
    assert known > ROUNDS


def known_states_of_a_branch(chance: random.Random, *, transactions: bool) -> int:
    """Make random changes on a branch; compare the states that its process knows with reads, and return their number."""
    world = World()
    store = MemoryStore(world.clock, transactions=transactions)
    one, two = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    for _ in range(8):
        change(chance.choice([one, two]), chance, None)
        one.poll()
        two.poll()
    at = one.branches.begin(one.head())
    known = 0
    for _ in range(12):
        at = change(one, chance, at)
        if chance.random() < 0.2:
            change(two, chance, None)
        if chance.random() < 0.1:
            one.poll()
            at = rebase(one.branches, at, one.head())
        state = one.branches.find(at)
        found = two.reader.nodes(state.view, list(state.states))
        for path, node in found.items():
            assert parts(node) == parts(state.states[path])
        assert {change.path for change in state.changes or ()} >= state.states.keys()
        known += len(state.states)
    assert problems(one) == []
    return known


def test_a_node_with_a_property_that_is_set_to_its_value_is_read_again() -> None:
    """The commit writes another base than the plan has, if an adjust created the property."""
    world = World()
    one = open_instance(MemoryStore(world.clock), world)
    commit(one, AddNode("/a", {}))
    adjusted = commit_on_branch(one, one.branches.begin(one.head()), [Adjust("/a", "n", 1)])
    assert one.branches.find(adjusted).states.keys() == {"/a"}
    repeated = commit_on_branch(one, adjusted, [SetProperty("/a", "n", 1)])
    assert one.branches.find(repeated).states == {}


def test_the_states_of_a_large_branch_are_read_again() -> None:
    world = World()
    one = open_instance(MemoryStore(world.clock), world)
    root = one.branches.begin(one.head())
    few = commit_on_branch(one, root, [AddNode("/a", {"x": "x" * 100})])
    assert one.branches.find(few).states.keys() == {"/", "/a"}
    large = commit_on_branch(one, few, [SetProperty("/a", "x", "x" * MOST_BYTES)])
    assert one.branches.find(large).states == {}
    one.branches.merge(large, "")
    assert one.require(one.head(), "/a").properties == {"x": "x" * MOST_BYTES}
    root = one.branches.begin(one.head())
    many = commit_on_branch(one, root, [AddNode(f"/{number}", {}) for number in range(MOST_CHANGES)])
    assert one.branches.find(many).states == {}
