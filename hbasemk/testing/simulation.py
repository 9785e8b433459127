"""A simulator that controls time: it runs the unchanged kernel with several instances, and one seed decides all events.

Each instance is a greenlet on one shared memory store. Before every row that a store call touches, the simulator
chooses which process continues and how much time passes. It also chooses whether the call fails, is applied without an
answer, or kills its process. Clocks may jump. The same seed produces the same run, call by call, and so does its list of choices,
which :func:`hbasemk.testing.choices.shrink` shrinks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from types import TracebackType
from typing import Any, Final, TypeVar

from hbasemk.errors import StoreNotAppliedError, StoreUnknownError
from hbasemk.kernel.instance import Instance
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.choices import Choices
from hbasemk.testing.greenlets import getcurrent, greenlet
from hbasemk.testing.simulated_store import SimulatedStore
from hbasemk.testing.trace import Step, describe

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
            if current is self._simulator.main:
                raise RuntimeError("a simulated process holds the lock, so the simulator's caller would never continue")
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

    @property
    def process(self) -> int:
        """Always 0: simulated processes do not fork."""
        return 0

    def identity(self) -> tuple[int, str]:
        """Return the process's identity; all simulated processes have the same MAC address."""
        return 0x4242, self._actor.name


class Simulator:
    """One simulated run.

    The ``chances`` are probabilities per store call: ``lost`` replies, ``refused`` calls, ``deaths``, ``pauses``, calls
    made ``twice``, and ``jumps`` of the calling process's clock by ``jump_ms`` in either direction (:meth:`fails`).

    ``choices`` replays a run, complete or shrunk, instead of drawing from the seed. With ``transactions`` the store
    supports transactions, as SQLite; with ``parallel`` it supports parallel calls, as HBase. A commit of more than
    ``batch_rows`` rows does not fit one transaction.
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
        batch_rows: int = 1000,
        **chances: float,
    ) -> None:
        self.chance = Choices(seed, choices)
        self.ms = float(START_MS)
        self.store = MemoryStore(
            lambda: int(self.ms), transactions=transactions, parallel=parallel, batch_rows=batch_rows
        )
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
        """Run until every process has ended; raise RuntimeError if they wait for each other's locks."""
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
                    waiting = sum(not one.greenlet.dead for one in (*self.actors, *self.threads))
                    if waiting:
                        raise RuntimeError(
                            f"deadlock: {waiting} threads wait for locks that none of them gives back; all threads must "
                            "take the locks in one order"
                        )
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
        if actor.died:
            raise Died
        choices = self.chance
        self.switch(choices.choice((0.0, 0.0, 0.0005, 0.003)))
        # Each probability is compared with 0 first: most runs have no faults, and this is their most frequent code.
        if self.pauses and choices.happens(self.pauses):
            self.switch(choices.choice((0.5, 4.0, 30.0)))
        if self.jumps and choices.happens(self.jumps):
            actor.skew_ms = choices.choice((0, self.jump_ms, -self.jump_ms))
        if actor.died:
            raise Died
        note = self._note
        if self.refused and choices.happens(self.refused):
            note(actor, what, "refused")
            raise StoreNotAppliedError(f"the simulator rejected {what.method}")
        if self.deaths and choices.happens(self.deaths):
            note(actor, what, "died before")
            actor.died = True
            raise Died
        if self.lost and choices.happens(self.lost / 4):
            note(actor, what, "lost on its way")
            raise StoreUnknownError(f"the simulator lost {what.method} before it was applied")
        result = do()
        if self.deaths and choices.happens(self.deaths):
            note(actor, what, "died after")
            actor.died = True
            raise Died
        if self.lost and choices.happens(self.lost):
            note(actor, what, "reply lost")
            raise StoreUnknownError(f"the simulator lost the reply to {what.method}")
        note(actor, what, result)
        return result

    def _note(self, actor: Actor, what: Step, result: object) -> None:
        self.steps.append((self.ms - START_MS, actor.name, what, result))
