"""Crash points that are left out because they have the image of another one: their checks leave the same."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.reading.cache import NodeCache
from hbasemk.store.memory import MemoryStore
from hbasemk.store.memory_tables import MemoryRow, MemoryTable
from tests.support import proof
from tests.support.simulation.crashes.kinds import KINDS
from tests.support.simulation.crashes.points import MACS, STORES, Point, make_sizes_small, outcomes, prepared
from tests.support.simulation.crashes.sites import WAYS, Site


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    make_sizes_small(monkeypatch)


@pytest.fixture(autouse=True)
def garbage_kept() -> Iterator[None]:
    """Collect garbage at the same moments of all runs: it decides until when a view pins its position."""
    gc.disable()
    yield
    gc.enable()


def end(point: Point, mac: int) -> bytes | str:
    """Return all that the checks leave, in the store and in each instance, or the error that they raise."""
    try:
        return point.image(*point.check(mac))
    except Exception as error:
        return repr(error)


Rule = Callable[[pytest.MonkeyPatch], None]
"""Changes what an image shows."""


def compare(name: str, store: str, rule: Rule = lambda _: None) -> tuple[int, int]:
    """Check all points of an action, also those that are left out; return how many there are and how many differ.

    Fails if two points with the same image end differently.
    """
    kind = next(one for one in KINDS if one.name == name)
    site = prepared(kind, STORES[store])
    before, after, steps = outcomes(site, kind)
    ends: dict[tuple[bytes, int], tuple[str, bytes | str]] = {}
    points = 0
    for step, way, mac in itertools.product(range(steps), WAYS, MACS):
        point = Point(site, kind, step, way, (before, after))
        here = f"{way!r} at step {step}"
        with pytest.MonkeyPatch.context() as patch:
            rule(patch)
            image = point.image()
        result = end(point, mac)
        first, expected = ends.setdefault((image, mac), (here, result))
        assert result == expected, f"{here} is not the same as {first}"
        points += 1
    return points, len(ends)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "action",
    proof.sampled(
        itertools.product([kind.name for kind in KINDS], STORES),
        lambda position, _: position % 80 == 17,
        " - ".join,
        is_long=lambda position, _: position % 40 != 0,
    ),
)
def test_crash_points_that_are_left_out_are_the_same(action: tuple[str, str]) -> None:
    points, differ = compare(*action)
    print(f"{action[0]}: {points} crash points, of which {differ} differ")
    assert differ < points


# --- wrong rules -------------------------------------------------------------------------------------------------


def hides(kind: type) -> Rule:
    """Return the rule that an image shows nothing of an object of this type."""

    def hide(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(kind, "__reduce_ex__", lambda *_: (bool, ()))

    hide.__name__ = f"hides {kind.__name__}"
    return hide


def omits(kind: type, attribute: str) -> Rule:
    """Return the rule that an image shows nothing of this attribute."""

    def omit(patch: pytest.MonkeyPatch) -> None:
        def state(self: Any) -> object:
            return {name: value for name, value in vars(self).items() if name != attribute}

        patch.setattr(kind, "__getstate__", state, raising=False)

    omit.__name__ = f"omits {attribute}"
    return omit


@pytest.mark.parametrize(
    ("rule", "action"),
    [
        (hides(Point), "set"),
        (hides(MemoryStore), "set"),
        (hides(MemoryTable), "set alone"),
        (hides(MemoryRow), "set alone"),
        (hides(Instance), "set"),
        (hides(Journal), "merge"),
        (hides(NodeCache), "merge"),
        (omits(Site, "acting"), "set"),
        (omits(Point, "away"), "creation of a repository"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_a_wrong_rule_is_found(rule: Rule, action: str) -> None:
    # An image without the time, the watcher or a single flag is no wrong rule: it shows them in other places, too.
    with pytest.raises(AssertionError, match="is not the same as") as found:
        compare(action, "one by one", rule)
    print(found.value)
