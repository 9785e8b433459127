"""Random schedules of writers that add and remove children of one node, and the node itself, beside a reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hbasemk.kernel.commit.operations import AddNode, MoveNode, Operation, RemoveNode
from tests.support.simulation.schedules import Schedule

AGAIN: list[Operation] = [RemoveNode("/a/b"), AddNode("/a/b", {"again": 1})]


class ChildListSchedule(Schedule):
    """One run of a seed, in which most commits change the list of the children of ``/a/b``. Every other seed has faults."""

    few: Sequence[Callable[[int], list[Operation]]] = [
        lambda n: [AddNode(f"/a/b/k{n % 7}", {"n": n})],
        lambda n: [AddNode(f"/a/b/k{n % 5}", {"n": n})],
        lambda n: [RemoveNode(f"/a/b/k{n % 5}")],
        lambda n: [MoveNode(f"/a/b/k{n % 5}", f"/a/b/m{n % 3}")],
        lambda _: AGAIN,
        lambda n: [*AGAIN, AddNode(f"/a/b/k{n % 7}", {"n": n})],
    ]

    def __init__(self, seed: int) -> None:
        super().__init__(seed, faults=seed % 2 == 1, writers=2, commits=6, looks=8)
