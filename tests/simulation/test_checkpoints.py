"""Checkpoints in random schedules, and with each other at every call; and mutants that these must find.

``HBASEMK_CHECKPOINT_SEEDS=first:last`` runs other schedules, as many as you like.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.kernel import checkpoints
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import known_revisions
from hbasemk.kernel.journal.view import View
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support import proof
from tests.support.runtime import START_MS, World, open_instance
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.keeping import KeepSchedule
from tests.support.simulation.known_seeds import search
from tests.support.simulation.mutants import checkpoints as mutants
from tests.support.simulation.running import each_run
from tests.support.straggler import HOUR, changed_together, kept_twice, opened_late

SEEDS = proof.seeds("HBASEMK_CHECKPOINT_SEEDS", sample=60, proof=2000, chunk=320)


@pytest.fixture(autouse=True)
def short_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let instances drop positions soon."""
    monkeypatch.setattr(known_revisions, "KEPT", 2)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("faults", [False, True], ids=["without faults", "with faults"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_every_process_reads_what_was_kept(seeds: range, faults: bool) -> None:
    made = read = 0
    note = ", with faults" if faults else ", without faults"
    for schedule in each_run(
        "HBASEMK_CHECKPOINT_SEEDS", seeds, lambda seed: KeepSchedule(seed, faults=faults), note=note
    ):
        made += schedule.made
        read += schedule.read
    print(f"{len(seeds)} schedules, {made} checkpoints, {read} reads of them")
    assert len(seeds) < 50 or (made > 3 * len(seeds) and read > 3 * len(seeds))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(mutants.MUTANTS, sample=3))
def test_a_mutant_of_checkpoints_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    seeds = search("checkpoints", mutant.__name__, 5000)
    must_be_found(mutant.__name__, lambda seed: KeepSchedule(seed, faults=seed % 2 == 1), seeds)


@pytest.mark.parametrize(
    ("mutant", "scenario"),
    [
        (mutants.checkpoint_opened_without_a_poll, opened_late),
        (mutants.second_view_of_a_revision_not_compared, kept_twice),
        (mutants.checkpoints_changed_without_compare_and_set, changed_together),
    ],
)
def test_a_rare_mutant_of_checkpoints_is_found_by_a_scenario(
    mutant: Callable[[pytest.MonkeyPatch], None],
    scenario: Callable[[World], None],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario(world)
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        scenario(World())


ACTIONS: dict[str, Callable[[Instance, View, checkpoints.Checkpoint], object]] = {
    "keep": lambda one, view, _: checkpoints.keep(one, view, START_MS + 30 * HOUR),
    "share": lambda one, view, _: checkpoints.keep(one, view, START_MS + 20 * HOUR, shared=True),
    "extend": lambda one, _, made: checkpoints.extend(one, made.revision, made.number, 40 * HOUR),
    "release": lambda one, _, made: checkpoints.release(one, made.revision, made.number),
    "remove": lambda one, _, __: one.checkpoint_cells.remove_expired(),
    "read": lambda one, _, made: one.at(made.revision),
}


@pytest.mark.parametrize("expired", [False, True], ids=["beside a live one", "beside expired ones"])
@pytest.mark.parametrize("second", ACTIONS)
@pytest.mark.parametrize("first", ACTIONS)
def test_an_action_between_any_two_calls_of_another_loses_nothing(first: str, second: str, expired: bool) -> None:
    calls = 0
    number = -1
    while number < calls:
        calls = _interrupted(first, second, number, expired)
        number += 1


def _interrupted(first: str, second: str, number: int, expired: bool) -> int:
    """Make the second action before one of the calls of the first; return the number of these calls."""
    world = World()
    store = MemoryStore(world.clock)
    faulty = FaultyStore(store)
    one, two = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2, seed=2)
    view, other = one.head(), two.head()
    for _ in range(expired):
        checkpoints.release(one, view.revision, checkpoints.keep(one, view, START_MS + HOUR).number)
        checkpoints.keep(two, other, START_MS + HOUR)
        world.advance(3 * 3600)
    mine = checkpoints.keep(one, view, START_MS + 10 * HOUR)
    others = checkpoints.keep(two, other, START_MS + 10 * HOUR)
    seen = 0

    def before(_: Call) -> None:
        nonlocal seen
        seen += 1
        if seen == number + 1:
            ACTIONS[second](two, other, others)

    faulty.before = before
    ACTIONS[first](one, view, mine)
    faulty.before = None
    if seen <= number or number < 0:
        ACTIONS[second](two, other, others)
    found = {entry.number: entry.until_ms for entry in checkpoints.all_of(one) if entry.until_ms > START_MS + 9 * HOUR}
    for what, made in ((first, mine), (second, others)):
        assert (made.number in found) == (what != "release")
        assert what != "extend" or found[made.number] >= START_MS + 40 * HOUR
    kept = sum(until == START_MS + 30 * HOUR for until in found.values())
    assert kept == (first == "keep") + (second == "keep")
    assert (0 in found) == ("share" in (first, second))
    assert (checkpoints.view_of(two, mine.revision) is None) == (not found)
    return seen
