"""A simulator that controls time: it runs the unchanged kernel with several instances, and one seed decides all events.

Each instance is a greenlet on one shared memory store. Before every row that a store call touches, the simulator
chooses which process continues, how much time passes, and whether the call fails, is applied without an answer, or
kills its process. Clocks may jump. The same seed produces the same run, call by call, and so does its list of choices,
which :func:`hbasemk.testing.choices.shrink` shrinks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from types import TracebackType
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from hbasemk.errors import StoreNotAppliedError, StoreUnknownError
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Column, Decision, Delete, Get, Put, Row, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.choices import Choices
from hbasemk.testing.trace import Step, describe
from hbasemk.testing.wrapped import Call, WrappedStore

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

START_MS = 1_800_000_000_000
FAULTS: Final[Mapping[str, float]] = {
    "lost": 0.02,
    "refused": 0.01,
    "deaths": 0.004,
    "pauses": 0.004,
    "twice": 0.05,
    "jumps": 0.004,
}
"""Probabilities with which many calls fail, and most commits still succeed."""


class Died(BaseException):
    """A simulated process died in the middle of its work."""


class Thread:
    """A simulated thread: a greenlet, the time when it may continue, and the ``error`` with which it ended."""

    def __init__(self, simulator: Simulator, work: Callable[[], object]) -> None:
        self.wakes_at = 0.0
        self.waits_for: SimulatedLock | None = None
        self.error: BaseException | None = None
        self._work = work
        # The greenlet returns to the simulator, whichever greenlet starts it.
        self.greenlet = greenlet(self._run, simulator.main)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error


class Actor(Thread):
    """One process: its main thread, its clock's offset in ms, and whether it has died."""

    def __init__(self, simulator: Simulator, name: str, work: Callable[[Actor], Any], skew_ms: int) -> None:
        super().__init__(simulator, lambda: work(self))
        self.simulator = simulator
        self.name = name
        self.skew_ms = skew_ms
        self.missed_ms = 0.0
        """The time in ms for which its monotonic clock stood still."""
        self.died = False
        self.runtime = SimulatedRuntime(self, len(simulator.actors))

    def spawn(self, work: Callable[[], object]) -> Thread:
        """Start another thread of this process; the caller handles its error."""
        thread = Thread(self.simulator, work)
        self.simulator.threads.append(thread)
        return thread

    def open(self, **options: Any) -> Instance:
        """Open an instance of the kernel in this process."""
        return Instance.open(SimulatedStore(self), self.runtime, **options)


class SimulatedLock(AbstractContextManager[object]):
    """A re-entrant lock between greenlets."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self.owner: Any = None
        self._depth = 0

    @classmethod
    def ended(cls, simulator: Simulator, thread: Thread) -> SimulatedLock:
        """Return a lock that is free once a thread has ended."""
        lock = cls(simulator)
        lock.owner = thread.greenlet
        return lock

    def __enter__(self) -> SimulatedLock:
        current = getcurrent()
        while self.owner is not None and self.owner is not current:
            self._simulator.switch(lock=self)
        self.owner = current
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
        self._random = random.Random(number)

    @property
    def random(self) -> random.Random:
        """The actor's own generator; it is fixed because the simulator already varies the delays that it draws."""
        return self._random

    def now_ms(self) -> int:
        """Return the actor's wall clock."""
        return int(self._simulator.ms) + self._actor.skew_ms

    def monotonic(self) -> float:
        """Return true time in seconds, minus the time for which the actor's machine slept."""
        return (self._simulator.ms - self._actor.missed_ms) / 1000

    def sleep(self, seconds: float) -> None:
        """Let other processes continue for some time."""
        self._simulator.switch(seconds=seconds)

    @property
    def retry_timeout(self) -> float:
        """Short, so that calls do fail."""
        return 0.2

    @property
    def closed(self) -> bool:
        """Always False: simulated processes end in other ways."""
        return False

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock of the simulator."""
        return SimulatedLock(self._simulator)

    def run_parallel(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Run two calls concurrently, as threads do."""
        return self._simulator.run_parallel(self._actor, first, second)

    def identity(self) -> tuple[int, str]:
        """Return the process's identity; all simulated processes have the same MAC address."""
        return 0x4242, self._actor.name


class SimulatedStore(WrappedStore):
    """The shared store as one actor uses it: any event may happen at every row."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor.simulator.store)
        self._actor = actor
        self._what: Any = None
        self._condition: tuple[Column, bytes | None] | None = None

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Execute one atomic step with the simulator's faults."""
        condition = self._condition if call.method == "check_and_write" else None
        return self._actor.simulator.step(self._actor, Step(call.method, call.table, self._what, condition), do)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Read row by row: a batch is not a snapshot."""
        rows = []
        for get in gets:
            self._what = get
            rows += super().read(table, (get,))
        return rows

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Write row by row in a random order: a batch may be applied in part."""
        for put in self._actor.simulator.shuffled(puts):
            self._what = put
            super().write(table, (put,), durable=durable)

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete row by row in a random order."""
        for delete in self._actor.simulator.shuffled(deletes):
            self._what = delete
            super().delete(table, (delete,))

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete row by row in a random order."""
        for row in self._actor.simulator.shuffled(rows):
            self._what = row
            super().delete_rows(table, (row,))

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Compare and set; sometimes twice, as HBase's own client does, and then the second answer counts."""
        self._what, self._condition = put, (column, expected)
        answer = super().check_and_write(table, column, expected, put, durable=durable)
        simulator = self._actor.simulator
        if simulator.happens(simulator.twice):
            self._what, self._condition = put, (column, expected)
            answer = super().check_and_write(table, column, expected, put, durable=durable)
        return answer

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Scan in batches of a few rows, so that other processes can run in between."""
        rows: list[Row] = []
        size = self._actor.simulator.scan_rows
        while len(rows) < scan.limit:
            part = min(size, scan.limit - len(rows))
            start = scan.start
            if rows:
                start = rows[-1].key if scan.reverse else rows[-1].key + b"\0"
            again = bool(rows) and scan.reverse
            request = scan._replace(start=start, limit=part + again)
            self._what = request
            found = super().scan(table, request)
            if again and found and found[0].key == start:
                found = found[1:]
            rows += found[:part]
            if len(found) < part:
                break
        return rows

    def write_if(
        self,
        table: str,
        puts: Sequence[Put],
        gets: Sequence[Get],
        judge: Callable[[list[Row]], bool],
        decision: Decision,
        also: Sequence[tuple[str, Get]] = (),
    ) -> bool | None:
        """Execute the whole transaction as one step."""
        return self._actor.simulator.step(
            self._actor,
            Step("write_if", decision.table, decision.put),
            lambda: self.inner.write_if(table, puts, gets, judge, decision, also),
        )

    def close(self) -> None:
        """Do nothing: the shared store stays open."""


class Simulator:
    """One simulated run.

    The ``chances`` are probabilities per store call: ``lost`` replies, ``refused`` calls, ``deaths``, ``pauses``, calls
    made ``twice``, and ``jumps`` of the calling process's clock by ``jump_ms`` in either direction (:meth:`fails`).

    ``choices`` replays a run, complete or shrunk, instead of drawing from the seed. With ``transactions`` the store
    supports transactions, as SQLite; with ``parallel`` it supports parallel calls, as HBase.
    """

    scan_rows = 3
    """The number of rows that one step of a scan reads."""

    def __init__(
        self,
        seed: int,
        *,
        choices: Sequence[int] | None = None,
        transactions: bool = False,
        parallel: bool = False,
        **chances: float,
    ) -> None:
        self.chance = Choices(seed, choices)
        self.ms = float(START_MS)
        self.store = MemoryStore(lambda: int(self.ms), transactions=transactions, parallel=parallel)
        self.main = getcurrent()
        self.actors: list[Actor] = []
        self.threads: list[Thread] = []
        """The threads of all processes except their main threads."""
        self.steps: list[tuple[float, str, Step, object]] = []
        self.jump_ms = 200
        self._current: Thread | None = None
        self.fails(**chances)

    def fails(
        self,
        lost: float = 0.0,
        refused: float = 0.0,
        deaths: float = 0.0,
        pauses: float = 0.0,
        twice: float = 0.0,
        jumps: float = 0.0,
    ) -> None:
        """Set the probabilities of faults from now on."""
        self.lost, self.refused, self.deaths, self.pauses = lost, refused, deaths, pauses
        self.twice, self.jumps = twice, jumps

    def calm(self) -> None:
        """Disable all faults from now on."""
        self.fails()

    @property
    def trace(self) -> list[str]:
        """The run, one line per step, with revisions named in order of appearance."""
        return describe(self.steps)

    def happens(self, probability: float) -> bool:
        """Return whether an event of this probability happens now."""
        return self.chance.happens(probability)

    def shuffled(self, things: Sequence[T]) -> Sequence[T]:
        """Return the things in a random order."""
        if len(things) < 2:
            return things
        result = list(things)
        self.chance.shuffle(result)
        return result

    def add(self, name: str, work: Callable[[Actor], Any], *, skew_ms: int = 0) -> Actor:
        """Add a process."""
        actor = Actor(self, name, work, skew_ms)
        self.actors.append(actor)
        return actor

    def run(self) -> None:
        """Run until every process has ended."""
        while True:
            ready: list[Thread] = []
            waking: list[float] = []
            now = self.ms
            for actor in (*self.actors, *self.threads):
                if actor.greenlet.dead:
                    continue
                if actor.wakes_at > now:
                    waking.append(actor.wakes_at)
                elif actor.waits_for is None or actor.waits_for.owner is None or actor.waits_for.owner.dead:
                    ready.append(actor)
            if not ready:
                if not waking:
                    return
                self.ms = min(waking)
                continue
            actor = self.decide(ready)
            actor.waits_for = None
            self._current = actor
            actor.greenlet.switch()

    def decide(self, ready: list[Thread]) -> Thread:
        """Choose the thread that continues; the one that ran last comes first among those that are ready."""
        if len(ready) == 1:
            return ready[0]
        if self._current in ready:
            ready.remove(self._current)
            ready.insert(0, self._current)
        return self.chance.choice(ready)

    def switch(self, seconds: float = 0.0, lock: SimulatedLock | None = None) -> None:
        """Return control to the simulator; the running thread calls this."""
        if getcurrent() is self.main:
            self.ms += seconds * 1000
            return
        actor = self._current
        assert actor is not None
        actor.wakes_at = self.ms + seconds * 1000
        actor.waits_for = lock
        self.main.switch()

    def run_parallel(self, actor: Actor, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Run two calls of one process concurrently; after both ended, raise the error of the first or of the second."""
        if getcurrent() is self.main:
            return first(), second()
        results: list[A] = []
        context = copy_context()
        other = actor.spawn(lambda: results.append(context.run(first)))
        own: BaseException | None = None
        try:
            result = second()
        except BaseException as error:
            own = error
        if not other.greenlet.dead:
            self.switch(lock=SimulatedLock.ended(self, other))
        self.threads.remove(other)
        if actor.died:
            raise Died
        for failed in (other.error, own):
            if failed is not None:
                raise failed from None
        return results[0], result

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """Execute one store call on one row; a dead process executes none."""
        if getcurrent() is self.main:
            return do()
        self._check_alive(actor)
        self.switch(self.chance.choice((0.0, 0.0, 0.0005, 0.003)))
        if self.happens(self.pauses):
            self.switch(self.chance.choice((0.5, 4.0, 30.0)))
        if self.happens(self.jumps):
            actor.skew_ms = self.chance.choice((0, self.jump_ms, -self.jump_ms))
        self._check_alive(actor)
        note = self._note
        if self.happens(self.refused):
            note(actor, what, "refused")
            raise StoreNotAppliedError(f"the simulator rejected {what.method}")
        if self.happens(self.deaths):
            note(actor, what, "died before")
            actor.died = True
            raise Died
        if self.happens(self.lost / 4):
            note(actor, what, "lost on its way")
            raise StoreUnknownError(f"the simulator lost {what.method} before it was applied")
        result = do()
        if self.happens(self.deaths):
            note(actor, what, "died after")
            actor.died = True
            raise Died
        if self.happens(self.lost):
            note(actor, what, "reply lost")
            raise StoreUnknownError(f"the simulator lost the reply to {what.method}")
        note(actor, what, result)
        return result

    @staticmethod
    def _check_alive(actor: Actor) -> None:
        if actor.died:
            raise Died

    def _note(self, actor: Actor, what: Step, result: object) -> None:
        self.steps.append((self.ms - START_MS, actor.name, what, result))
