"""Commits of a process that alone writes a row, beside other writers: their interleavings, and the mutants they must find."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from hbasemk.format import paths, schema
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.writing import Writing
from hbasemk.store.abc import Get
from tests.support import proof
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.interleavings import WAYS, explore, explore_three, must_be_found_beside
from tests.support.simulation.mutants import sole_rows
from tests.support.simulation.running import each_run
from tests.support.simulation.sole_schedules import SoleSchedule
from tests.support.simulation.writers import ADJUST_KINDS, BESIDE_OTHERS, EXISTS, KINDS, NAMED, SOLE_KINDS, prepare

OTHERS: Final = [*KINDS, "adjust", "set a number", "remove the node", "remove and add the node"]
assert set(OTHERS) <= {*KINDS, *ADJUST_KINDS}
COMPETING: Final = [kind for kind in SOLE_KINDS if kind.endswith("among others")]
"""Kinds that also begin in a state in which the row of /a has no mark: then they mark it."""
MARKING: Final = {"set a new property alone", NAMED}
"""Kinds whose first commit marks the row."""
LONG: Final = {*COMPETING, *BESIDE_OTHERS, *MARKING, *(kind for kind in SOLE_KINDS if ", then" in kind)}
"""Kinds of two commits, that wait for a winner, or that abort each other by marks. Beside them, writers are interleaved with
at most two preemptions."""
BESIDE_ADDED: Final = ["add a child of the name", "first adjust", "set and adjust"]
"""They add the child that a sole writer adds, or a property of its name."""
PAIRS: Final = [
    *itertools.product(SOLE_KINDS, OTHERS),
    *itertools.combinations_with_replacement(SOLE_KINDS, 2),
    *itertools.product(["add alone", "set a new property alone"], BESIDE_ADDED),
    *itertools.product(BESIDE_OTHERS, ["set", "increment", "set and adjust", "set alone", *COMPETING, *BESIDE_OTHERS]),
    # The other one must succeed.
    *itertools.product(
        [EXISTS, NAMED], ["set", "increment", "remove leaf", "remove the node", "copy below", "add alone"]
    ),
]
UNMARKED: Final = [
    *itertools.product(COMPETING, OTHERS),
    *itertools.combinations_with_replacement(COMPETING, 2),
    *itertools.product(COMPETING, ["mark, then increment alone"]),
]
THREE: Final = [
    ("increment", "set among others", "increment among others"),
    ("set", "increment among others", "set among others"),
    ("increment among others", "increment among others", "increment among others"),
    ("remove the node", "increment among others", "increment among others"),
    ("adjust", "increment among others", "increment among others"),
]
SEEDS: Final = proof.seeds("HBASEMK_SOLE_SEEDS", sample=60, proof=600, chunk=150)


def in_each_way(pairs: Sequence[tuple[str, str]]) -> list[Any]:
    """Return pairs of kinds in each way; without the proofs a sample."""
    return proof.sampled(
        list(itertools.product(pairs, WAYS)),
        lambda position, _: position % 29 == 0,
        lambda case: f"{case[0][0]}, {case[0][1]}, {case[1]}",
    )


def test_the_initial_state_has_a_mark() -> None:
    prepared = prepare(marked=True)
    (row,) = prepared.store.read(schema.NODES, [Get(paths.key("/a"), columns=(schema.LAST_REVISION,))])
    assert row.cells[0].value == schema.shared_mark(prepared.head)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", in_each_way(PAIRS))
def test_a_sole_writer_beside_another_one_in_each_interleaving(case: tuple[tuple[str, str], str]) -> None:
    kinds, way = case
    print(explore(kinds, way, marked=True, preemptions=2 if LONG.intersection(kinds) else None))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", in_each_way(UNMARKED))
def test_competitors_without_a_mark_in_each_interleaving(case: tuple[tuple[str, str], str]) -> None:
    kinds, way = case
    print(explore(kinds, way, preemptions=2))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "case",
    proof.sampled(
        list(itertools.product(THREE, (False, True))),
        lambda position, _: position == 0,
        lambda case: f"{', '.join(case[0])}, {'marked' if case[1] else 'not marked'}",
    ),
)
def test_competitors_beside_two_writers(case: tuple[tuple[str, str, str], bool]) -> None:
    kinds, marked = case
    print(explore_three(kinds, adjusts="adjust" in kinds, marked=marked))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [
        (sole_rows.marks_ignored, ("increment", "mark, then increment alone")),
        (sole_rows.other_writers_overlooked, ("increment", "mark, then increment alone")),
        (sole_rows.written_alone_without_compare_and_set, ("increment", "increment alone")),
        (sole_rows.written_alone_without_compare_and_set, ("increment alone", "increment alone")),
        (sole_rows.added_without_compare_and_set, ("set", EXISTS)),
    ],
)
def test_a_mutant_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], kinds: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The integrity check looks for lost updates (I4), too.
    by = ("I4", "I6", 'tables: ["lost update')
    must_be_found_beside(mutant, kinds, monkeypatch, marked=True, preemptions=2, ends=2000, by=by)


@pytest.mark.slow
def test_a_name_that_is_not_read_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    by = ("I12", 'tables: ["name used')
    must_be_found_beside(sole_rows.names_overlooked, ("set", NAMED), monkeypatch, marked=True, preemptions=2, by=by)


@pytest.mark.slow
def test_a_mark_that_is_shared_beside_another_writer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    must_be_found_beside(sole_rows.marks_shared_beside_other_writers, THREE[0], monkeypatch, ends=2000)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("faults", [False, True], ids=["without faults", "with faults"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_every_schedule_keeps_the_invariants(seeds: range, faults: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []
    original = Writing.write_alone

    def write_alone(self: Writing, draft: Draft, plan: ChangeSet) -> bool:
        tried.append(original(self, draft, plan))
        return tried[-1]

    monkeypatch.setattr(Writing, "write_alone", write_alone)
    commits = 0
    for schedule in each_run(
        "HBASEMK_SOLE_SEEDS",
        seeds,
        lambda seed: SoleSchedule(seed, faults=faults),
        note=", with faults" if faults else ", without faults",
    ):
        commits += len(schedule.acknowledged)
    print(f"{commits} commits acknowledged, {sum(tried)} of them alone, {len(tried) - sum(tried)} met another writer")
    assert len(seeds) < 50 or (sum(tried) > len(seeds) and not all(tried))


@pytest.mark.slow
def test_schedules_find_a_write_without_compare_and_set(monkeypatch: pytest.MonkeyPatch) -> None:
    sole_rows.written_alone_without_compare_and_set(monkeypatch)
    must_be_found("written_alone", lambda seed: SoleSchedule(seed, faults=seed % 2 == 1), range(1000))
