"""A process that adjusts dies between any two calls to the store; `hbasemk recover`, or another process, cleans up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.rollback import recover
from hbasemk.store.memory import MemoryStore
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import DIED, DIED_BACKWARDS, SETTLE_SECONDS, Died, Steps

OPERATIONS: dict[str, list[Operation]] = {
    "adjust": [Adjust("/a", "n", 1000)],
    "adjust and first adjust": [Adjust("/a", "n", 1000), Adjust("/a", "first", 1)],
    "adjust beside others": [Adjust("/a", "n", 1000), SetProperty("/a", "first", 1), AddNode("/a/b", {"m": 1})],
}


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


def merge(instance: Instance) -> None:
    """Commit the same adjust to a branch, and merge it."""
    branch = instance.branches.begin(instance.head())
    instance.branches.merge(commit_on_branch(instance, branch, OPERATIONS["adjust and first adjust"]), "")


ACTS: dict[str, Callable[[Instance], object]] = {
    **{name: lambda one, made=made: commit(one, *made) for name, made in OPERATIONS.items()},
    "merge": merge,
}


def by_command(other: Instance) -> None:
    """Recover as ``hbasemk recover`` does."""
    for _ in range(2):
        list(recover(other))


def in_background(other: Instance) -> None:
    """Recover as every instance does from time to time."""
    for _ in range(2):
        other.poll()
        other.maintain()


def dies_at(
    act: Callable[[Instance], object], at: int, way: str, transactions: bool, clean_up: Callable[[Instance], None]
) -> bool:
    """Let a process die at a call of an act; return False if the act has fewer calls."""
    world = World()
    store = MemoryStore(world.clock, transactions=transactions)
    steps = Steps(store)
    one, other = open_instance(steps, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"n": 1}))
    commit(one, Adjust("/a", "n", 10))
    commit(other, Adjust("/a", "n", 100))
    one.poll()
    steps.fail(at, way)
    died = False
    try:
        act(one)
    except Died:
        died = True
    # Another process adjusts beside the cells of the dead one.
    commit(other, Adjust("/a", "n", 10_000))
    assert other.statistics.conflicts == 0
    world.advance(SETTLE_SECONDS)
    clean_up(other)
    world.advance(SETTLE_SECONDS)
    clean_up(other)
    # The next process on the machine uses the slots of the dead one.
    again = open_instance(store, world, mac=1)
    commit(again, Adjust("/a", "n", 100_000))
    for instance in (again, other):
        instance.poll()
        properties = instance.require(instance.head(), "/a").properties
        committed = bool(properties.get("first")) or (act is ACTS["adjust"] and properties["n"] % 10_000 >= 1000)
        assert properties["n"] == 110_111 + 1000 * committed, (at, way)
        assert died or committed
    assert [str(one) for one in IntegrityCheck(other).run() if "branch" not in one.kind] == []
    for instance in (again, other):
        instance.close()
    return died


@pytest.mark.parametrize("clean_up", [by_command, in_background])
@pytest.mark.parametrize("transactions", [False, True], ids=["steps", "transactions"])
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_the_sum_is_exact_whenever_the_process_died(
    act: Callable[[Instance], object], transactions: bool, clean_up: Callable[[Instance], None]
) -> None:
    for way in (DIED, DIED_BACKWARDS):
        at = 0
        while dies_at(act, at, way, transactions, clean_up):
            at += 1
        # A poll, and at least the one transaction that commits.
        assert at >= 2
