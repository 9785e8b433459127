"""Schedules in which all clocks are arbitrary, and requests arrive twice.

They add to :mod:`tests.support.simulation.clocks`. On a store that does not order all writes each table has several regions. Each
region is on a server whose clock steps by any amount, and moves to servers that are ahead or behind. A request that was
answered may arrive once more, long afterwards; no request writes cells of nodes twice. On every store, monotonic clocks jump
ahead at any call, and a paused machine may find its wall clock as it was before.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from greenlet import getcurrent

from hbasemk.format import schema
from hbasemk.store.abc import Column, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.store.memory_tables import MemoryTable
from hbasemk.testing.simulation import Actor
from hbasemk.testing.trace import Step
from tests.support.simulation.clocks import ANY, ClockSchedule, ClockSimulator
from tests.support.simulation.leases import LATE
from tests.support.simulation.schedules import store_like

T = TypeVar("T")

SERVERS: Final = 3
REGIONS: Final = 3
"""The regions of each table; the hash of a row's key chooses one."""
REPEATED: Final = 0.02
JUMPS: Final = 0.005
AHEAD: Final = (0.15, 4.0, 60.0, 600.0)
"""Seconds by which a monotonic clock jumps ahead."""


class RegionStore(MemoryStore):
    """A store that asks for the time of the server of each row: ``clock_of`` takes the table and the key."""

    def __init__(self, clock_of: Callable[[str, bytes], int], **options: Any) -> None:
        super().__init__(**options)
        self._clock_of = clock_of
        self._row = b""

    def _now(self, table: MemoryTable) -> int:
        return self._clock_of(table.name, self._row)

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Write the rows one by one."""
        for put in puts:
            self._row = put.row
            super().write(table, (put,), durable=durable)

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """As the base class, with the time of the row's server."""
        self._row = put.row
        return super().check_and_write(table, column, expected, put, durable=durable)


class AnyClockSimulator(ClockSimulator):
    """A simulator whose clocks are arbitrary."""

    jumps_ahead = 0.0
    repeats = 0.0

    def __init__(self, seed: int, *, choices: Sequence[int] | None = None) -> None:
        super().__init__(seed, choices=choices)
        self.servers = [0] * SERVERS
        self.places: dict[tuple[str, int], int] = {}
        self.jumped = self.repeated = 0
        if not self.one_machine:
            self.store = RegionStore(self._time_of, **store_like(seed))

    def _time_of(self, table: str, row: bytes) -> int:
        return int(self.ms) + self.servers[self.places.get((table, zlib.crc32(row) % REGIONS), 0)]

    def calm(self) -> None:
        """Stop all faults; the servers' clocks are right from now on, so that writers can commit."""
        super().calm()
        self.jumps_ahead = self.repeats = 0.0
        self.servers = [0] * SERVERS

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """Run one store call on one row."""
        if getcurrent() is self.main:
            return super().step(actor, what, do)
        if self.happens(self.jumps_ahead):
            self._jump(actor)
        result = super().step(actor, what, do)
        if not self.one_machine and what.writes and what.table != schema.NODES and self.happens(self.repeats):
            self.late.append((self.ms + self.chance.choice(LATE), do))
            self.repeated += 1
        return result

    def _jump(self, actor: Actor) -> None:
        self.jumped += 1
        seconds = self.chance.choice(AHEAD)
        if self.chance.happens(0.5):
            actor.missed_ms -= seconds * 1000
            return
        # A paused virtual machine: neither clock counts.
        self.switch(seconds)
        actor.missed_ms += seconds * 1000
        if not self.one_machine:
            actor.skew_ms -= int(seconds * 1000)

    def _step_clock(self) -> None:
        if self.one_machine:
            super()._step_clock()
            return
        self.stepped += 1
        if self.chance.happens(0.5):
            self.servers[self.chance.below(SERVERS)] = self.chance.choice(ANY)
        else:
            table = self.chance.choice(sorted(self.offsets))
            self.places[table, self.chance.below(REGIONS)] = self.chance.below(SERVERS)


class AnyClockSchedule(ClockSchedule):
    """One run of a seed."""

    simulator_type = AnyClockSimulator
    simulator: AnyClockSimulator

    def __init__(self, seed: int, **options: object) -> None:
        super().__init__(seed, **options)
        self.simulator.jumps_ahead = JUMPS
        self.simulator.repeats = REPEATED
