"""A clock that goes back on a store that orders all writes hides no horizon, no trim level and no checkpoint from polls."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbasemk import NodeExistsError, RevisionCollectedError
from hbasemk.kernel import checkpoints
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite.store import SqliteStore
from tests.support.collecting import HOUR, collect, commit
from tests.support.runtime import World, open_instance


class Machine:
    """A machine whose wall clock is that of the store and of two instances."""

    def __init__(self, world: World, path: Path | None) -> None:
        self.world = world
        self.shift_ms = 0
        self.store: Store = (
            MemoryStore(self.clock, transactions=True) if path is None else SqliteStore(str(path), clock=self.clock)
        )
        self.one, self.other = (open_instance(self.store, world, mac=mac) for mac in (1, 2))

    def clock(self) -> int:
        return self.world.clock() + self.shift_ms

    def step(self, hours: float) -> None:
        """Set the clock to true time plus so many hours."""
        self.shift_ms = int(hours * HOUR * 1000)
        for instance in (self.one, self.other):
            instance.runtime.skew_ms = self.shift_ms  # type: ignore[attr-defined]


@pytest.fixture(params=["memory", "sqlite"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, world: World) -> Machine:
    return Machine(world, tmp_path / "content.db" if request.param == "sqlite" else None)


def collect_beside(one: Instance, other: Instance, patch: pytest.MonkeyPatch) -> None:
    """Collect while another instance polls every second."""
    sleep = one.runtime.sleep

    def polling(seconds: float) -> None:
        while seconds > 0:
            sleep(min(seconds, 1))
            seconds -= 1
            other.poll()

    patch.setattr(one.runtime, "sleep", polling)
    collect(one)


def test_polls_learn_a_horizon_that_was_published_after_the_clock_went_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot was read without a property whose versions had been deleted."""
    one, other, world = machine.one, machine.other, machine.world
    commit(one, AddNode("/a", {"p": 1}))
    kept = checkpoints.keep_head(one, 30 * 24 * 3_600_000)
    old = commit(one, SetProperty("/a", "p", 2))
    commit(one, SetProperty("/a", "p", 3))
    newest = commit(one, SetProperty("/a", "q", 4))
    world.advance(2 * HOUR)
    one.maintain()
    other.poll()
    machine.step(3)
    collect(one)
    machine.step(0)
    world.advance(600)
    one.poll()
    checkpoints.release(one, kept.revision, kept.number)
    collect_beside(one, other, monkeypatch)
    assert fence.read_horizon(one.store).revision == newest
    other.poll()
    assert other.horizon == newest
    with pytest.raises(RevisionCollectedError):
        other.node(other.at(old), "/a")


def test_polls_learn_a_trim_level_that_was_published_after_the_clock_went_back(machine: Machine) -> None:
    """An instance that had not polled for long missed revisions, and overwrote a node that it did not see."""
    one, slow, world = machine.one, machine.other, machine.world
    commit(one, AddNode("/a", {"p": 1}), AddNode("/b", {"p": 1}))
    for number in (2, 3):
        commit(one, SetProperty("/a", "p", number))
    world.advance(2 * HOUR)
    machine.step(20)
    collect(one)
    world.advance(600)
    collect(one)
    machine.step(0)
    slow.poll()
    commit(one, SetProperty("/b", "p", 3))
    commit(one, AddNode("/c", {}))
    world.advance(1.5 * HOUR)
    for number in range(2):
        commit(one, SetProperty("/a", "z", number))
    world.advance(1.5 * HOUR)
    one.poll()
    one.recovery.advance()
    collect(one)
    slow.poll()
    assert slow.require(slow.head(), "/b").properties == {"p": 3}
    assert slow.children(slow.head(), "/") == ["a", "b", "c"]
    with pytest.raises(NodeExistsError):
        commit(slow, AddNode("/c", {"slow": 1}))


def test_polls_learn_of_a_checkpoint_that_was_made_after_the_clock_went_back(machine: Machine) -> None:
    """An open instance showed a snapshot that differed from the one that the checkpoint keeps."""
    one, other = machine.one, machine.other
    machine.step(10)
    checkpoints.keep_head(one, 30 * 24 * 3_600_000)
    machine.step(0)
    other.poll()
    before = other.journal.checkpoints_notice
    commit(one, AddNode("/a", {}))
    checkpoints.keep_head(one, 30 * 24 * 3_600_000)
    other.poll()
    assert other.journal.checkpoints_notice != before
