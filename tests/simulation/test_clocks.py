"""Schedules with unreliable clocks, and mutants of the rules that make answers independent of clocks.

``HBASEMK_CLOCK_SEEDS=first:last`` runs other schedules.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.kernel import instance
from tests.support import proof
from tests.support.simulation.clocks import ClockSchedule
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.known_seeds import search
from tests.support.simulation.mutants import ids, journal, watermark
from tests.support.simulation.running import each_run

SEEDS = proof.seeds("HBASEMK_CLOCK_SEEDS", sample=50, proof=300, chunk=125)
ENOUGH = 6000

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


MUTANTS: list[Mutant] = [
    journal.read_back_down_to_an_estimate,
    ids.late_creation_accepted_as_timely,
    journal.bases_not_looked_for,
    watermark.watermark_not_verified,
    journal.held_snapshots_bounded_by_an_estimate,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(MUTANTS, sample=1))
def test_a_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    must_be_found(mutant.__name__, ClockSchedule, search("clocks", mutant.__name__, ENOUGH))
