"""Runs of the schedules of many seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from hbasemk.testing.simulation import Simulator


class SeededRun(Protocol):
    """A run that a seed determines."""

    simulator: Simulator

    def run(self) -> None:
        """Run the schedule and check the invariants; raise Broken if one is violated."""


S = TypeVar("S", bound=SeededRun)


def each_run(
    variable: str,
    seeds: Iterable[int],
    make: Callable[[int], S],
    *,
    note: str = "",
    shortest: Callable[[int], list[str]] | None = None,
) -> Iterator[S]:
    """Run the schedules of the seeds; yield each after its run.

    Before the error of a schedule is raised, this prints how to repeat it, and its trace: the shrunk one of
    ``shortest(seed)``, or its own.
    """
    for seed in seeds:
        schedule = make(seed)
        try:
            schedule.run()
        except BaseException:
            print(f"repeat with {variable}={seed}:{seed + 1}{note}")
            print("\n".join(schedule.simulator.trace if shortest is None else shortest(seed)))
            raise
        yield schedule
