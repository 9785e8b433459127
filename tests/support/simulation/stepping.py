"""Collectors on one machine, whose clock steps and which sleeps unnoticed, on a store that orders all writes.

The store and all processes share the clock, as on SQLite. :mod:`tests.support.simulation.clocks` has no collectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from greenlet import getcurrent

from hbasemk.check.problem import LEASE, OFF_CLOCK
from hbasemk.testing.simulation import Actor, Simulator
from hbasemk.testing.trace import Step
from tests.support.simulation.clocks import ANY
from tests.support.simulation.collection import CollectedSchedule

T = TypeVar("T")

STEPS: Final = 0.02
SLEEPS: Final = 0.002


class SteppingSimulator(Simulator):
    """A simulator of one machine whose clock steps, and that sleeps."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.offset_ms = 0
        self.steps_of_clock, self.sleeps = STEPS, SLEEPS
        self.stepped = self.slept = 0
        self.store = self.store.clone(lambda: int(self.ms) + self.offset_ms)

    def add(self, name: str, work: Callable[[Actor], Any], *, skew_ms: int = 0) -> Actor:
        """Add a process with the clock of the machine."""
        return super().add(name, work, skew_ms=skew_ms + self.offset_ms)

    def calm(self) -> None:
        """Stop all faults; the clock runs evenly from now on."""
        super().calm()
        self.steps_of_clock = self.sleeps = 0.0

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """Run one store call on one row."""
        if getcurrent() is not self.main:
            if self.happens(self.sleeps):
                self.slept += 1
                self.switch(self.chance.choice((0.15, 4.0, 8.0)))
            if self.happens(self.steps_of_clock):
                self.stepped += 1
                before, self.offset_ms = self.offset_ms, self.chance.choice(ANY)
                for one in self.actors:
                    one.skew_ms += self.offset_ms - before
        return super().step(actor, what, do)


class SteppingSchedule(CollectedSchedule):
    """One run of a seed."""

    # The check rightly reports ids, and ends of leases, that the clock put far from the time of their rows.
    misdated = (OFF_CLOCK, LEASE)
    excused = (*CollectedSchedule.excused, *misdated)
    simulator_type = SteppingSimulator

    def __init__(self, seed: int, *, choices: Sequence[int] | None = None) -> None:
        super().__init__(seed, faults=False, ordered=True, choices=choices)

    @property
    def disturbances(self) -> tuple[int, int]:
        """How often the clock stepped, and how often the machine slept."""
        assert isinstance(self.simulator, SteppingSimulator)
        return self.simulator.stepped, self.simulator.slept

    def skew(self) -> int:
        """Return 0: all processes have the clock of the machine."""
        return 0
