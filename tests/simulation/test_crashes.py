"""A crash at any step of any action leaves all or nothing of it, and needs no manual cleaning up.

At each point a later instance has the same MAC, and in another run a different one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support import proof
from tests.support.simulation.crashes.kind import Kind
from tests.support.simulation.crashes.kinds import KINDS
from tests.support.simulation.crashes.points import (
    MACS,
    STORES,
    Point,
    different_points,
    make_sizes_small,
    named_if_it_fails,
    outcomes,
    prepared,
)


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    make_sizes_small(monkeypatch)


@pytest.fixture(scope="module")
def counted() -> Iterator[list[int]]:
    """Count the crash points of each test."""
    points: list[int] = []
    yield points
    print(f"{sum(points)} crash points of {len(points)} kinds of actions and stores")


@pytest.mark.slow
@pytest.mark.parametrize(
    "action",
    proof.sampled(
        itertools.product(KINDS, STORES),
        # Every twelfth kind on each store, and not the same kinds on two stores.
        lambda position, _: sum(divmod(position, len(STORES))) % 12 == 0,
        lambda action: f"{action[0].name}-{action[1]}",
    ),
)
def test_an_action_stopped_at_any_call_is_applied_fully_or_not_at_all(
    action: tuple[Kind, str], counted: list[int]
) -> None:
    kind, store = action
    site = prepared(kind, STORES[store])
    before, after, steps = outcomes(site, kind)
    assert steps >= 1
    expected = before, after
    points = differ = 0
    for step, way, found in different_points(site, kind, range(steps), expected):
        points += len(MACS)
        if found is None:
            continue
        point: Point | None = found
        for mac in MACS:
            with named_if_it_fails(f"{kind.name}: {way} at step {step}, then an instance with MAC {mac:#x}"):
                (point or Point(site, kind, step, way, expected)).check(mac)
            point = None
        differ += len(MACS)
    counted.append(points)
    print(f"{kind.name}: {steps} steps, {points} crash points, of which {differ} differ")
