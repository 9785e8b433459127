"""Random schedules in which processes write the same rows several times in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hbasemk.kernel.commit.operations import AddNode, Increment, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.testing.simulation import Actor
from tests.support.simulation.schedules import Schedule

BURST: Final = range(4, 10)
"""The lengths of a series of commits to one row."""
SAME_ROW: Final[Sequence[Callable[[int], list[Operation]]]] = [
    lambda n: [SetProperty("/a", "p", n)],
    lambda n: [SetProperty("/a", f"p{n % 2}", n)],
    lambda _: [Increment("/a", "count", 1)],
    lambda _: [Increment("/a", "count", 1)],
    lambda n: [SetProperty("/a/b", "q", n)],
    lambda n: [AddNode(f"/a/s{n}", {"n": n})],
    lambda n: [AddNode(f"/a/k{n % 4}", {"n": n}), SetProperty("/a", "p", n)],
]
OTHERS: Final[Sequence[Callable[[int], list[Operation]]]] = [
    lambda n: [SetProperty("/a", "p", n), SetProperty("/a/b", "q", n)],
    lambda n: [AddNode(f"/a/k{n % 4}", {"n": n})],
    lambda _: [RemoveNode("/a/b"), AddNode("/a/b", {"again": 1})],
]


class SoleSchedule(Schedule):
    """One run of a seed. Most commits change one row, which the process has often written last."""

    def __init__(self, seed: int, *, faults: bool = True) -> None:
        super().__init__(seed, faults=faults, writers=2, looks=2)

    def turn(self, actor: Actor, instance: Instance, number: int) -> None:
        """Commit to one row, once or several times, or make another commit."""
        chance = self.simulator.chance
        if chance.happens(0.15):
            self.few = [chance.choice(OTHERS)]
            super().turn(actor, instance, number)
            return
        change = chance.choice(SAME_ROW)
        for turn in range(chance.choice(BURST)):
            self.few = [change]
            # Branches write lower numbers. A commit of the present value would return the revision of another one.
            super().turn(actor, instance, 1000 + number * 10 + turn)
            if chance.happens(0.2):
                actor.runtime.sleep(chance.choice((0.01, 0.1, 1)))
