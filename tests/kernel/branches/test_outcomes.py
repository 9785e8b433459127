"""The outcome of a revision of a branch whose last request is held by the transport, and may arrive later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from hbasemk import BranchError, CommitUnknownError, StoreUnknownError
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, WrappedStore
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance

T = TypeVar("T")


class HoldingStore(WrappedStore):
    """A store whose transport holds compare-and-sets instead of delivering them, from the second one on."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.holds = False
        self.held: list[Callable[[], Any]] = []
        self._made = 0

    def around(self, call: Call, do: Callable[[], T]) -> T:
        if self.holds and call.method == "check_and_write":
            self._made += 1
            # The first one creates the journal row.
            if self._made > 1:
                self.held.append(do)
                raise StoreUnknownError("no reply")
        return do()


class Held:
    """A branch with one commit, and a request in doubt that moves its head."""

    def __init__(self, world: World, act: Callable[[Instance, int, int], object]) -> None:
        store = MemoryStore(world.clock, transactions=False)
        self.store = HoldingStore(store)
        one, self.two = open_instance(self.store, world, mac=1), open_instance(store, world, mac=2)
        self.first = commit_on_branch(one, one.branches.begin(one.head()), [AddNode("/first", {})])
        self.head = commit_on_branch(one, self.first, [AddNode("/second", {})])
        self.store.holds = True
        with pytest.raises(CommitUnknownError) as raised:
            act(one, self.head, self.first)
        self.store.holds = False
        self.doubtful = int(str(raised.value.revision), 16)

    def outcome(self) -> Outcome:
        return self.two.outcome(self.doubtful)

    def arrive(self) -> None:
        for request in self.store.held:
            request()


ACTS: dict[str, Callable[[Instance, int, int], object]] = {
    "commit": lambda one, head, _: commit_on_branch(one, head, [AddNode("/doubtful", {})]),
    "reset": lambda one, head, first: one.branches.reset(head, first),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_held_request_that_arrives_is_not_applied_beside_a_repetition(world: World, act: str) -> None:
    held = Held(world, ACTS[act])
    assert held.outcome() is Outcome.ABORTED
    held.arrive()
    assert held.outcome() is Outcome.COMMITTED
    with pytest.raises(BranchError, match="continues at"):
        commit_on_branch(held.two, held.head, [AddNode("/doubtful", {})])


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("then", ["commit", "reset", "merge", "rebase", "abandon"])
def test_the_next_change_of_the_branch_decides_a_held_request(world: World, act: str, then: str) -> None:
    held = Held(world, ACTS[act])
    branches = held.two.branches
    if then == "commit":
        commit_on_branch(held.two, held.head, [AddNode("/other", {})])
    elif then == "reset":
        branches.reset(held.head, held.first)
    elif then == "merge":
        held.two.poll()
        branches.merge(held.head, "")
    elif then == "rebase":
        held.two.commit(lambda _: OperationList([AddNode("/trunk", {})]), "", retry_timeout=5, max_poll_age=0)
        rebase(branches, held.head, held.two.head(), "")
    else:
        branches.abandon(held.head)
    held.arrive()
    assert held.outcome() is Outcome.ABORTED
