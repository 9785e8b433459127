"""Two writers, with pauses past the lease at every pair of moments: all pairs of a few kinds, on each kind of store."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.support import proof
from tests.support.simulation.mutants import logs
from tests.support.simulation.passing_time import WAYS, explore_with_pauses, must_be_found_with_pauses

KINDS = ("set", "increment", "add", "remove subtree", "old base", "merge", "adjust")
CASES = [(pair, way) for pair in itertools.combinations_with_replacement(KINDS, 2) for way in WAYS]
SAMPLE = (
    (("increment", "add"), "step by step on SQLite"),
    (("increment", "add"), "one transaction each, paused machines"),
)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("case", "stride"),
    [
        *((case, 9) for case in SAMPLE),
        *(pytest.param(case, 9, marks=proof.PROOF) for case in CASES[::6]),
        *(pytest.param(case, 1, marks=proof.LONG) for case in CASES),
    ],
    ids=lambda one: f"{' and '.join(one[0])}, {one[1]}" if isinstance(one, tuple) else f"stride {one}",
)
def test_two_writers_with_a_pause_at_each_switch(case: tuple[tuple[str, str], str], stride: int) -> None:
    kinds, way = case
    print(explore_with_pauses(kinds, WAYS[way], stride), "runs")


Mutant = Callable[[pytest.MonkeyPatch], None]
ON_HBASE = (("set", "increment"), "as on HBase, paused machines")
MUTANTS: list[tuple[Mutant, tuple[tuple[str, str], str]]] = [
    (logs.logs_of_expired_leases_not_closed, ON_HBASE),
    (logs.logs_written_by_any_holder, ON_HBASE),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "case"), MUTANTS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_mutant_is_found(mutant: Mutant, case: tuple[tuple[str, str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, way = case
    must_be_found_with_pauses(mutant, kinds, WAYS[way], monkeypatch)
