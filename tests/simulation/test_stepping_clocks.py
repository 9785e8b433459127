"""Collectors beside readers on a machine whose clock steps: polls learn each horizon, trim level and checkpoint.

``HBASEMK_STEPPING_SEEDS=first:last`` runs other schedules.
"""

from __future__ import annotations

import pytest

from hbasemk.store.memory import MemoryStore
from tests.support import proof
from tests.support.simulation.collection import small
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.known_seeds import search
from tests.support.simulation.running import each_run
from tests.support.simulation.stepping import SteppingSchedule

SEEDS = proof.seeds("HBASEMK_STEPPING_SEEDS", sample=12, proof=112, chunk=50)
ENOUGH = 1000


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seeds", SEEDS)
def test_no_snapshot_reads_wrong_beside_collectors_while_the_clock_steps(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    deleted = stepped = slept = 0
    for schedule in each_run("HBASEMK_STEPPING_SEEDS", seeds, SteppingSchedule):
        deleted += schedule.deleted
        steps, sleeps = schedule.disturbances
        stepped += steps
        slept += sleeps
    print(f"{len(seeds)} schedules: {deleted} ranges deleted, {stepped} steps of the clock, {slept} sleeps")
    assert len(seeds) < 20 or (deleted > len(seeds) and stepped > len(seeds) and slept)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_writes_that_a_clock_hides_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    monkeypatch.setattr(MemoryStore, "_not_older", lambda _self, _table, _put, now: now)
    name = "a_clock_that_goes_back_hides_writes"
    must_be_found(name, SteppingSchedule, search("collection with a stepping clock", name, ENOUGH))
