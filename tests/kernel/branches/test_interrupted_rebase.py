"""An interrupt in the begin of a branch or in a rebase leaves at most one open branch, with all changes."""

from __future__ import annotations

import pytest

from hbasemk import BranchError
from hbasemk.errors import HbasemkError
from hbasemk.format import revisions
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.branches import STEPS, commit_on_branch
from tests.support.runtime import World, open_instance


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


class Interrupted:
    """Two processes; the store of the first one interrupts a call."""

    def __init__(self, world: World, *, transactions: bool = False, parallel: bool = False) -> None:
        store = MemoryStore(world.clock, transactions=transactions, parallel=parallel)
        self.faulty = FaultyStore(store)
        self.one, self.two = open_instance(self.faulty, world, mac=1), open_instance(store, world, mac=2)
        commit(self.one, AddNode("/a", {"n": 1}))
        self.calls = 0

    def interrupt(self, at: int, *, after: bool) -> None:
        """Interrupt before or after the store's call with this number."""

        def count(_: Call) -> None:
            self.calls += 1
            if self.calls == at:
                raise KeyboardInterrupt

        self.faulty.after, self.faulty.before = (count, None) if after else (None, count)

    def end(self) -> None:
        self.faulty.after = self.faulty.before = None

    def open_branches(self) -> list[int]:
        return [one.newest for one in self.two.open_branches()]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@STEPS
def test_an_interrupted_begin_leaves_no_branch(after: bool, transactions: bool, parallel: bool) -> None:
    at = 0
    while True:
        at += 1
        world = World()
        place = Interrupted(world, transactions=transactions, parallel=parallel)
        place.interrupt(at, after=after)
        try:
            place.one.begin_branch(place.one.head())
        except KeyboardInterrupt:
            place.end()
            assert place.open_branches() == [], at
        else:
            if place.calls < at:
                break
        assert world.problems() == []
        world.close()
    assert at > 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("adjusts", [False, True], ids=["plain", "adjusts"])
@STEPS
def test_an_interrupted_rebase_leaves_one_branch_with_all_changes(
    after: bool, adjusts: bool, transactions: bool, parallel: bool
) -> None:
    at, rebased = 0, set()
    while True:
        at += 1
        world = World()
        place = Interrupted(world, transactions=transactions, parallel=parallel)
        change: list[Operation] = [AddNode("/x", {}), *([Adjust("/a", "n", 1)] if adjusts else [])]
        branch = commit_on_branch(place.one, place.one.branches.begin(place.one.head()), change)
        commit(place.two, AddNode("/other", {}))
        place.one.poll()
        place.interrupt(at, after=after)
        try:
            rebase(place.one.branches, branch, place.one.head(), "")
        except KeyboardInterrupt:
            place.end()
        except HbasemkError as error:
            raise AssertionError(f"the interrupt at call {at} became another error") from error
        else:
            if place.calls < at:
                break
        place.end()
        (newest,) = place.open_branches()
        rebased.add(newest != branch)
        if newest != branch:
            with pytest.raises(BranchError) as raised:
                place.two.branches.require_head(branch)
            assert raised.value.continues_at is not None
            assert int(raised.value.continues_at, 16) == newest, revisions.to_text(newest)
        place.two.poll()
        place.two.branches.merge(newest, "")
        place.two.poll()
        assert place.two.reader.node(place.two.head(), "/x") is not None
        assert place.two.reader.require(place.two.head(), "/a").properties["n"] == 1 + adjusts
        assert world.problems() == []
        world.close()
    # A transaction ends the old branch in the last call, so an interrupt before a call is before the rebase.
    assert rebased == ({False} if transactions and not after else {False, True})
