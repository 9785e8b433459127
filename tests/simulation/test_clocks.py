"""Schedules with unreliable clocks, and mutants of the rules that make answers independent of clocks.

``HBASEMK_CLOCK_SEEDS=first:last`` runs other schedules.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.format.extent import Extent
from hbasemk.format.watermark import Watermark
from hbasemk.kernel import instance
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.journal import journal, scan_poller
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.view import View
from tests.support import proof
from tests.support.simulation import mutants
from tests.support.simulation.clocks import ClockSchedule
from tests.support.simulation.fitting import misfits
from tests.support.simulation.known_seeds import search
from tests.support.simulation.running import each_run

SEEDS = proof.seeds("HBASEMK_CLOCK_SEEDS", sample=50, proof=300, chunk=125)
ENOUGH = 6000

Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances drop positions, and read the watermark, after two revisions."""
    monkeypatch.setattr(journal, "KEPT", 2)
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


def read_back_down_to_an_estimate(patch: pytest.MonkeyPatch) -> None:
    original = Journal.low_bound_for
    patch.setattr(Journal, "low_bound_for", lambda self, snapshot: max(original(self, snapshot), self.poller.low_bound))


def lateness_not_judged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IdClock, "is_late", lambda *_: False)


def bases_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scan_poller, "_lowest_unknown_base", lambda *_: None)


def watermark_not_verified(patch: pytest.MonkeyPatch) -> None:
    def verify(self: Journal, watermark: Watermark) -> None:
        self._verified = max(self._verified, watermark.revision)

    patch.setattr(Journal, "verify", verify)


def held_snapshots_bounded_by_an_estimate(patch: pytest.MonkeyPatch) -> None:
    original = Journal.contents

    def contents(self: Journal, view: View) -> Extent:
        floor, above = original(self, view)
        return Extent(max(floor, self.poller.low_bound - 1), above)

    patch.setattr(Journal, "contents", contents)


MUTANTS: list[Mutant] = [
    read_back_down_to_an_estimate,
    lateness_not_judged,
    bases_not_looked_for,
    watermark_not_verified,
    held_snapshots_bounded_by_an_estimate,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_takes_the_arguments_of_what_it_replaces(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert misfits(mutant) == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(MUTANTS, sample=1))
def test_a_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    mutants.must_be_found(mutant.__name__, ClockSchedule, search("clocks", mutant.__name__, ENOUGH))
