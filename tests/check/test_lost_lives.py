"""Nodes below the horizon of which the cell ``deleted`` is lost: their other cells are reported, and no repair hides them."""

from __future__ import annotations

import contextlib

import pytest

from hbasemk.check import IntegrityCheck, Problem, Repair
from hbasemk.check import problem as kinds
from hbasemk.errors import RevisionCollectedError
from hbasemk.format import paths, schema
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import CellVersion, Delete, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.collecting import BOTH_ORDERS, HOUR, cells, collect, commit
from tests.support.marking_store import MarkingStore, store_in_memory
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree

pytestmark = BOTH_ORDERS


@pytest.fixture
def store(world: World, ordered: bool) -> MemoryStore:
    return store_in_memory(world.clock, ordered=ordered)


def grow_old(one: Instance, world: World) -> None:
    """Let the horizon, and the deletion of marks, pass all that exists."""
    for number in range(3):
        world.advance(3 * HOUR)
        commit(one, SetProperty("/", "tick", number))
        one.maintain()
        collect(one, full=True)


def found(one: Instance) -> list[tuple[str, str, bool]]:
    """Return the kind and path of each problem, and whether it is repairable."""
    return [(problem.kind, problem.path, problem.repairable) for problem in IntegrityCheck(one).run()]


@pytest.mark.parametrize("with_child", [False, True])
def test_the_cells_of_a_node_without_a_life_are_reported_and_stay(
    store: MemoryStore, world: World, with_child: bool
) -> None:
    """A repair hid them, and a collector deleted them then."""
    one = open_instance(store, world)
    revision = commit(one, AddNode("/a", {"title": "kept"}), *([AddNode("/a/k", {})] if with_child else []))
    grow_old(one, world)
    before, intact = cells(store, "/a"), tree(one)
    key = paths.key("/a")
    store.delete(schema.NODES, [Delete(key, [CellVersion(*schema.DELETED, revision)])])
    two = open_instance(store, world, mac=2)
    expected = {(kinds.LIFE, "/a", False), (kinds.DANGLING, "/a", False)}
    if with_child:
        expected.add((kinds.ORPHAN, "/a/k", False))
    assert set(found(two)) == expected
    # The cell may have been there when a check found the problem.
    wrong = [Problem(kind, path, "", "", repairable=True) for kind, path, _ in expected if kind != kinds.LIFE]
    assert set(map(Repair(two).repair, wrong)) == {None}
    grow_old(two, world)
    assert set(found(two)) == expected
    assert cells(store, "/a") == [one for one in before if one[0] != schema.DELETED[1]]
    if isinstance(store, MarkingStore):
        store.compact()
    store.write(schema.NODES, [Put(key, [NewCell(*schema.DELETED, schema.ALIVE, revision)])])
    assert tree(open_instance(store, world, mac=3)) == {**intact, "/": {"tick": 2}}


def test_a_node_that_collectors_delete_during_the_check_is_no_damage(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world, mac=1)
    commit(one, AddNode("/a", {"p": 0}))
    for number in range(20):
        commit(one, SetProperty("/a", "p", number))
    faulty = FaultyStore(store)
    checking = open_instance(faulty, world, mac=2)
    is_removed = False

    def remove(call: Call) -> None:
        nonlocal is_removed
        # The check has read some versions of each column, and is about to read older ones.
        if (call.method, call.table) == ("read", schema.NODES) and not is_removed:
            is_removed = True
            commit(one, RemoveNode("/a"))
            grow_old(one, world)
            assert cells(store, "/a") == []

    faulty.before = remove
    problems: list[Problem] = []
    # The checked snapshot is deleted, too.
    with contextlib.suppress(RevisionCollectedError):
        problems.extend(IntegrityCheck(checking, live=True).run())
    assert is_removed
    assert problems == []
