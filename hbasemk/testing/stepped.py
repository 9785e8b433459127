"""A simulator without failures and without time, in which a caller chooses each step.

So runs of a scenario differ only in the order of steps, and :mod:`hbasemk.testing.exploration` can enumerate all orders.
A sleeping process continues after a step of another process. If it has only read since it last slept, it continues
after a write: so two processes that wait for a third do not wake each other forever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from hbasemk.errors import HbasemkError
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.greenlets import getcurrent
from hbasemk.testing.simulation import Actor, Died, SimulatedLock, Simulator
from hbasemk.testing.trace import Step

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class _Sleep(NamedTuple):
    """The number of steps (``till_written``: writes) when a process fell asleep; the next one wakes it."""

    since: int
    till_written: bool


class SteppedSimulator(Simulator):
    """A simulator on ``store``, which all processes share: usually a clone of a prepared one.

    With ``backwards`` the rows of a batch are written from the last to the first.
    """

    scan_rows = 1000

    def __init__(self, store: MemoryStore | None = None, *, backwards: bool = False) -> None:
        super().__init__(0, choices=())
        if store is not None:
            self.store = store
        self.over = False
        self.pending: dict[Actor, Step] = {}
        """The next step of each process that is awake."""
        self.wakings: dict[Actor, int] = {}
        """How many times each has slept and was woken."""
        self._backwards = backwards
        self._asleep: dict[Actor, _Sleep] = {}
        self._made = 0
        self._written = 0
        self._writers: set[Actor] = set()

    # --- calls of the processes ------------------------------------------------------------------------------

    def switch(self, seconds: float = 0.0, lock: SimulatedLock | None = None) -> None:
        """Sleep until another process makes a step, or a write if this one has only read since it last slept."""
        if getcurrent() is self.main:
            self.ms += seconds * 1000
            return
        if self.over:
            raise Died
        if lock is not None:
            raise AssertionError("a stepped process must have one thread")
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
        """Announce the next step, wait for the turn, execute the step."""
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
            # A rejection by the store is an ordinary answer.
            self._note(actor, what, repr(error))
            raise
        self._note(actor, what, result)
        return result

    def shuffled(self, things: Sequence[T]) -> Sequence[T]:
        """Return the rows of a batch in this simulator's fixed order."""
        return things[::-1] if self._backwards else things

    def run_parallel(self, _: Actor, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """Run the calls in sequence: here a process is one sequence of steps."""
        return first(), second()

    # --- scheduling -----------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Run every process up to its first step."""
        for actor in self.actors:
            self.go(actor)

    def enabled(self) -> list[Actor]:
        """Wake the processes that may continue, or all if every process sleeps; return those that can make a step."""
        living = [actor for actor in self.actors if not actor.greenlet.dead]
        nobody = all(actor in self._asleep for actor in living)
        for actor, sleep in list(self._asleep.items()):
            if nobody or (self._written if sleep.till_written else self._made) > sleep.since:
                # Up to its next step the process touches nothing that others can read.
                self.go(actor)
        return [actor for actor in living if not actor.greenlet.dead and actor not in self._asleep]

    def sleeps(self, actor: Actor) -> bool:
        """Return whether a process waits for a step of another process."""
        return actor in self._asleep

    def sleeps_till_written(self, actor: Actor) -> bool:
        """Return whether a process waits for a write of another process."""
        return actor in self._asleep and self._asleep[actor].till_written

    def go(self, actor: Actor) -> None:
        """Let one process make its step and run up to the next."""
        self._current = actor
        self.pending.pop(actor, None)
        actor.greenlet.switch()

    def run_with_switches(
        self, order: tuple[int, int, int], at_switch: Callable[[Actor], object] = lambda _: None
    ) -> tuple[int, int]:
        """Run two prepared processes with at most two switches between them; return how many steps each made.

        Process ``order[0]`` makes ``order[1]`` steps, the other one ``order[2]``; then the first one ends, and the other one.
        ``at_switch`` is called before another process continues, with the one that stops or has ended.
        """
        first, second = self.actors[order[0]], self.actors[1 - order[0]]
        made = [0, 0]
        last = None
        for actor, limit, at in ((first, order[1], 0), (second, order[2], 1), (first, None, 0), (second, None, 1)):
            if last is not None:
                at_switch(last)
            last = actor
            while (limit is None or made[at] < limit) and not actor.greenlet.dead:
                self.go(actor)
                made[at] += 1
        return made[0], made[1]

    def end(self) -> None:
        """Stop all running processes."""
        self.over = True
        for actor in self.actors:
            if actor.greenlet and not actor.greenlet.dead:
                actor.greenlet.throw(Died)
        self.over = False
