"""How much of each proof `scripts/test`, `scripts/proof` and `scripts/proof --all` run.

A proof is a test of very many cases: random schedules, interleavings, crash points, mutants. Its cases are parameters. Some
of them are a sample that always runs; the others carry the marker ``proof``. Those that take longest also carry the marker
``long``: only ``scripts/proof --all`` runs them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

PROOF = pytest.mark.proof
LONG = (pytest.mark.proof, pytest.mark.long)
Case = TypeVar("Case")


def seeds(variable: str, *, sample: int, proof: int, chunk: int, long: int = 0) -> list[Any]:
    """Return ranges of seeds as parameters: the first ``sample`` seeds, then chunks up to ``proof`` that only the proof runs.

    Only the long proof runs those from ``proof`` up to ``long``. The environment variable replaces all of them: ``first:last``.
    """
    given = os.environ.get(variable)
    if given is not None:
        first, last = (int(part) for part in given.split(":"))
        return [_named(range(start, min(start + chunk, last))) for start in range(first, last, chunk)]
    parts = [_named(range(sample))]
    for first, last, marks in ((sample, proof, (PROOF,)), (proof, long, LONG)):
        parts += [_named(range(start, min(start + chunk, last)), *marks) for start in range(first, last, chunk)]
    return parts


SHARES = [pytest.param(0.2, id="a fifth"), pytest.param(1.0, marks=PROOF, id="all")]
"""How much of a long random walk runs: a fifth, and in the proof all of it."""


def sizes(variable: str | None, sample: float | None, proof: float | None, long: float | None = None) -> list[Any]:
    """Return sizes, divisors of sizes, or seconds, as parameters: of the sample, of the proof and of the long proof.

    None leaves one of them out. The environment variable replaces all of them.
    """
    given = None if variable is None else os.environ.get(variable)
    if given is not None:
        return [float(given)]
    parts: list[tuple[float | None, Any]] = [(sample, ()), (proof, PROOF), (long, LONG)]
    return [pytest.param(size, marks=marks) for size, marks in parts if size is not None]


def _named(part: range, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(part, marks=marks, id=f"seeds {part.start} to {part.stop - 1}")


def sampled(
    cases: Iterable[Case],
    is_sample: Callable[[int, Case], bool],
    name: Callable[[Case], str] = str,
    *,
    is_long: Callable[[int, Case], bool] = lambda *_: False,
) -> list[Any]:
    """Return cases as parameters: ``is_sample(position, case)`` selects those that always run, ``is_long`` the long proof."""

    def marks(position: int, case: Case) -> Any:
        if is_sample(position, case):
            return ()
        return LONG if is_long(position, case) else PROOF

    return [pytest.param(case, marks=marks(position, case), id=name(case)) for position, case in enumerate(cases)]


def pairs(kinds: Iterable[str], ways: Iterable[str], sample: int) -> list[Any]:
    """Return all pairs of kinds, each in all ways, as parameters.

    The proof runs each pair in one way, and pairs in turn in other ways; every ``sample``-th of these cases always runs. The
    long proof runs each pair in its other ways.
    """
    cases = [
        (pair, way, (at + turn) % 3)
        for at, pair in enumerate(itertools.combinations_with_replacement(kinds, 2))
        for turn, way in enumerate(ways)
    ]
    return [
        pytest.param(
            pair,
            way,
            marks=LONG if other else PROOF if at // 3 % sample != 1 else (),
            id=f"{' and '.join(pair)}, {way}",
        )
        for at, (pair, way, other) in enumerate(cases)
    ]


def mutants(cases: Iterable[Case], sample: int) -> list[Any]:
    """Return mutants as parameters; the first ``sample`` of them always run."""
    return sampled(cases, lambda position, _: position < sample, lambda case: case.__name__)  # type: ignore[attr-defined]
