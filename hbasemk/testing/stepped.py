"""A simulator in which nothing fails and no time passes, and each step is somebody's decision.

So all that differs between two runs of a scenario is the order of steps, and :mod:`hbasemk.testing.exploration` can go through
all of them. A process that sleeps goes on after some other process has made a step (a write, if it has only looked
since it slept last: so two that wait for a third do not wake each other for ever).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from greenlet import getcurrent

from hbasemk.errors import HbasemkError
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.simulation import Actor, Died, SimulatedLock, Simulator
from hbasemk.testing.trace import Step

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class _Sleep(NamedTuple):
    """How many steps (``till_written``: writes) had been made when a process fell asleep; one more wakes it."""

    since: int
    till_written: bool


class SteppedSimulator(Simulator):
    """``store`` is where the processes meet: usually a clone of one that has been prepared.

    With ``backwards`` the rows of a batch are written from the last to the first.
    """

    scan_rows = 1000

    def __init__(self, store: MemoryStore | None = None, *, backwards: bool = False) -> None:
        super().__init__(0, choices=())
        if store is not None:
            self.store = store
        self.over = False
        self.pending: dict[Actor, Step] = {}
        """What each process that is awake is about to do."""
        self.wakings: dict[Actor, int] = {}
        """How many times each has slept and was woken."""
        self._backwards = backwards
        self._asleep: dict[Actor, _Sleep] = {}
        self._made = 0
        self._written = 0
        self._writers: set[Actor] = set()

    # --- what the processes do -----------------------------------------------------------------------------

    def switch(self, seconds: float = 0.0, lock: SimulatedLock | None = None) -> None:
        """Sleep until somebody else has made a step; one that has only read since it slept last, until one has written."""
        if getcurrent() is self.main:
            self.ms += seconds * 1000
            return
        if self.over:
            raise Died
        if lock is not None:
            raise AssertionError("one process has one thread here")
        if seconds <= 0:
            return
        actor = self._current
        assert isinstance(actor, Actor)
        till_written = actor not in self._writers
        self._asleep[actor] = _Sleep(self._written if till_written else self._made, till_written)
        self._writers.discard(actor)
        self.main.switch()
        if self.over:
            raise Died
        self._asleep.pop(actor, None)
        self.wakings[actor] = self.wakings.get(actor, 0) + 1

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """Say what comes next, wait for the turn, do it."""
        if getcurrent() is self.main:
            return do()
        if self.over:
            raise Died
        self.pending[actor] = what
        self.main.switch()
        if self.over:
            raise Died
        self._made += 1
        if what.writes:
            self._written += 1
            self._writers.add(actor)
        try:
            result = do()
        except HbasemkError as error:
            # The store refuses what was asked: an answer like any other.
            self._note(actor, what, repr(error))
            raise
        self._note(actor, what, result)
        return result

    def shuffled(self, things: Sequence[T]) -> Sequence[T]:
        """The rows of a batch in the one order that this simulator has."""
        return things[::-1] if self._backwards else things

    def run_parallel(self, _: Actor, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """One after the other: a process is one sequence of steps here."""
        return first(), second()

    # --- who goes on ----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Let every process come to its first step."""
        for actor in self.actors:
            self.go(actor)

    def enabled(self) -> list[Actor]:
        """Wake those that sleep and whose turn has come, or all if there is nobody else; returns who can make a step."""
        living = [actor for actor in self.actors if not actor.greenlet.dead]
        nobody = all(actor in self._asleep for actor in living)
        for actor, sleep in list(self._asleep.items()):
            if nobody or (self._written if sleep.till_written else self._made) > sleep.since:
                # Up to its next step it touches nothing that others see.
                self.go(actor)
        return [actor for actor in living if not actor.greenlet.dead and actor not in self._asleep]

    def sleeps(self, actor: Actor) -> bool:
        """Whether a process waits for somebody else's step."""
        return actor in self._asleep

    def sleeps_till_written(self, actor: Actor) -> bool:
        """Whether a process waits for somebody else's write."""
        return actor in self._asleep and self._asleep[actor].till_written

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
