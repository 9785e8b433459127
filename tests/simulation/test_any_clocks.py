"""Schedules in which all clocks are arbitrary: nothing that was acknowledged is lost, and no answer is wrong.

``HBASEMK_CLOCK_SEEDS=first:last`` runs other schedules.
"""

from __future__ import annotations

import pytest

from tests.support import proof
from tests.support.simulation.any_clocks import AnyClockSchedule
from tests.support.simulation.running import each_run

pytestmark = pytest.mark.usefixtures("short_journals")
SEEDS = proof.seeds("HBASEMK_CLOCK_SEEDS", sample=50, proof=300, chunk=125)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seeds", SEEDS)
def test_invariants_hold_whatever_clocks_show_and_although_requests_arrive_twice(seeds: range) -> None:
    commits = stepped = jumped = repeated = 0
    for schedule in each_run("HBASEMK_CLOCK_SEEDS", seeds, AnyClockSchedule):
        commits += len(schedule.acknowledged)
        stepped += schedule.simulator.stepped
        jumped += schedule.simulator.jumped
        repeated += schedule.simulator.repeated
    print(f"{len(seeds)} schedules, {commits} commits, {stepped} steps of servers' clocks")
    print(f"{jumped} jumps of processes' clocks, {repeated} requests that arrived again")
    assert len(seeds) < 50 or min(commits, stepped, jumped) > len(seeds)
    assert len(seeds) < 50 or repeated > len(seeds) / 4
