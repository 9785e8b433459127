"""Schedules with unreliable clocks, and mutants of the rules that make answers independent of clocks.

``HBASEMK_CLOCK_SEEDS=first:last`` runs other schedules.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.errors import ConflictError
from hbasemk.format import schema
from hbasemk.kernel import instance
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support import proof
from tests.support.runtime import World, open_instance
from tests.support.simulation.clocks import ClockSchedule
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.known_seeds import search
from tests.support.simulation.mutants import ids, journal, watermark
from tests.support.simulation.running import each_run

SEEDS = proof.seeds("HBASEMK_CLOCK_SEEDS", sample=50, proof=300, chunk=125)
ENOUGH = 12_000

Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances drop positions, and read the watermark, after two revisions."""
    monkeypatch.setattr("hbasemk.kernel.journal.known_revisions.KEPT", 2)
    monkeypatch.setattr(instance, "ADVANCE_AFTER", 2)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seeds", SEEDS)
def test_invariants_hold_while_clocks_step_and_machines_sleep(seeds: range) -> None:
    commits = stepped = slept = 0
    for schedule in each_run("HBASEMK_CLOCK_SEEDS", seeds, ClockSchedule):
        commits += len(schedule.acknowledged)
        stepped += schedule.simulator.stepped
        slept += schedule.simulator.slept
    print(f"{len(seeds)} schedules, {commits} commits, {stepped} steps of servers' clocks, {slept} sleeps")
    assert len(seeds) < 50 or (commits > 2 * len(seeds) and stepped > len(seeds) and slept > len(seeds) / 2)


MUTANTS: list[Mutant] = [journal.read_back_down_to_an_estimate, ids.late_creation_accepted_as_timely]
RARE_MUTANTS: list[Mutant] = [journal.bases_not_looked_for, watermark.watermark_not_verified]
"""Scenarios find these in each run, and random schedules only one of some thousands."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    proof.sampled(
        [*MUTANTS, *RARE_MUTANTS],
        lambda position, _: position == 0,
        lambda mutant: mutant.__name__,
        is_long=lambda _, mutant: mutant in RARE_MUTANTS,
    ),
)
def test_a_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    must_be_found(mutant.__name__, ClockSchedule, search("clocks", mutant.__name__, ENOUGH))


class MissedRevision:
    """A reader whose polls miss a revision: the writer's machine stands still for three seconds before it creates its row,
    and the store's clock then goes back.
    """

    def __init__(self) -> None:
        self.world = World()
        back = 0
        store = MemoryStore(lambda: self.world.clock() - back)
        faulty = FaultyStore(store)
        self.reader, other = open_instance(store, self.world, mac=1), open_instance(store, self.world, mac=2)
        self.writer = open_instance(faulty, self.world, mac=3)
        add(self.writer, "/early")
        self.writer.runtime.monotonic = lambda: (self.world.ms - back) / 1000

        def before(call: Call) -> None:
            nonlocal back
            if (call.method, call.table) == ("check_and_write", schema.JOURNAL):
                faulty.before = None
                self.world.advance(3)
                with pytest.raises(ConflictError):
                    # Its journal row shows the store's clock to the reader.
                    other.commit_on(other.head(), OperationList([AddNode("/early", {})]), "")
                self.reader.poll()
                back = 3000
                self.writer.runtime.skew_ms = -back

        self.reader.poll()
        assert not self.reader_has("/missed")
        faulty.before = before
        self.missed = add(self.writer, "/missed")
        self.reader.poll()
        assert not self.reader.journal.sees(self.reader.head(), self.missed)

    def reader_has(self, path: str) -> bool:
        (node,) = self.reader.nodes(self.reader.head(), [path]).values()
        return node is not None


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=5, max_poll_age=0)


def missed_base_joins_with_the_next_revision() -> bool:
    """Return whether a poll that finds a revision also finds the missed one on which it was built."""
    scene = MissedRevision()
    scene.world.advance(4.5)
    later = add(scene.writer, "/missed/later")
    scene.reader.poll()
    assert scene.reader.journal.sees(scene.reader.head(), later)
    return scene.reader_has("/missed") and scene.reader_has("/missed/later")


def watermark_brings_a_missed_revision() -> bool:
    """Return whether an instance that learns of a watermark reads what its polls have missed below it."""
    scene = MissedRevision()
    for path in ("/later", "/latest"):
        scene.world.advance(20)
        add(scene.writer, path)
        scene.writer.poll()
        scene.writer.recovery.advance()
    scene.reader.recovery.follow()
    assert scene.reader.journal.verified >= scene.missed
    return scene.reader_has("/missed")


SCENARIOS = [
    (journal.bases_not_looked_for, missed_base_joins_with_the_next_revision),
    (watermark.watermark_not_verified, watermark_brings_a_missed_revision),
]


@pytest.mark.parametrize(("mutant", "scenario"), SCENARIOS)
def test_a_rare_mutant_is_found_by_a_scenario(
    mutant: Mutant, scenario: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scenario()
    mutant(monkeypatch)
    assert not scenario()


def held_snapshot_contains_what_came_later() -> bool:
    """Return whether a held snapshot contains a revision with a lower id that joined after it."""
    world = World()
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    one, two = open_instance(store, world, mac=1), open_instance(faulty, world, mac=2)
    one.commit(lambda _: OperationList([AddNode("/a", {})]), "", retry_timeout=5, max_poll_age=0)
    two.poll()
    calls: list[Call] = []
    held: list[View] = []

    def before(call: Call) -> None:
        calls.extend([call] if (call.method, call.table) == ("check_and_write", schema.JOURNAL) else [])
        if len(calls) == 2 and not held:
            # The other commit has its row and its cells, and is about to be decided.
            world.advance(0.01)
            one.commit(lambda _: OperationList([AddNode("/b", {})]), "", retry_timeout=5, max_poll_age=0)
            held.append(one.head())

    faulty.before = before
    late = two.commit(lambda _: OperationList([AddNode("/c", {})]), "", retry_timeout=5, max_poll_age=0)
    for _ in range(3):
        one.poll()
        world.advance(10)
    (view,) = held
    assert late < view.revision
    assert one.journal.sees(one.head(), late)
    assert not one.journal.sees(view, late)
    return late in one.journal.contents(view)


def test_a_held_snapshot_is_not_bounded_by_an_estimate() -> None:
    assert not held_snapshot_contains_what_came_later()


def test_a_bound_by_an_estimate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Random schedules find it too, but only one of some thousands does.
    journal.held_snapshots_bounded_by_an_estimate(monkeypatch)
    assert held_snapshot_contains_what_came_later()


@pytest.mark.slow
@pytest.mark.proof
@pytest.mark.long
def test_random_schedules_find_a_bound_by_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    journal.held_snapshots_bounded_by_an_estimate(monkeypatch)
    must_be_found("held_snapshots_bounded_by_an_estimate", ClockSchedule, range(60_000))
