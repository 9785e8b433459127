"""How much of each proof `scripts/test` runs; `scripts/proof` runs the rest.

A proof is a test of very many cases: random schedules, interleavings, crash points, mutants. Its cases are parameters. Some
of them are a sample that always runs; the others carry the marker ``proof``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

PROOF = pytest.mark.proof
Case = TypeVar("Case")


def seeds(variable: str, *, sample: int, proof: int, chunk: int) -> list[Any]:
    """Ranges of seeds as parameters: the first ``sample`` seeds, then chunks up to ``proof`` that only the proof runs.

    The environment variable replaces all of them: ``first:last``.
    """
    given = os.environ.get(variable)
    if given is not None:
        first, last = (int(part) for part in given.split(":"))
        return [_named(range(start, min(start + chunk, last))) for start in range(first, last, chunk)]
    rest = [range(start, min(start + chunk, proof)) for start in range(sample, proof, chunk)]
    return [_named(range(sample)), *(_named(part, PROOF) for part in rest)]


SHARES = [pytest.param(0.4, id="two fifths"), pytest.param(1.0, marks=PROOF, id="all")]
"""How much of a long random walk runs: two fifths, and in the proof all of it."""


def scales(sample: int) -> list[Any]:
    """Divisors, as parameters, of a test's sizes and of the limits that it tests: ``sample``, and in the proof 1."""
    return [sample, pytest.param(1, marks=PROOF)]


def _named(part: range, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(part, marks=marks, id=f"seeds {part.start} to {part.stop - 1}")


def sampled(
    cases: Iterable[Case], is_sample: Callable[[int, Case], bool], name: Callable[[Case], str] = str
) -> list[Any]:
    """Cases as parameters, with ``is_sample(position, case)`` to choose those that always run."""
    return [
        pytest.param(case, marks=() if is_sample(position, case) else PROOF, id=name(case))
        for position, case in enumerate(cases)
    ]


def mutants(cases: Iterable[Case], sample: int) -> list[Any]:
    """Mutants as parameters; the first ``sample`` of them always run."""
    return sampled(cases, lambda position, _: position < sample, lambda case: case.__name__)  # type: ignore[attr-defined]
