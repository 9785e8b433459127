"""A reset of a branch stays, although the transport delivers earlier requests a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from hbasemk import BranchError
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, WrappedStore
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance

T = TypeVar("T")


class RepeatingStore(WrappedStore):
    """A store that keeps its compare-and-sets, so that a test can deliver them again."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.sent: list[Callable[[], Any]] = []

    def around(self, call: Call, do: Callable[[], T]) -> T:
        if call.method == "check_and_write":
            self.sent.append(do)
        return do()


@pytest.mark.parametrize("commits", [1, 2])
def test_a_request_that_arrives_a_second_time_does_not_undo_a_reset(world: World, commits: int) -> None:
    # As on HBase, whose gateway may hold a request and send another one in its place.
    store = RepeatingStore(MemoryStore(world.clock, transactions=False))
    one, two = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    first = commit_on_branch(one, one.branches.begin(one.head()), [AddNode("/first", {})])
    store.sent.clear()
    at = first
    for number in range(commits):
        at = commit_on_branch(one, at, [AddNode(f"/dropped{number}", {})])
    requests = store.sent.copy()
    head = two.branches.reset(at, first)
    for request in requests:
        request()
    assert two.branches.require_head(head)
    assert two.reader.node(two.at(head), "/dropped0") is None
    assert two.reader.node(two.at(head), "/first") is not None
    with pytest.raises(BranchError, match="continues at"):
        two.branches.require_head(at)
    head = commit_on_branch(two, head, [AddNode("/after", {})])
    assert two.branches.outcome(first) is Outcome.COMMITTED
    two.poll()
    two.branches.merge(head, "")
    two.poll()
    assert two.reader.children(two.head(), "/") == ["after", "first"]
