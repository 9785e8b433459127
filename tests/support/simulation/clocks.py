"""Schedules with unreliable clocks: servers' clocks step and differ between tables, and machines sleep unnoticed.

They add to :mod:`tests.support.simulation.leases`. On a store with transactions, which models SQLite, the store's clock
steps by any amount, together with the wall clocks of all processes: they share one machine. On the others each table has
a server with a clock of its own, and these differ and step by at most the allowed skew. At any call a machine may sleep. Its
process and its monotonic clock then stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from greenlet import getcurrent

from hbasemk.check.problem import LEASE, OFF_CLOCK
from hbasemk.format import schema
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.simulation import Actor
from hbasemk.testing.trace import Step
from tests.support.simulation.leases import MINUTES, HoldingSimulator, LeaseSchedule
from tests.support.simulation.schedules import store_like

T = TypeVar("T")

STEPS: Final = 0.01
SLEEPS: Final = 0.005
ANY: Final = (0, 150, -150, 1_500, -1_500, 5_000, -5_000, MINUTES, -MINUTES)
WITHIN_SKEW: Final = (0, 150, -150, 250, -250)
"""In ms; the schedules' repositories allow a skew of 500."""


class ClockSimulator(HoldingSimulator):
    """A simulator whose servers' clocks step, and whose machines sleep."""

    steps_of_servers = 0.0
    sleeps = 0.0

    def __init__(self, seed: int, *, choices: Sequence[int] | None = None) -> None:
        super().__init__(seed, choices=choices)
        self.offsets = dict.fromkeys((table.name for table in schema.TABLES), 0)
        self.one_machine = store_like(seed)["transactions"]
        self.stepped = self.slept = 0
        self.store = MemoryStore(
            lambda: int(self.ms) + self.offsets[schema.CLUSTER],
            clocks={name: self._clock_of(name) for name in self.offsets},
            **store_like(seed),
        )

    def _clock_of(self, table: str) -> Callable[[], int]:
        return lambda: int(self.ms) + self.offsets[table]

    def add(self, name: str, work: Callable[[Actor], Any], *, skew_ms: int = 0) -> Actor:
        """Add a process; on one machine its clock is the store's."""
        return super().add(name, work, skew_ms=skew_ms + (self.offsets[schema.CLUSTER] if self.one_machine else 0))

    def calm(self) -> None:
        """Stop all faults; clocks run evenly from now on."""
        super().calm()
        self.steps_of_servers = self.sleeps = 0.0

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """Run one store call on one row."""
        if getcurrent() is not self.main:
            if self.happens(self.sleeps):
                seconds = self.chance.choice((0.15, 4.0, 8.0))
                actor.missed_ms += seconds * 1000
                self.switch(seconds)
                self.slept += 1
            if self.happens(self.steps_of_servers):
                self._step_clock()
        return super().step(actor, what, do)

    def _step_clock(self) -> None:
        self.stepped += 1
        if not self.one_machine:
            self.offsets[self.chance.choice(sorted(self.offsets))] = self.chance.choice(WITHIN_SKEW)
            return
        moved = self.chance.choice(ANY)
        before = self.offsets[schema.CLUSTER]
        self.offsets = dict.fromkeys(self.offsets, moved)
        for actor in self.actors:
            actor.skew_ms += moved - before


class ClockSchedule(LeaseSchedule):
    """One run of a seed."""

    # The check rightly reports ids, and ends of leases, that the clocks put far from the time of their rows.
    excused = (OFF_CLOCK, LEASE)
    simulator_type = ClockSimulator
    simulator: ClockSimulator

    def __init__(self, seed: int, **options: object) -> None:
        super().__init__(seed, **options)  # type: ignore[arg-type]
        self.simulator.steps_of_servers = STEPS
        self.simulator.sleeps = SLEEPS

    def skew(self) -> int:
        """Return 0 on one machine: all processes begin with the same clock."""
        return 0 if self.simulator.one_machine else super().skew()

    def check(self, fresh_instance: Instance, but: Sequence[str] = ()) -> None:
        """Check that live instances see everything once clocks run evenly and the watermark moves, or before."""
        for instance in self.live:
            instance.poll()
            instance.recovery.advance()
        super().check(fresh_instance, but)
