"""Collectors beside writers, readers of old snapshots and branches, in random schedules.

``HBASEMK_COLLECTION_SEEDS=first:last`` runs other schedules.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import proof
from tests.support.simulation.collection import CollectedSchedule, small
from tests.support.simulation.collection_mutants import ALL_ROWS, MUTANTS, UNORDERED
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.known_seeds import search
from tests.support.simulation.running import each_run

SEEDS = proof.seeds("HBASEMK_COLLECTION_SEEDS", sample=12, proof=112, chunk=50)
ENOUGH = 3000
"""Some schedule of these finds each mutant."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
@pytest.mark.parametrize("faults", [False, True], ids=["without faults", "with faults"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_no_snapshot_reads_wrong_beside_collectors(
    seeds: range, faults: bool, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    deleted = refused = reads = begun_again = 0
    note = f", {'ordered' if ordered else 'unordered'}, {'with' if faults else 'without'} faults"
    for schedule in each_run(
        "HBASEMK_COLLECTION_SEEDS",
        seeds,
        lambda seed: CollectedSchedule(seed, faults=faults, ordered=ordered),
        note=note,
    ):
        deleted += schedule.deleted
        refused += schedule.refused
        reads += schedule.old_reads
        begun_again += len(schedule.orders)
    print(
        f"{len(seeds)} schedules: {deleted} ranges deleted, {reads} old reads, {refused} refused, {begun_again} instances "
        "began again"
    )
    # How often a process is too slow, and for how long it sleeps, differs much between groups of schedules.
    assert len(seeds) < 20 or (deleted > len(seeds) and refused and (faults or begun_again))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mutant", proof.mutants(MUTANTS, 2))
def test_a_broken_collector_or_fence_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    find(mutant, monkeypatch, "collection", ordered=True)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mutant", proof.mutants(UNORDERED, 1))
def test_a_broken_collector_or_fence_is_found_without_an_order_of_writes(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    find(mutant, monkeypatch, "collection without order", ordered=False)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mutant", proof.mutants(ALL_ROWS, 1))
def test_a_broken_run_over_all_rows_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    mutant(monkeypatch)
    must_be_found(
        mutant.__name__,
        lambda seed: CollectedSchedule(5 * seed + 4, faults=seed % 2 == 1, ordered=False),
        search("collection of all rows", mutant.__name__, ENOUGH),
    )


def find(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, kind: str, *, ordered: bool
) -> None:
    small(monkeypatch)
    mutant(monkeypatch)
    must_be_found(
        mutant.__name__,
        lambda seed: CollectedSchedule(seed, faults=seed % 2 == 1, ordered=ordered),
        search(kind, mutant.__name__, ENOUGH),
    )
