"""A call that waits before it is made again holds no lock: the time limit of one thread is not that of the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

import pytest

from hbasemk.errors import StoreNotAppliedError
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.joint import JointStore
from tests.support.runtime import TestRuntime, World, open_instance
from tests.support.sole_writers import commit, let_compete


class CountedLock(AbstractContextManager["CountedLock"]):
    """A reentrant lock that counts itself in its runtime while it is held."""

    def __init__(self, runtime: WatchedRuntime) -> None:
        self._lock = threading.RLock()
        self._runtime = runtime

    def __enter__(self) -> CountedLock:
        self._lock.acquire()
        self._runtime.held += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runtime.held -= 1
        self._lock.release()


class WatchedRuntime(TestRuntime):
    """Counts its waits, and those during which its instance holds a lock."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.held = self.waits = self.waits_with_lock = 0

    def lock(self) -> CountedLock:
        return CountedLock(self)

    def sleep(self, seconds: float) -> None:
        self.waits += 1
        self.waits_with_lock += self.held > 0
        super().sleep(seconds)


class Place:
    """An instance whose store refuses one call, and another one with the same tables."""

    def __init__(self, wrap: type[FaultyStore], *, transactions: bool) -> None:
        self.world = World()
        store = MemoryStore(self.world.clock, transactions=transactions)
        self.other = open_instance(store, self.world, mac=9)
        commit(self.other, AddNode("/a", {"n": 0}), AddNode("/b", {"n": 0}))
        self.store = wrap(store)
        self.runtime = WatchedRuntime(self.world)
        self.instance = Instance.open(self.store, self.runtime)

    def refuse(self, number: int) -> None:
        """Let the store refuse the call with this number, from 0, once."""
        left = number

        def before(_: Call) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise StoreNotAppliedError("refused on purpose")

        self.store.before = before
        self.runtime.waits = self.runtime.waits_with_lock = 0


def committing(
    *operations: Operation, before: int = 0, competes: bool = False
) -> Callable[[Place], Callable[[], object]]:
    """Return a function that prepares a commit which follows ``before`` others, and returns the commit."""

    def prepare(place: Place) -> Callable[[], object]:
        for value in range(before):
            commit(place.instance, SetProperty("/a", "n", -1 - value))
        if competes:
            let_compete(place.instance, "/a", "n")
            place.world.advance(0.1)
        return lambda: commit(place.instance, *operations)

    return prepare


def resolving(place: Place) -> Callable[[], object]:
    """Prepare a commit after a revision that could not be aborted."""
    commit(place.instance, SetProperty("/a", "n", -1))
    place.instance.outcomes.defer(place.instance.announcements.next(0, []), ())
    return lambda: commit(place.instance, SetProperty("/b", "n", 1))


def renewing(place: Place) -> Callable[[], object]:
    """Prepare a commit, a call of a large commit, and the maintenance, each when the lease is to be renewed."""
    commit(place.instance, SetProperty("/a", "n", -1))

    def act() -> None:
        for one in (
            place.instance.clock.keep_lease,
            place.instance.maintain,
            lambda: commit(place.instance, SetProperty("/a", "n", 1)),
        ):
            place.world.advance(place.instance.settings.lease_ms / 2000)
            one()

    return act


ACTIONS: dict[str, Callable[[Place], Callable[[], object]]] = {
    "first commit": committing(SetProperty("/a", "n", 1)),
    "marking": committing(SetProperty("/a", "n", 1), before=1),
    "alone": committing(SetProperty("/a", "n", 1), before=3),
    "competing": committing(SetProperty("/a", "n", 1), before=3, competes=True),
    "adding": committing(AddNode("/a/b", {})),
    "adding alone": committing(AddNode("/a/b", {}), before=3),
    "adjusting": committing(Adjust("/a", "n", 1)),
    "resolving": resolving,
    "renewing": renewing,
}


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("wrap", [FaultyStore, JointStore])
@pytest.mark.parametrize("transactions", [False, True])
def test_no_lock_is_held_during_a_wait(name: str, wrap: type[FaultyStore], transactions: bool) -> None:
    for number in range(100):
        place = Place(wrap, transactions=transactions)
        act = ACTIONS[name](place)
        place.refuse(number)
        act()
        assert not place.runtime.waits_with_lock, number
        if not place.runtime.waits:
            break
    assert 1 <= number < 100
