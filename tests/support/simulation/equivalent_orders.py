"""Leave out orders of the steps of two processes that differ from another one only in the order of independent steps.

An order is that of :meth:`~hbasemk.testing.stepped.SteppedSimulator.run_with_switches`: it has at most two switches. Two
runs are the same if each pair of dependent steps, one of each process, is in the same order in both (Mazurkiewicz, "Trace
theory", 1987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from hbasemk.store.memory import MemoryStore
from hbasemk.testing.simulation import Actor
from hbasemk.testing.stepped import SteppedSimulator
from tests.support.simulation.footprints import Footprint, FootprintStore

Order = tuple[int, int, int]
"""The number of the process that begins, how many steps it makes, and how many the other one makes before both finish."""


class RecordedSimulator(SteppedSimulator):
    """A stepped simulator, on a clone of ``prepared``, that records the footprint of each step in ``footprints``.

    A step ends where the process announces the next one, so its footprint also has what the process reads on the way.
    Raises TypeError for a subclass of MemoryStore: it may have state that no footprint has.
    """

    def __init__(self, prepared: MemoryStore, ms: float) -> None:
        super().__init__()
        if type(prepared) is not MemoryStore:
            raise TypeError(f"the footprints of a {type(prepared).__name__} are unknown; use a MemoryStore")
        self.ms = ms
        self.cells = prepared.clone(lambda: int(self.ms))
        self.footprints: dict[Actor, list[Footprint]] = {}
        self._recorded = FootprintStore(self.cells)
        self.store = self._recorded  # type: ignore[assignment]

    def prepare(self) -> None:
        """Run every process up to its first step; that is the same in all orders."""
        super().prepare()
        self.footprints = {actor: [] for actor in self.actors}

    def go(self, actor: Actor) -> None:
        """Record the step of one process."""
        footprint = self._recorded.footprint = Footprint()
        super().go(actor)
        self._recorded.footprint = Footprint()
        self.footprints.setdefault(actor, []).append(footprint)


class EquivalentOrders:
    """The orders that are the same run as ``order``, in which two processes have made steps with these footprints.

    For each step of process 0, only the dependent steps of process 1 that come before it count. In each order, the steps of
    process 0 come after none, some, or all steps of process 1, in this sequence. So it is enough to know which of the steps
    find the same dependent steps before them if they come after ``count`` steps: of the first steps how many do so
    (``_first[count]``), and from which one on all do (``_last[count]``).
    """

    def __init__(self, order: Order, footprints: Sequence[Sequence[Footprint]]) -> None:
        ours, theirs = footprints
        self._steps = len(ours), len(theirs)
        dependent = [[not one.is_independent_of(other) for other in theirs] for one in ours]
        masks = [sum(1 << at for at, depends in enumerate(row) if depends) for row in dependent]
        before = [mask & ((1 << count) - 1) for mask, count in zip(masks, self._counts(order), strict=True)]
        self._first: list[int] = []
        self._last: list[int] = []
        for count in range(len(theirs) + 1):
            other = [at for at, mask in enumerate(masks) if mask & ((1 << count) - 1) != before[at]]
            self._first.append(other[0] if other else len(ours))
            self._last.append(other[-1] + 1 if other else 0)

    def _limited(self, order: Order) -> Order:
        """Return the order with the numbers of steps that the processes really make."""
        first, own, others = order
        return first, min(own, self._steps[first]), min(others, self._steps[1 - first])

    def _counts(self, order: Order) -> list[int]:
        """Return for each step of process 0 the number of steps of process 1 before it."""
        first, own, others = self._limited(order)
        ours, theirs = self._steps
        if first == 0:
            return [0] * own + [others] * (ours - own)
        return [own] * others + [theirs] * (ours - others)

    def __contains__(self, order: Order) -> bool:
        first, own, others = self._limited(order)
        if first == 0:
            return own <= self._first[0] and self._last[others] <= own
        return others <= self._first[own] and self._last[-1] <= others


def represented(
    orders: Iterable[Order], run: Callable[[Order], Sequence[Sequence[Footprint]]]
) -> Iterator[list[Order]]:
    """Run an order, yield it and all others that are the same run, and continue with the first one of the rest.

    ``run`` makes a run and returns the footprints of the steps of both processes.
    """
    left = list(orders)
    while left:
        same = EquivalentOrders(left[0], run(left[0]))
        assert left[0] in same, "an order is the same run as itself"
        yield [one for one in left if one in same]
        left = [one for one in left if one not in same]
