"""The sequence drops old positions: memory stays bounded, and every view stays unchanged.

``HBASEMK_TEST_SEED`` sets the seed of the random part.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hbasemk.format import revisions
from hbasemk.format.extent import Extent
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal.sequence import RevisionSequence, view_up_to
from hbasemk.kernel.journal.view import Pin, View

SEED = int(os.environ.get("HBASEMK_TEST_SEED", "1"))
FIRST = 1000


def ident(number: int) -> int:
    """Return the n-th trunk id of a machine."""
    return number << 24


@dataclass
class Model:
    """A sequence, with all revisions that ever joined, the held snapshots, and the revisions that must be visible in them."""

    chance: random.Random
    keep: int
    window: int
    order: RevisionSequence = field(init=False)
    joined: list[int] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)
    held: list[tuple[View, frozenset[int]]] = field(default_factory=list)
    last: int = FIRST
    shortened: int = 0

    def __post_init__(self) -> None:
        self.order = RevisionSequence.first(Watermark(ident(FIRST), frozenset()))

    @property
    def low_bound(self) -> int:
        return min([*self.waiting, ident(self.last + 1)])

    def step(self) -> None:
        while len(self.waiting) < self.window:
            self.last += 1
            self.waiting.append(ident(self.last))
        decided = [
            self.waiting.pop(self.chance.randrange(min(len(self.waiting), self.chance.choice((1, 1, self.window)))))
            for _ in range(self.chance.randint(1, min(3, len(self.waiting))))
        ]
        joining = [one for one in decided if self.chance.random() >= 0.1]
        self.aborted.update(set(decided).difference(joining))
        self.order.extend(joining)
        self.joined += joining
        if self.chance.random() < 0.2:
            self.hold()
        if self.chance.random() < 0.1:
            self.compact()

    def hold(self) -> None:
        """Hold the head; two snapshots at one position share their pin."""
        position = len(self.order) - 1
        pin = next((one.pin for one, _ in self.held if one.position == position), None) or Pin()
        name, upper = self.order.last_at(position)
        self.held.append((View(name, position, upper, pin=pin), frozenset(self.joined[: position + 1])))
        if len(self.held) > 12:
            self.held.pop(self.chance.randrange(len(self.held)))

    def compact(self) -> None:
        limit = self.chance.choice((self.low_bound - 1, max(ident(FIRST), self.low_bound - 1 - ident(self.window))))
        watermark = Watermark(limit, frozenset(one for one in self.aborted if one <= limit))
        shorter = self.order.shortened(watermark, limit, self.keep)
        if shorter is None:
            return
        self.shortened += 1
        pins = {one.position: one.pin for one, _ in self.held if one.pin is not None and one.pin.extent is None}
        self.order.store_extents({at: pin for at, pin in pins.items() if at < shorter.begin - 1}, self.low_bound)
        self.order = shorter

    def check(self) -> None:
        every = [ident(number) for number in range(FIRST - 3, self.last + 3)]
        for snapshot, visible in self.held:
            for one in every:
                assert self.order.sees(snapshot, one) == (one in visible or one <= ident(FIRST)), (snapshot, one)
            assert not self.order.sees(snapshot, ident(FIRST) | revisions.BRANCH_BIT)
            if self.order.keeps(snapshot):
                floor = self.chance.choice([self.order.floor, *self.joined[-8:]])
                if floor >= self.order.floor:
                    above = sorted(one for one in visible if one > floor)
                    assert list(self.order.above(floor, snapshot.position)) == above
        # By id, below the kept positions: all committed revisions up to that id.
        top = self.order.top
        by_id = view_up_to(top)
        for one in every:
            assert self.order.sees(by_id, one) == (one <= top and one not in self.aborted)


@pytest.mark.parametrize("window", [1, 2, 8, 40])
@pytest.mark.parametrize("keep", [1, 5, 30])
def test_held_views_stay_unchanged(window: int, keep: int) -> None:
    print(f"repeat with HBASEMK_TEST_SEED={SEED}")
    model = Model(random.Random(f"{SEED} {window} {keep}"), keep, window)
    for number in range(400):
        model.step()
        if number % 10 == 9:
            model.check()
    assert model.shortened > 3


@pytest.mark.parametrize("appended", [0, 3])
def test_a_view_with_an_extent_depends_on_no_position(appended: int) -> None:
    """An instance that has just opened keeps position -1, so only the extent distinguishes such a view from its first."""
    order = RevisionSequence.first(Watermark(ident(FIRST), frozenset({ident(FIRST - 4)})))
    order.extend([ident(FIRST + number) for number in range(1, appended + 1)])
    floor, above = ident(FIRST - 2), {ident(FIRST), ident(FIRST + 2)}
    private = ident(FIRST) | revisions.BRANCH_BIT
    trunk = View.of(ident(FIRST + 2), Extent.of(floor, above), ident(FIRST + 2))
    branch = trunk._replace(revision=private, own=frozenset({private}))
    for view in (trunk, branch):
        assert not order.keeps(view)
        seen = {number for number in range(-5, 5) if order.sees(view, ident(FIRST + number))}
        assert seen == {-5, -3, -2, 0, 2}
        assert not order.sees(view, ident(FIRST - 3) | revisions.BRANCH_BIT)
    assert (order.sees(trunk, private), order.sees(branch, private)) == (False, True)


def test_sequence_of_a_million_revisions_stays_small() -> None:
    keep, window = 1000, 20
    chance = random.Random(SEED)
    order = RevisionSequence.first(Watermark(ident(FIRST), frozenset()))
    waiting: list[int] = []
    most = 0
    count = int(os.environ.get("HBASEMK_TEST_REVISIONS", "200000"))
    for number in range(FIRST + 1, FIRST + 1 + count):
        waiting.append(ident(number))
        if len(waiting) < window:
            continue
        order.extend([waiting.pop(chance.randrange(window) if chance.random() < 0.5 else 0)])
        if number % 100 == 0:
            limit = min(waiting) - 1
            order = order.shortened(Watermark(limit, frozenset()), limit, keep) or order
            most = max(most, len(order.ids), len(order.uppers), len(order.positions))
    assert len(order) == count - window + 1
    assert most <= 2 * keep


class _Interrupted(Exception):
    """Stands for the KeyboardInterrupt of a signal handler."""


@pytest.mark.parametrize("where", ["uppers", "ids", "positions"])
@pytest.mark.parametrize("joined", [0, 2])
@pytest.mark.parametrize("together", [1, 3])
def test_interrupted_extend_joins_completely_or_not_at_all(where: str, joined: int, together: int) -> None:
    order = RevisionSequence.first(Watermark(ident(FIRST), frozenset()))
    ids = [ident(FIRST + 1 + number) for number in range(joined + together + 1)]
    order.extend(ids[:joined])

    class Values(list[int]):
        def extend(self, _: Iterable[int]) -> None:
            raise _Interrupted

    class Positions(dict[int, int]):
        def update(self, *_: Any) -> None:
            raise _Interrupted

    held = getattr(order, where)
    setattr(order, where, Positions(held) if where == "positions" else Values(held))
    with pytest.raises(_Interrupted):
        order.extend(ids[joined : joined + together])
    setattr(order, where, type(held)(getattr(order, where)))
    order.repair()
    assert len(order) == (joined + together if where == "positions" else joined)
    order.extend([one for one in ids[joined:] if one not in order.positions])
    assert order.ids == order.uppers == list(order) == ids
    assert order.positions == {one: position for position, one in enumerate(ids)}
