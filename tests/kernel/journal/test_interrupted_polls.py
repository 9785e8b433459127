"""A poll that an interrupt ends loses nothing: later polls find what it had read, and wake the threads that wait for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from hbasemk.wakeup import Bells
from tests.support.checkpoints import keep_shared
from tests.support.collecting import HOUR, collect, commit
from tests.support.interrupting import Point, in_files, interrupted_at, place, points_of
from tests.support.runtime import World, open_instance

MONTH = 30 * 24 * 3_600_000
"""In ms."""
POLLS = in_files(
    "log_poller.py", "arrival_poller.py", "polled_revisions.py", "known_revisions.py", "wakeup.py", "fence.py"
)


def points_of_polls(call: Callable[[], object]) -> list[Point]:
    """Make a call that polls; return the points of the poll that it passes."""
    points = points_of(call, POLLS)
    assert len(points) > 20
    return points


def test_a_revision_that_was_pending_in_an_interrupted_poll_joins_later(world: World) -> None:
    store = MemoryStore(world.clock)
    writers = FaultyStore(store)
    writer, reader = open_instance(writers, world, mac=1), open_instance(store, world, mac=2)
    commit(writer, AddNode("/a", {}))

    def commit_while(poll: Callable[[], object]) -> int:
        """Let the reader poll while a commit has written its cells and is not decided."""

        def pause(call: Call) -> None:
            if call.table == "nodes" and call.method != "read":
                writers.after = None
                poll()

        writers.after = pause
        return commit(writer, AddNode(f"/a/{world.ms:.0f}", {}))

    points: list[Point] = []
    commit_while(lambda: points.extend(points_of_polls(reader.poll)))
    for point in points:
        world.advance(0.01)
        revision = commit_while(lambda point=point: interrupted_at(point, reader.poll))  # type: ignore[misc]
        reader.poll()
        assert reader.journal.knows(revision), f"interrupted at {place(point)}"


class Collected:
    """An instance that has not polled since another one collected, and since there is a new checkpoint."""

    def __init__(self, world: World, *, transactions: bool) -> None:
        store = MemoryStore(world.clock, transactions=transactions)
        self.one, self.other, self.third = (open_instance(store, world, mac=mac) for mac in (1, 2, 3))
        commit(self.one, AddNode("/a", {"p": "old"}), AddNode("/a/k", {}))
        commit(self.other, SetProperty("/a", "p", "new"), RemoveNode("/a/k"))
        for each in (self.one, self.third):
            each.poll()
        world.advance(2 * HOUR)
        collect(self.other)
        keep_shared(self.other, self.other.head(), world.clock() + MONTH)
        self.third.poll()


def learned(instance: Instance) -> tuple[int, bytes, int]:
    """Return what an instance has learned of the collection and of checkpoints."""
    journal = instance.journal
    return journal.fence.horizon, journal.checkpoints_notice, journal.verified


@pytest.mark.parametrize("transactions", [False, True], ids=["scanned", "ordered"])
def test_an_interrupted_poll_does_not_lose_a_horizon_or_a_notice(world: World, transactions: bool) -> None:
    for point in points_of_polls(Collected(world, transactions=transactions).one.poll):
        collected = Collected(world, transactions=transactions)
        interrupted_at(point, collected.one.poll)
        collected.one.poll()
        assert learned(collected.one) == learned(collected.third), f"interrupted at {place(point)}"


@pytest.mark.parametrize("transactions", [False, True], ids=["scanned", "ordered"])
@pytest.mark.parametrize("own", [False, True])
def test_a_thread_that_waits_for_a_revision_is_woken_after_an_interrupt(
    world: World, transactions: bool, own: bool
) -> None:
    store = MemoryStore(world.clock, transactions=transactions)
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    bells = Bells()
    bell = bells.new_bell()
    one.journal.watchers.append(bells.ring)
    commit(other, AddNode("/a", {}))

    def grow() -> None:
        if own:
            commit(one, AddNode(f"/a/{world.ms:.0f}", {}))
        else:
            one.poll()

    def before() -> None:
        world.advance(0.01)
        if not own:
            commit(other, AddNode(f"/a/{world.ms:.0f}", {}))
            world.advance(0.01)

    before()
    for point in points_of_polls(grow):
        before()
        bell.wait(0)
        seen = one.head()
        interrupted_at(point, grow)
        one.poll()
        assert one.head() == seen or bell.wait(0), f"interrupted at {place(point)}"
