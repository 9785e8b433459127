"""Leases, recovery, the watermark and the shortened journal in schedules about time, and their mutants.

``HBASEMK_LEASE_SEEDS=first:last`` runs other schedules, as many as you like.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.kernel.journal.recovery import Recovery
from hbasemk.testing.choices import shrink
from tests.support import proof
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.known_seeds import search
from tests.support.simulation.leases import LeaseSchedule
from tests.support.simulation.mutants import ids, journal, logs, watermark
from tests.support.simulation.running import each_run
from tests.support.simulation.schedules import breaks
from tests.support.simulation.trees import Broken

pytestmark = pytest.mark.usefixtures("short_journals")
SEEDS = proof.seeds("HBASEMK_LEASE_SEEDS", sample=50, proof=300, chunk=125)
ENOUGH = 4000


def shortest(seed: int) -> list[str]:
    """Return the shrunk trace of a failing seed."""
    failed = LeaseSchedule(seed)

    def fails(choices: list[int]) -> bool:
        try:
            LeaseSchedule(seed, choices=choices).run()
        except Broken:
            return True
        except BaseException:
            return False
        return False

    if not fails(list(failed.simulator.chance.drawn)) and not breaks(failed):
        return failed.simulator.trace
    short = LeaseSchedule(seed, choices=shrink(failed.simulator.chance.drawn, fails))
    breaks(short)
    return short.simulator.trace


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seeds", SEEDS)
def test_invariants_hold_with_wrong_clocks_pauses_and_late_requests(seeds: range) -> None:
    commits = late = 0
    for schedule in each_run("HBASEMK_LEASE_SEEDS", seeds, LeaseSchedule, shortest=shortest):
        commits += len(schedule.acknowledged)
        late += schedule.simulator.let_through  # type: ignore[attr-defined]
    print(f"{len(seeds)} schedules, {commits} commits, {late} requests let through late")
    assert len(seeds) < 50 or commits > 2 * len(seeds)


MUTANTS = [
    watermark.late_cells_not_hidden,
    watermark.hidden_revisions_lost_when_shortened,
    journal.held_snapshots_without_revisions_above,
    journal.held_snapshots_with_too_many_revisions,
    watermark.shortened_past_possible_late_revisions,
    ids.ids_of_any_time,
    logs.revisions_not_announced,
    logs.logs_without_other_pending_ids,
    logs.deferred_revisions_forgotten,
    logs.pending_revisions_forgotten,
    logs.pending_ids_of_the_earlier_holder_dropped,
    logs.what_has_left_the_logs_not_read,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(MUTANTS, sample=1))
def test_a_mutant_is_found(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    must_be_found(mutant.__name__, LeaseSchedule, search("leases", mutant.__name__, ENOUGH))


def test_a_mutant_that_no_longer_fits_the_kernel_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "advance", lambda _, another_argument: None)
    with pytest.raises(pytest.fail.Exception, match="outdated was not found in 30 schedules.*TypeError"):
        must_be_found("outdated", LeaseSchedule, range(30))
