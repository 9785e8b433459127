"""Sweeps abandon branches without commits, and delete the cells of a branch only an hour after its end."""

from __future__ import annotations

import pytest

from hbasemk.errors import BranchError, UnknownRevisionError
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.periodic_work import BRANCH_RETENTION_MS
from hbasemk.store.memory import MemoryStore
from tests.support.branches import commit_on_branch
from tests.support.collecting import BOTH_ORDERS, HOUR, commit
from tests.support.marking_store import store_in_memory
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import problems

pytestmark = BOTH_ORDERS


@pytest.fixture
def store(world: World, ordered: bool) -> MemoryStore:
    return store_in_memory(world.clock, ordered=ordered)


CHANGED = ("branch", True, False)


def seen(reader: Instance, at: int) -> tuple[object, bool, bool]:
    """Return what a reader sees at the branch of :func:`changed_branch`: a property, and whether each of two nodes exists."""
    view = reader.at(at)
    exist = [reader.node(view, path) is not None for path in ("/new", "/gone")]
    return reader.require(view, "/n").properties["x"], exist[0], exist[1]


def changed_branch(mine: Instance) -> tuple[int, int]:
    """Create a branch that has set, added and removed something; return its first and its newest revision."""
    commit(mine, AddNode("/n", {"x": "trunk"}), AddNode("/gone", {}))
    root = mine.branches.begin(mine.head())
    changes = [SetProperty("/n", "x", "branch"), RemoveNode("/gone"), AddNode("/new", {})]
    return root, commit_on_branch(mine, root, changes)


def test_snapshots_of_a_branch_that_a_sweep_abandons_stay_readable_for_an_hour(
    store: MemoryStore, world: World
) -> None:
    """Readers that took the snapshot while the branch was open do not notice its end."""
    root, at = changed_branch(open_instance(store, world, mac=1))
    world.advance(24 * HOUR - 0.5)
    reader, sweeper = open_instance(store, world, mac=2), open_instance(store, world, mac=3)
    assert reader.branches.require_head(at)
    world.advance(1)
    assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == [root]
    with pytest.raises(BranchError, match="abandoned"):
        reader.branches.require_head(at)
    for seconds in (1, 4, HOUR - 60):
        world.advance(seconds)
        assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == []
        assert seen(reader, at) == CHANGED
    world.advance(60)
    assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == [root]
    with pytest.raises(UnknownRevisionError):
        open_instance(store, world, mac=5).at(at)
    assert problems(sweeper) == []


def test_a_branch_that_is_merged_after_a_day_stays_readable_for_an_hour(store: MemoryStore, world: World) -> None:
    mine, sweeper = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    root, at = changed_branch(mine)
    world.advance(24 * HOUR - 1)
    mine.branches.merge(at, "")
    world.advance(HOUR - 60)
    assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == []
    assert seen(sweeper, at) == CHANGED
    world.advance(120)
    assert sweeper.branches.sweep(BRANCH_RETENTION_MS) == [root]


def test_the_hourly_work_abandons_a_branch_and_deletes_it_an_hour_later(store: MemoryStore, world: World) -> None:
    root, at = changed_branch(open_instance(store, world, mac=1))
    world.advance(24 * HOUR)
    other = open_instance(store, world, mac=2)
    commit(other, AddNode("/other", {}))

    def an_hour_later() -> bool:
        """Let the hourly work run, and return whether it has deleted the branch."""
        for _ in range(int(HOUR / 5) + 1):
            world.advance(5)
            other.maintain()
        return root not in other.branches._heads._all_unswept()[1]

    assert not an_hour_later()
    assert other.open_branches() == []
    assert seen(open_instance(store, world, mac=3), at) == CHANGED
    assert an_hour_later()
    assert problems(other) == []


@pytest.mark.parametrize("retention_ms", [0, 60_000])
def test_a_sweep_with_a_shorter_retention_waits_as_long_after_the_end(
    store: MemoryStore, world: World, retention_ms: int
) -> None:
    root, at = changed_branch(open_instance(store, world, mac=1))
    world.advance(retention_ms / 1000 + 1)
    other = open_instance(store, world, mac=2)
    if retention_ms:
        assert other.branches.sweep(retention_ms) == [root]
        assert other.branches.sweep(retention_ms) == []
        assert other.open_branches() == []
        assert seen(other, at) == CHANGED
        world.advance(retention_ms / 1000 + 1)
    assert other.branches.sweep(retention_ms) == [root]
    assert problems(other) == []
