"""A merge that an interrupt ends is either not made, or it ends its branch: nothing is merged twice."""

from __future__ import annotations

import pytest

from hbasemk import BranchError
from hbasemk.errors import ClosedError, HbasemkError
from hbasemk.format import schema
from hbasemk.kernel.branches.heads import BranchHeads
from hbasemk.kernel.branches.one_transaction import BranchTransactions
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation, RemoveNode
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.branches import STEPS, commit_on_branch
from tests.support.runtime import World, open_instance


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


class Interrupted:
    """Two processes, and a branch of the first one that adds a node, adjusts another, and is merged with an interrupt."""

    def __init__(self, world: World, *, transactions: bool = False, parallel: bool = False, adjusts: bool) -> None:
        store = MemoryStore(world.clock, transactions=transactions, parallel=parallel)
        self.faulty = FaultyStore(store)
        self.one, self.two = open_instance(self.faulty, world, mac=1), open_instance(store, world, mac=2)
        commit(self.one, AddNode("/a", {"n": 1}))
        operations: list[Operation] = [AddNode("/x", {}), *([Adjust("/a", "n", 1)] if adjusts else [])]
        self.branch = commit_on_branch(self.one, self.one.branches.begin(self.one.head()), operations)
        self.calls = 0

    def merge(self, at: int, *, after: bool) -> None:
        """Merge, with an interrupt before or after the store's call with this number."""

        def count(_: Call) -> None:
            self.calls += 1
            if self.calls == at:
                raise KeyboardInterrupt

        self.faulty.after, self.faulty.before = (count, None) if after else (None, count)
        try:
            self.one.branches.merge(self.branch, "")
        finally:
            self.faulty.after = self.faulty.before = None

    def is_on_trunk(self) -> bool:
        self.two.poll()
        return self.two.reader.node(self.two.head(), "/x") is not None

    def merge_again(self) -> None:
        """Merge again, as the caller would; what is on trunk already must not be merged a second time."""
        if not self.is_on_trunk():
            self.one.poll()
            self.one.branches.merge(self.branch, "")
            assert self.is_on_trunk()
            return
        commit(self.two, RemoveNode("/x"))
        self.one.poll()
        with pytest.raises(BranchError, match="has been merged into trunk as"):
            self.one.branches.merge(self.branch, "")
        assert not self.is_on_trunk()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("adjusts", [False, True], ids=["plain", "adjusts"])
@STEPS
def test_an_interrupt_at_any_call(after: bool, adjusts: bool, transactions: bool, parallel: bool) -> None:
    at = outcomes = 0
    merged: set[bool] = set()
    while True:
        at += 1
        world = World()
        place = Interrupted(world, transactions=transactions, parallel=parallel, adjusts=adjusts)
        try:
            place.merge(at, after=after)
        except KeyboardInterrupt:
            merged.add(place.is_on_trunk())
            place.merge_again()
            outcomes += 1
        except HbasemkError as error:
            raise AssertionError(f"the interrupt at call {at} became another error") from error
        else:
            if place.calls < at:
                break
        assert world.problems() == []
        world.close()
    assert outcomes > 2
    assert merged == {False, True}


def test_an_interrupt_before_the_branch_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Interrupted(world, adjusts=False)

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BranchHeads, "close_merged", interrupt)
        with pytest.raises(KeyboardInterrupt):
            place.merge(0, after=False)
    assert place.is_on_trunk()
    place.merge_again()


def test_a_merge_after_an_interrupted_rebase_says_that_the_branch_is_rebased(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Interrupted(world, transactions=True, adjusts=True)
    commit(place.two, AddNode("/other", {}))
    place.one.poll()

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The claim of the rebase, which goes step by step, is final by then.
        patch.setattr(BranchTransactions, "fits", lambda *_: False)
        patch.setattr(BranchHeads, "close_rebased", interrupt)
        with pytest.raises(KeyboardInterrupt):
            rebase(place.one.branches, place.branch, place.one.head(), "")
    with pytest.raises(BranchError, match="has been rebased"):
        place.one.branches.merge(place.branch, "")
    assert not place.is_on_trunk()


def test_a_merge_whose_store_is_closed_before_the_branch_ends_has_succeeded(world: World) -> None:
    place = Interrupted(world, adjusts=False)
    decided: list[Call] = []

    def close(call: Call) -> None:
        # The creation of the row and the claim of the branch precede the decision.
        if (call.method, call.table) == ("check_and_write", schema.JOURNAL):
            decided.append(call)
            if len(decided) > 3:
                raise ClosedError("closed")

    place.faulty.before = close
    assert place.one.branches.merge(place.branch, "")
    assert len(decided) > 3
    place.faulty.before = None
    place.merge_again()
