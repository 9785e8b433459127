"""An id whose commit ends before its journal row is created does not stay pending, on a store that does not order all writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hbasemk.errors import HbasemkError, LeaseLostError, LimitError, StoreNotAppliedError
from hbasemk.format import changes
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation, SetProperty
from hbasemk.kernel.commit.slots import Slots
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import read_watermark
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.runtime import World, open_instance


class Place:
    """The writer, another process that counts its calls, and a node with a number."""

    def __init__(self, world: World, *, parallel: bool) -> None:
        self.world = world
        store = MemoryStore(world.clock, parallel=parallel)
        self.one = open_instance(store, world, mac=1)
        self.calls = CountingStore(store)
        self.two = open_instance(self.calls, world, mac=2)
        self.commit([AddNode("/a", {"n": 1})])

    def commit(self, operations: Sequence[Operation], begun: Callable[[int], None] | None = None) -> int:
        self.world.advance(0.05)
        return self.one.commit(lambda _: OperationList(operations), "", begun=begun, retry_timeout=0)

    def require_nothing_pending(self) -> None:
        """Let both processes work for some minutes; then nothing is pending, and the watermark has passed the head."""
        head = self.commit([SetProperty("/a", "n", 2)])
        for _ in range(30):
            self.world.advance(4)
            for each in (self.one, self.two):
                each.poll()
                each.maintain()
        assert not self.two.journal.pending
        watermark = read_watermark(self.one.store)
        assert watermark is not None
        assert watermark.revision >= head
        self.calls.take()
        self.two.poll()
        assert sum(self.calls.take().values()) == 1


@pytest.fixture(params=[False, True], ids=["serial", "parallel"])
def place(request: pytest.FixtureRequest, world: World) -> Place:
    return Place(world, parallel=request.param)


def fail(place: Place, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit fail while it chooses its slots: it has its id, and no journal row."""

    def choose(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Slots, "choose", choose)
        with pytest.raises(type(error)):
            place.commit([Adjust("/a", "n", 1)])


@pytest.mark.parametrize(
    "error", [StoreNotAppliedError("out of reach"), KeyboardInterrupt()], ids=["error", "interrupt"]
)
def test_the_id_of_a_commit_that_ends_before_its_row_is_aborted(
    place: Place, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(place, error, monkeypatch)
    place.require_nothing_pending()


def test_the_id_of_a_commit_that_is_too_large_is_aborted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [AddNode(f"/a/{number}", {}) for number in range(500)]
    with monkeypatch.context() as patch:
        patch.setattr(changes, "LARGEST", 100)
        with pytest.raises(LimitError):
            place.commit([*nodes, Adjust("/a", "n", 1)])
    place.require_nothing_pending()


def test_the_id_of_a_commit_that_is_interrupted_before_it_receives_the_id_is_aborted(place: Place) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.commit([SetProperty("/a", "n", 3)], interrupt)
    place.require_nothing_pending()


def test_an_id_that_is_interrupted_while_it_is_made_is_aborted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = place.one.announcements._state

    class Interrupted:
        def __enter__(self) -> None:
            lock.__enter__()

        def __exit__(self, *error: object) -> None:
            lock.__exit__(None, None, None)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place.one.announcements, "_state", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            place.commit([SetProperty("/a", "n", 3)])
    place.require_nothing_pending()


def test_an_id_whose_return_is_interrupted_is_aborted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.10 calls the handlers of signals also after a function has returned, and before its result is stored."""
    make = place.one.announcements.next

    def interrupted(above: int, made: list[int]) -> int:
        make(above, made)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place.one.announcements, "next", interrupted)
        with pytest.raises(KeyboardInterrupt):
            place.commit([SetProperty("/a", "n", 3)])
    place.require_nothing_pending()


def test_a_revision_of_a_lost_lease_does_not_drop_the_next_lease(world: World) -> None:
    one: Instance = open_instance(MemoryStore(world.clock, parallel=True), world, mac=1)
    announcements, lease = one.announcements, one.lease
    late = announcements.next(0, [])
    machine = lease.machine
    assert isinstance(lease.lost(), HbasemkError)
    # Another thread claims a lease and makes an id.
    revision = announcements.next(0, [])
    with pytest.raises(LeaseLostError, match=f"lost machine id {machine:#06x} "):
        announcements.announce(late)
    assert lease.held
    announcements.announce(revision)
