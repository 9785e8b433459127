"""Whether schedules find a mutant."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from hbasemk.errors import HbasemkError
from tests.support.simulation.running import SeededRun
from tests.support.simulation.trees import Broken


def must_be_found(name: str, make: Callable[[int], SeededRun], seeds: Iterable[int]) -> None:
    """Run the schedules of the seeds until an invariant is broken, and fail if none is.

    A process that ends with a built-in Python error breaks none: a mutant that no longer fits the kernel does the same.
    """
    tried = 0
    other: Exception | None = None
    for seed in seeds:
        tried += 1
        schedule = make(seed)
        try:
            schedule.run()
        except Broken as error:
            if not _merely_ended(schedule, error):
                print(f"{name} was found by schedule {seed}, number {tried} of the search: {str(error)[:100]}")
                return
            other = error
        except Exception as error:
            other = error
    pytest.fail(f"{name} was not found in {tried} schedules" + (f"; the last error was {other!r}" if other else ""))


def _merely_ended(schedule: SeededRun, error: Broken) -> bool:
    simulator = schedule.simulator
    ends = [one.error for one in (*simulator.actors, *simulator.threads)]
    cause = error.__cause__
    return any(end is cause for end in ends if end is not None) and not isinstance(cause, (Broken, HbasemkError))
