"""Versions of columns that only a branch sees, or that nobody sees any more, do not hide from a commit what it must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk import InvalidChangeError
from hbasemk.check import IntegrityCheck
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation, RemoveNode, SetProperty
from hbasemk.kernel.commit.read_back import DEEPER, FEW_VERSIONS
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance

ORDERED = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


def pass_everything(instance: Instance, world: World) -> None:
    """Move the watermark past all revisions, so that reads back begin above them."""
    for number in range(3):
        world.advance(600)
        commit(instance, SetProperty("/", "later", number))
        instance.maintain()
        instance.recovery.advance()


@ORDERED
@pytest.mark.parametrize("change", [SetProperty("/n", "x", 1), Adjust("/n", "x", 1)], ids=["set", "adjust"])
@pytest.mark.parametrize("rounds", [1, 2, FEW_VERSIONS, FEW_VERSIONS * DEEPER])
def test_a_child_keeps_its_name_however_often_branches_have_removed_it(
    world: World, ordered: bool, change: Operation, rounds: int
) -> None:
    store = MemoryStore(world.clock, transactions=ordered)
    instance = open_instance(store, world)
    commit(instance, AddNode("/n", {}), AddNode("/n/x", {}))
    pass_everything(instance, world)
    branch = instance.begin_branch(instance.head())
    for _ in range(rounds):
        branch = commit_on_branch(instance, branch, [RemoveNode("/n/x")])
        branch = commit_on_branch(instance, branch, [AddNode("/n/x", {})])
    with pytest.raises(InvalidChangeError, match="cannot be both a property and a child"):
        commit(instance, change)
    assert list(IntegrityCheck(instance, live=True).run()) == []


@ORDERED
@pytest.mark.parametrize(
    "change",
    [lambda number: SetProperty("/n", "x", number), lambda _: Adjust("/n", "x", 1)],
    ids=["set", "adjust"],
)
def test_a_merge_takes_as_many_calls_for_many_commits_as_for_few(
    world: World, ordered: bool, change: Callable[[int], Operation]
) -> None:
    store = FaultyStore(MemoryStore(world.clock, transactions=ordered))
    instance = open_instance(store, world)
    commit(instance, AddNode("/n", {"x": 0}))
    calls: list[Call] = []
    store.before = calls.append
    found = []
    for commits in (1, FEW_VERSIONS, 50):
        branch = instance.begin_branch(instance.head())
        for number in range(commits):
            branch = commit_on_branch(instance, branch, [change(number + 10 * commits)])
        calls.clear()
        instance.merge_branch(branch, "")
        found.append([call.method for call in calls])
    assert found[1:] == [found[0]] * 2
