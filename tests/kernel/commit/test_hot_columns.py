"""A commit to a column for which its process has lost a conflict lately polls first, on a store without transactions."""

from __future__ import annotations

import pytest

from hbasemk.errors import ConflictError
from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.hot_columns import AT_ONCE, HOT_FOR, MOST, HotColumns
from hbasemk.kernel.commit.operations import AddNode, Increment, Operation, RemoveNode, SetProperty
from hbasemk.kernel.commit.read_back import Conflict
from hbasemk.kernel.commit.sole_rows import SoleRows
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.runtime import World, open_instance

A: Operation = Increment("/a", "n", 1)


class Pair:
    """Two instances; the first one counts its calls, and polls only if it must."""

    def __init__(self, *, transactions: bool = False) -> None:
        self.world = World()
        shared = MemoryStore(self.world.clock, transactions=transactions)
        self.counted = CountingStore(shared)
        self.other = open_instance(shared, self.world, mac=2)
        self.commit(self.other, AddNode("/a", {"n": 0}), AddNode("/b", {"n": 0}))
        self.one = open_instance(self.counted, self.world, mac=1)
        # Read both nodes.
        self.commit(self.one, A, SetProperty("/b", "n", 7))

    def commit(self, instance: Instance, *operations: Operation, max_poll_age: float = 1000) -> int:
        """Commit and return how many conflicts that took."""
        before = instance.statistics.conflicts
        instance.commit(lambda _: OperationList(operations), "", retry_timeout=60, max_poll_age=max_poll_age)
        return instance.statistics.conflicts - before

    def lose(self) -> None:
        """Let the first instance lose a conflict over /a, and win it afterwards."""
        self.commit(self.other, A, max_poll_age=0)
        assert self.commit(self.one, A) == 1

    def calls_of(self, *operations: Operation) -> int:
        """Return how many calls a commit of the first instance takes."""
        self.counted.take()
        assert self.commit(self.one, *operations) == 0
        return sum(self.counted.take().values())


def test_a_commit_does_not_lose_the_same_conflict_again() -> None:
    pair = Pair()
    pair.lose()
    for _ in range(3):
        pair.world.advance(AT_ONCE * 1.5)
        pair.commit(pair.other, A, max_poll_age=0)
        assert pair.commit(pair.one, A) == 0
    assert pair.one.node(pair.one.head(), "/a").properties["n"] == 9


def test_the_conflict_is_forgotten() -> None:
    pair = Pair()
    pair.lose()
    pair.world.advance(HOT_FOR + 1)
    pair.commit(pair.other, A, max_poll_age=0)
    assert pair.commit(pair.one, A) == 1


def test_a_process_that_has_its_turn_does_not_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    # Commits of a sole writer make fewer calls.
    monkeypatch.setattr(SoleRows, "choose", lambda *_: None)
    pair = Pair()
    before = pair.calls_of(A)
    pair.lose()
    for _ in range(3):
        pair.world.advance(AT_ONCE / 2)
        assert pair.calls_of(A) == before
    pair.world.advance(AT_ONCE * 1.5)
    assert pair.calls_of(A) == before + 1


def test_only_commits_to_the_column_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    # Commits of a sole writer make fewer calls.
    monkeypatch.setattr(SoleRows, "choose", lambda *_: None)
    pair = Pair()
    before = pair.calls_of(A), pair.calls_of(SetProperty("/b", "n", 8)), pair.calls_of(SetProperty("/a", "other", 1))
    pair.lose()
    pair.world.advance(AT_ONCE * 1.5)
    after = pair.calls_of(A), pair.calls_of(SetProperty("/b", "n", 9)), pair.calls_of(SetProperty("/a", "other", 2))
    # An idle poll is one call.
    assert after == (before[0] + 1, *before[1:])


def test_a_change_that_the_poll_makes_impossible_raises_its_error() -> None:
    pair = Pair()
    pair.lose()
    pair.world.advance(AT_ONCE * 1.5)
    pair.commit(pair.other, RemoveNode("/a"), max_poll_age=0)
    with pytest.raises(Exception, match="/a") as caught:
        pair.commit(pair.one, A)
    assert not isinstance(caught.value, ConflictError)


def test_a_store_with_transactions_needs_no_poll() -> None:
    pair = Pair(transactions=True)
    before = pair.calls_of(A)
    pair.lose()
    assert pair.calls_of(A) == before


def test_only_properties_and_children_are_hot_and_few() -> None:
    world = World()
    instance = open_instance(MemoryStore(world.clock), world, mac=1)
    hot = HotColumns(instance.store, instance.runtime)
    for column in (schema.LAST_REVISION, schema.DELETED, schema.slot_column("n", 1)):
        hot.record(Conflict("/a", column, 1, pending=False))
    assert not hot.has(OperationList([A]))
    hot.record(Conflict("/a", (schema.CHILDREN, b"x"), 1, pending=False))
    assert hot.has(OperationList([AddNode("/a/x", {})]))
    assert not hot.has(OperationList([RemoveNode("/a/x")])), "what it changes depends on the view"
    for number in range(3 * MOST):
        hot.record(Conflict(f"/{number}", schema.property_column("n"), 1, pending=False))
    assert len(hot._until) <= MOST
    assert hot.has(OperationList([Increment(f"/{3 * MOST - 1}", "n", 1)]))
