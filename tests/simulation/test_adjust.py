"""Adjusts in random schedules and in all interleavings, and mutants that these must find.

``HBASEMK_ADJUST_SEEDS=first:last`` runs other schedules, as many as you like.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from hbasemk.testing.history.simulated import Run
from hbasemk.testing.history.workloads import WORKLOADS
from tests.support import proof
from tests.support.simulation import adjust_mutants
from tests.support.simulation.adjusts import AdjustSchedule
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.interleavings import WAYS, explore, must_be_found_beside
from tests.support.simulation.known_seeds import search
from tests.support.simulation.mutants import read_back
from tests.support.simulation.running import each_run
from tests.support.simulation.writers import ADJUST_KINDS, EXPECT_KINDS

SEEDS = proof.seeds("HBASEMK_ADJUST_SEEDS", sample=130, proof=700, long=2200, chunk=300)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("faults", [False, True], ids=["without faults", "with faults"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_every_schedule_counts_each_adjust_exactly_once(seeds: range, faults: bool) -> None:
    compared = merges = made = 0
    note = ", with faults" if faults else ", without faults"
    for schedule in each_run(
        "HBASEMK_ADJUST_SEEDS", seeds, lambda seed: AdjustSchedule(seed, faults=faults), note=note
    ):
        compared += schedule.compared
        merges += len(schedule.merged)
        made += schedule.folds
    print(f"{len(seeds)} schedules, {compared} compared with the model, {merges} merges, {made} folds")
    assert len(seeds) < 50 or (compared > len(seeds) / 2 and merges > len(seeds) / 10 and made > len(seeds) / 50)


def test_writers_that_share_one_slot_lose_no_adjust(monkeypatch: pytest.MonkeyPatch) -> None:
    """Private slots only save work: every writer of a slot depends on it."""
    adjust_mutants.one_slot_for_all(monkeypatch)
    for seed in range(60):
        AdjustSchedule(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(adjust_mutants.MUTANTS, sample=4))
def test_a_mutant_of_adjust_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    seeds = search("adjusts", mutant.__name__, 10_000)
    must_be_found(mutant.__name__, lambda seed: AdjustSchedule(seed, faults=seed % 2 == 1), seeds)


FOUND_BY_HISTORIES = [
    (adjust_mutants.slot_not_read_back, "adjusts"),
    (adjust_mutants.total_taken_from_the_head, "adjusts"),
    (adjust_mutants.sets_ignore_adjusts, "ledger"),
    (adjust_mutants.adjusts_ignore_sets, "ledger"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "workload"), FOUND_BY_HISTORIES, ids=[mutant.__name__ for mutant, _ in FOUND_BY_HISTORIES]
)
def test_a_mutant_of_adjust_is_found_by_a_history(
    mutant: Callable[[pytest.MonkeyPatch], None], workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in search("histories of adjusts", mutant.__name__, 2000):
        try:
            found = Run(seed, [WORKLOADS[workload]], faults=seed % 2 == 1).finish()
        except Exception as error:
            # The kernel itself raised an error, but here only histories count.
            print(f"history {seed} was not recorded: {error!r}")
            continue
        if found.anomalies:
            print(f"{mutant.__name__} was found by history {seed}: {found.anomalies[0].explain(found.history)}")
            return
    pytest.fail(f"{mutant.__name__} was not found in 2000 histories")


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("kinds", "way"), proof.pairs(ADJUST_KINDS, WAYS, sample=30))
def test_two_writers_in_every_interleaving(kinds: tuple[str, str], way: str) -> None:
    print(explore(kinds, way, adjusts=True))


ALL_KINDS = [*ADJUST_KINDS, *EXPECT_KINDS]
EXPECTING = [
    (pair, way)
    for pair in itertools.combinations_with_replacement(ALL_KINDS, 2)
    if pair[1] in EXPECT_KINDS
    for way in WAYS
]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "case",
    proof.sampled(
        EXPECTING,
        lambda position, case: position % 90 == 0 and "rebase and merge adjusts" not in case[0],
        lambda case: f"{' and '.join(case[0])}, {case[1]}",
        is_long=lambda position, _: position % 7 > 0,
    ),
)
def test_expected_versions_beside_adjusts_in_every_interleaving(case: tuple[tuple[str, str], str]) -> None:
    print(explore(*case, adjusts=True))


CROSSWISE = [
    (read_back.expectations_not_depended_on, ("expect the node, set another", "expect another, adjust the node")),
    (read_back.expected_absence_not_depended_on, ("expect the node, copy it", "expect no copy, adjust the node")),
    (adjust_mutants.slots_not_expected, ("expect the node, set another", "expect another, adjust the node")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "kinds"), CROSSWISE, ids=[mutant.__name__ for mutant, _ in CROSSWISE])
def test_a_mutant_of_expected_versions_is_found_beside_adjusts(
    mutant: Callable[[pytest.MonkeyPatch], None], kinds: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_be_found_beside(mutant, kinds, monkeypatch, adjusts=True)
