"""A simulator in which nothing fails and no time passes, and each step is somebody's decision.

So all that differs between two runs of a scenario is the order of steps, and :mod:`hbasemk.testing.exploration` can go through
all of them. A process that sleeps goes on after some other process has made a step (a write, if it has only looked
since it slept last: so two that wait for a third do not wake each other for ever).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from greenlet import getcurrent

from hbasemk.store.memory import MemoryStore
from hbasemk.testing.simulation import Actor, Died, SimulatedLock, Simulator
from hbasemk.testing.trace import Step

T = TypeVar("T")

LOOKS = ("read", "scan")
"""The calls that write nothing."""


class SteppedSimulator(Simulator):
    """``store`` is where the processes meet: usually a clone of one that has been prepared."""

    scan_rows = 1000

    def __init__(self, store: MemoryStore | None = None) -> None:
        super().__init__(0, choices=())
        if store is not None:
            self.store = store
        self.over = False
        self.pending: dict[Actor, Step] = {}
        """What each process that is awake is about to do."""
        self.woken: dict[Actor, int] = {}
        """How many times each has slept and was woken."""
        self._asleep: dict[Actor, int] = {}
        self._made = 0
        self._written = 0
        self._writers: set[Actor] = set()

    # --- what the processes do -----------------------------------------------------------------------------

    def switch(self, seconds: float = 0.0, lock: SimulatedLock | None = None) -> None:
        """Sleep until somebody else has made a step; one that has only read since it slept last, until one has written."""
        if getcurrent() is self._main:
            self.ms += seconds * 1000
            return
        if self.over:
            raise Died
        if lock is not None:
            raise AssertionError("one process has one thread here")
        if seconds <= 0:
            return
        actor = self._current
        assert actor is not None
        self._asleep[actor] = self._made if actor in self._writers else -1 - self._written
        self._writers.discard(actor)
        self._main.switch()
        if self.over:
            raise Died
        self._asleep.pop(actor, None)
        self.woken[actor] = self.woken.get(actor, 0) + 1

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """Say what comes next, wait for the turn, do it."""
        if getcurrent() is self._main:
            return do()
        if self.over:
            raise Died
        self.pending[actor] = what
        self._main.switch()
        if self.over:
            raise Died
        result = do()
        self._made += 1
        if what.method not in LOOKS:
            self._written += 1
            self._writers.add(actor)
        self._note(actor, what, result)
        return result

    # --- who goes on ----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Let every process come to its first step."""
        for actor in self.actors:
            self.go(actor)

    def enabled(self) -> list[Actor]:
        """The processes that can make a step; sleepers once somebody has made one, or if there is nobody else."""
        living = [actor for actor in self.actors if not actor.greenlet.dead]
        nobody = all(actor in self._asleep for actor in living)
        for actor, since in list(self._asleep.items()):
            if nobody or (self._made > since >= 0) or self._written > -1 - since >= 0:
                # Up to its next step it touches nothing that others see.
                self.go(actor)
        return [actor for actor in living if not actor.greenlet.dead and actor not in self._asleep]

    def sleeps(self, actor: Actor) -> bool:
        """Whether a process waits for somebody else's step."""
        return actor in self._asleep

    def sleeps_till_written(self, actor: Actor) -> bool:
        """Whether a process waits for somebody else's write."""
        return self._asleep.get(actor, 0) < 0

    def go(self, actor: Actor) -> None:
        """Let one process make its step and come to the next."""
        self._current = actor
        self.pending.pop(actor, None)
        actor.greenlet.switch()

    def end(self) -> None:
        """Stop what still runs."""
        self.over = True
        for actor in self.actors:
            if actor.greenlet and not actor.greenlet.dead:
                actor.greenlet.throw(Died)
        self.over = False
