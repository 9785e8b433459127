"""A branch whose merging process is killed at any moment takes effect once, whichever process continues it."""

from __future__ import annotations

import contextlib

import pytest

from hbasemk import BranchError
from hbasemk.errors import ClosedError, HbasemkError
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


class Killed:
    """A process that is killed at a store call, and another one that continues its branch."""

    def __init__(self, world: World, *, transactions: bool) -> None:
        store = MemoryStore(world.clock, transactions=transactions)
        self.world = world
        self.faulty = FaultyStore(store)
        self.one, self.two = open_instance(self.faulty, world, mac=1), open_instance(store, world, mac=2)
        commit(self.one, AddNode("/a", {"n": 1}))
        root = self.one.branches.begin(self.one.head())
        self.branch = commit_on_branch(self.one, root, [AddNode("/x", {}), SetProperty("/a", "n", 2)])
        commit(self.two, AddNode("/other", {}))
        self.one.poll()
        self.calls = 0

    def kill(self, at: int, *, after: bool) -> None:
        """From its store call with this number on, the process reaches the store no more."""

        def count(_: Call) -> None:
            self.calls += 1
            if self.calls >= at:
                raise ClosedError("killed")

        self.faulty.after, self.faulty.before = (count, None) if after else (None, count)

    def is_on_trunk(self) -> bool:
        self.two.poll()
        return self.two.reader.node(self.two.head(), "/x") is not None

    def recover(self) -> None:
        """Let the lease of the killed process end, and the other one roll back what it left."""
        self.world.advance(60)
        self.two.poll()
        self.two.maintain()

    def continue_elsewhere(self) -> None:
        """Rebase and merge the branch in the other process."""
        self.two.poll()
        rebased = rebase(self.two.branches, self.branch, self.two.head(), "")
        self.two.branches.merge(rebased, "")


@pytest.mark.parametrize("recovered", [False, True], ids=["at once", "after recovery"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("transactions", [False, True], ids=["steps", "transactions"])
def test_a_merge_killed_at_any_call(transactions: bool, after: bool, recovered: bool) -> None:
    at = 0
    merged: set[bool] = set()
    while True:
        at += 1
        world = World()
        place = Killed(world, transactions=transactions)
        place.kill(at, after=after)
        with contextlib.suppress(HbasemkError):
            place.one.branches.merge(place.branch, "")
        is_merged = place.is_on_trunk()
        merged.add(is_merged)
        if recovered:
            place.recover()
        if is_merged:
            commit(place.two, RemoveNode("/x"))
            with pytest.raises(BranchError, match="has been merged into trunk as"):
                place.continue_elsewhere()
            assert not place.is_on_trunk()
        else:
            place.continue_elsewhere()
            assert place.is_on_trunk()
        assert world.problems() == []
        world.close()
        if place.calls < at:
            break
    assert merged == {False, True}
