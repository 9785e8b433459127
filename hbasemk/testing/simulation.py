"""A simulator that owns time: the unchanged kernel, several instances, one seed for everything that happens.

Each instance is a greenlet over one store in memory. Before every row that a store call touches, the simulator decides
who goes on, how much time passes, and whether the call fails, is applied without an answer, or ends its process. The same
seed gives the same run, call by call.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from hbasemk.errors import StoreNotAppliedError, StoreUnknownError
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Column, Delete, Get, Put, Row, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, WrappedStore

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

START_MS = 1_800_000_000_000


class Died(BaseException):
    """A simulated process ended, in the middle of whatever it did."""


class Actor:
    """One process: a greenlet, its clock's offset in ms, and when it may go on."""

    def __init__(self, simulator: Simulator, name: str, work: Callable[[Actor], Any], skew_ms: int) -> None:
        self.simulator = simulator
        self.name = name
        self.skew_ms = skew_ms
        self.wakes_at = 0.0
        self.waits_for: SimulatedLock | None = None
        self.error: BaseException | None = None
        self.runtime = SimulatedRuntime(self, len(simulator.actors))
        self.greenlet = greenlet(lambda: self._run(work))

    def _run(self, work: Callable[[Actor], Any]) -> None:
        try:
            work(self)
        except BaseException as error:
            self.error = error

    def open(self, **options: Any) -> Instance:
        """An instance of the kernel in this process."""
        return Instance.open(SimulatedStore(self), self.runtime, **options)


class SimulatedLock(AbstractContextManager[object]):
    """A re-entrant lock between greenlets."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self.owner: Any = None
        self._depth = 0

    def __enter__(self) -> SimulatedLock:
        while self.owner is not None and self.owner is not getcurrent():
            self._simulator.switch(lock=self)
        self.owner = getcurrent()
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self.owner = None


class SimulatedRuntime:
    """The kernel's runtime for one actor."""

    def __init__(self, actor: Actor, number: int) -> None:
        self._actor = actor
        self._simulator = actor.simulator
        self._random = random.Random(self._simulator.chance.getrandbits(32))
        self._number = number

    @property
    def random(self) -> random.Random:
        """The actor's own chance, from the seed."""
        return self._random

    def now_ms(self) -> int:
        """The actor's wall clock."""
        return int(self._simulator.ms) + self._actor.skew_ms

    def monotonic(self) -> float:
        """True time in seconds."""
        return self._simulator.ms / 1000

    def sleep(self, seconds: float) -> None:
        """Let others go on for so long."""
        self._simulator.switch(seconds=seconds)

    def lock(self) -> AbstractContextManager[object]:
        """A lock of the simulator's."""
        return SimulatedLock(self._simulator)

    def both(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """One after the other."""
        return first(), second()

    def identity(self) -> tuple[int, str]:
        """All simulated processes have the same MAC."""
        return 0x4242, self._actor.name


class SimulatedStore(WrappedStore):
    """The shared store as one actor sees it: every row is a point where anything can happen."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor.simulator.store)
        self._actor = actor

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """One atomic step, with what the simulator makes of it."""
        return self._actor.simulator.step(self._actor, call, do)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Row by row: a batch is no snapshot."""
        return [row for get in gets for row in super(SimulatedStore, self).read(table, [get])]

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Row by row, in a random order: a batch may be applied in part."""
        for put in self._actor.simulator.shuffled(puts):
            super().write(table, [put], durable=durable)

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Row by row, in a random order."""
        for delete in self._actor.simulator.shuffled(deletes):
            super().delete(table, [delete])

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Now and then it is sent twice, as HBase's own client does, and the second answer counts."""
        answer = super().check_and_write(table, column, expected, put, durable=durable)
        if self._actor.simulator.happens(self._actor.simulator.twice):
            answer = super().check_and_write(table, column, expected, put, durable=durable)
        return answer

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """In batches of a few rows, so that others get in between."""
        rows: list[Row] = []
        while len(rows) < scan.limit:
            part = min(3, scan.limit - len(rows))
            start = scan.start
            if rows:
                start = rows[-1].key if scan.reverse else rows[-1].key + b"\0"
            again = bool(rows) and scan.reverse
            asked = scan._replace(start=start, limit=part + again)
            found = super().scan(table, asked)
            if again and found and found[0].key == start:
                found = found[1:]
            rows += found[:part]
            if len(found) < part:
                break
        return rows

    def close(self) -> None:
        """The shared store stays."""


class Simulator:
    """One run. The chances are per store call: ``lost`` replies, ``refused`` calls, ``deaths``, ``pauses``, ``twice``."""

    def __init__(
        self,
        seed: int,
        *,
        lost: float = 0.0,
        refused: float = 0.0,
        deaths: float = 0.0,
        pauses: float = 0.0,
        twice: float = 0.0,
    ) -> None:
        self.chance = random.Random(seed)
        self.ms = float(START_MS)
        self.store = MemoryStore(lambda: int(self.ms))
        self.actors: list[Actor] = []
        self.trace: list[str] = []
        self.lost, self.refused, self.deaths, self.pauses, self.twice = lost, refused, deaths, pauses, twice
        self._main = getcurrent()

    def happens(self, probability: float) -> bool:
        """Whether something of this probability happens now."""
        return probability > 0 and self.chance.random() < probability

    def shuffled(self, things: Sequence[T]) -> list[T]:
        """The things in a random order."""
        result = list(things)
        self.chance.shuffle(result)
        return result

    def calm(self) -> None:
        """From now on nothing fails."""
        self.lost = self.refused = self.deaths = self.pauses = self.twice = 0.0

    def add(self, name: str, work: Callable[[Actor], Any], *, skew_ms: int = 0) -> Actor:
        """One more process."""
        actor = Actor(self, name, work, skew_ms)
        self.actors.append(actor)
        return actor

    def run(self) -> None:
        """Until every process has ended."""
        while True:
            living = [actor for actor in self.actors if not actor.greenlet.dead]
            if not living:
                return
            ready = [
                actor
                for actor in living
                if actor.wakes_at <= self.ms
                and (actor.waits_for is None or actor.waits_for.owner is None or self._is_dead(actor.waits_for))
            ]
            if not ready:
                self.ms = min(actor.wakes_at for actor in living if actor.wakes_at > self.ms)
                continue
            actor = self.chance.choice(ready)
            actor.waits_for = None
            actor.greenlet.switch()

    def _is_dead(self, lock: SimulatedLock) -> bool:
        return any(actor.greenlet is lock.owner and actor.greenlet.dead for actor in self.actors)

    def switch(self, seconds: float = 0.0, lock: SimulatedLock | None = None) -> None:
        """Give the turn back; called by whoever has it."""
        if getcurrent() is self._main:
            self.ms += seconds * 1000
            return
        actor = next(one for one in self.actors if one.greenlet is getcurrent())
        actor.wakes_at = self.ms + seconds * 1000
        actor.waits_for = lock
        self._main.switch()

    def step(self, actor: Actor, call: Call, do: Callable[[], T]) -> T:
        """One store call on one row."""
        if getcurrent() is self._main:
            return do()
        self.switch(self.chance.choice((0.0, 0.0005, 0.003)))
        if self.happens(self.pauses):
            self.switch(self.chance.choice((0.5, 4.0, 30.0)))
        self.trace.append(f"{self.ms - START_MS:9.1f} {actor.name}: {call.method} {call.table}")
        if self.happens(self.refused):
            self.trace[-1] += " (refused)"
            raise StoreNotAppliedError(f"{call.method} was refused by the simulator")
        if self.happens(self.deaths):
            self.trace[-1] += " (died before)"
            raise Died
        result = do()
        if self.happens(self.deaths):
            self.trace[-1] += " (died after)"
            raise Died
        if self.happens(self.lost):
            self.trace[-1] += " (reply lost)"
            raise StoreUnknownError(f"the reply to {call.method} was lost by the simulator")
        return result
