"""Schedules with unreliable clocks, and mutants of the rules that make answers independent of clocks.

``HBASEMK_CLOCK_SEEDS=first:last`` runs other schedules.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.settings import read_watermark
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support import proof
from tests.support.announced import make_id
from tests.support.runtime import World, open_instance
from tests.support.simulation.clocks import ClockSchedule
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.known_seeds import search
from tests.support.simulation.mutants import arrivals, journal, watermark
from tests.support.simulation.running import each_run

pytestmark = pytest.mark.usefixtures("short_journals")
SEEDS = proof.seeds("HBASEMK_CLOCK_SEEDS", sample=50, proof=300, chunk=125)
ENOUGH = 12_000

Mutant = Callable[[pytest.MonkeyPatch], None]


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


MUTANTS: list[Mutant] = [journal.read_back_down_to_an_estimate]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(MUTANTS, sample=1))
def test_a_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    must_be_found(mutant.__name__, ClockSchedule, search("clocks", mutant.__name__, ENOUGH))


def add(instance: Instance, path: str) -> int:
    return instance.commit(lambda _: OperationList([AddNode(path, {})]), "", retry_timeout=5, max_poll_age=0)


def watermark_brings_revisions_that_were_not_read() -> bool:
    """Return whether an instance that learns of a watermark reads first what it does not know below it."""
    world = World()
    store = MemoryStore(world.clock)
    reader, writer = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    made = 0
    for number in range(3):
        world.advance(0.01)
        made = add(writer, f"/{number}")
    writer.recovery.advance()
    reader.recovery.follow()
    assert reader.journal.verified == made
    return reader.node(reader.head(), "/2") is not None


def test_a_watermark_that_is_not_verified_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watermark_brings_revisions_that_were_not_read()
    watermark.watermark_not_verified(monkeypatch)
    assert not watermark_brings_revisions_that_were_not_read()


def watermark_stays_below_a_row_that_comes_after_the_scan() -> bool:
    """Return whether the watermark stays below a pending revision whose row is created just before the move."""
    world = World()
    store = MemoryStore(world.clock, transactions=True)
    faulty = FaultyStore(store)
    mover, writer = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    add(writer, "/a")
    late = make_id(writer, writer.head().upper)
    world.advance(0.01)
    assert add(mover, "/b") > late
    moves: list[Call] = []

    def before(call: Call) -> None:
        if call.method in ("write_if", "check_and_write") and call.table == schema.CLUSTER and not moves:
            moves.append(call)
            draft = Draft(writer.head(), OperationList(()), "", revision=late, nonce=b"a" * 16)
            writer._committer.attempts._preparation.create(draft)

    faulty.before = before
    mover.recovery.advance()
    assert len(moves) == 1
    return read_watermark(mover.store).revision < late


@pytest.mark.parametrize(
    "mutant",
    [watermark.watermark_past_possible_late_revisions, watermark.watermark_past_rows_that_came_after_the_scan],
    ids=lambda mutant: mutant.__name__,
)
def test_a_watermark_past_a_row_that_comes_late_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert watermark_stays_below_a_row_that_comes_after_the_scan()
    mutant(monkeypatch)
    assert not watermark_stays_below_a_row_that_comes_after_the_scan()


def commit_below_the_watermark_is_refused() -> bool:
    """Return whether a revision that the watermark has passed before it has a row gets a greater id."""
    world = World()
    store = MemoryStore(world.clock, transactions=True)
    faulty = FaultyStore(store)
    mover, writer = open_instance(store, world, mac=1), open_instance(faulty, world, mac=2)
    add(mover, "/a")
    passed: list[int] = []

    def before(call: Call) -> None:
        if (call.method, call.table) == ("write_if", schema.NODES) and not passed:
            world.advance(0.1)
            passed.append(add(mover, "/b"))
            mover.recovery.advance()

    faulty.before = before
    revision = add(writer, "/c")
    assert read_watermark(store).revision == passed[0]
    return revision > passed[0]


def test_an_id_below_the_watermark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_below_the_watermark_is_refused()
    arrivals.ids_of_any_height_accepted(monkeypatch)
    assert not commit_below_the_watermark_is_refused()


def held_snapshot_contains_what_came_later() -> bool:
    """Return whether a held snapshot contains a revision with a lower id that joined after it."""
    world = World()
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    one, two = open_instance(store, world, mac=1), open_instance(faulty, world, mac=2)
    add(one, "/a")
    two.poll()
    calls: list[Call] = []
    held: list[View] = []

    def before(call: Call) -> None:
        calls.extend([call] if (call.method, call.table) == ("check_and_write", schema.JOURNAL) else [])
        if len(calls) == 2 and not held:
            # The other commit has its row and its cells, and is about to be decided.
            world.advance(0.01)
            add(one, "/b")
            held.append(one.head())

    faulty.before = before
    late = add(two, "/c")
    for _ in range(3):
        one.poll()
        one.recovery.advance()
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
