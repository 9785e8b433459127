"""Checkpoints in random schedules, and with each other at every call; and mutants that these must find.

``HBASEMK_CHECKPOINT_SEEDS=first:last`` runs other schedules, as many as you like.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.kernel.journal import known_revisions
from tests.support import proof
from tests.support.runtime import World
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.keeping import KeepSchedule
from tests.support.simulation.mutants import checkpoints as mutants
from tests.support.simulation.running import each_run
from tests.support.straggler import changed_together, kept_twice, opened_late

SEEDS = proof.seeds("HBASEMK_CHECKPOINT_SEEDS", sample=60, proof=2000, chunk=500)


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
    must_be_found(mutant.__name__, lambda seed: KeepSchedule(seed, faults=seed % 2 == 1), range(5000))


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
