"""All interleavings of a few processes, or all with few preemptions, instead of random ones.

:func:`interleavings` runs a scenario again and again, once for each way of ordering the steps that can matter: of two runs
that differ only in the order of independent steps, one is made (source sets and sleep sets: Abdulla, Aronis, Jonsson and
Sagonas, "Optimal dynamic partial order reduction", POPL 2014). Time stands still, so that the order of steps is all
that changes. A process that sleeps goes on after some other process has made a step (a write, if it has only looked since
it slept last: so two that wait for a third do not wake each other for ever); its steps before and after the sleep count as
dependent on everything. :func:`few_preemptions` leaves a process only when it ends or waits, but for a given number of
times (Musuvathi and Qadeer, "Iterative context bounding", PLDI 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from greenlet import getcurrent

from hbasemk.store.abc import Column
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.footprint import Footprint, dependent, footprint
from hbasemk.testing.simulation import Actor, Died, SimulatedLock, Simulator
from hbasemk.testing.trace import Step

T = TypeVar("T")


class SteppedSimulator(Simulator):
    """A simulator in which nothing fails and no time passes, and each step is somebody's decision.

    ``store`` is where the processes meet: usually a clone of one that has been prepared.
    """

    scan_rows = 1000

    def __init__(self, store: MemoryStore | None = None) -> None:
        super().__init__(0, choices=())
        if store is not None:
            self.store = store
        self.over = False
        self.pending: dict[Actor, Footprint] = {}
        self._asleep: dict[Actor, int] = {}
        self._made = 0
        self._written = 0
        self._writers: set[Actor] = set()
        self._woken: set[Actor] = set()

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
        self._woken.add(actor)

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """Say what comes next, wait for the turn, do it."""
        if getcurrent() is self._main:
            return do()
        if self.over:
            raise Died
        checked: Column | None = actor.checked if what.method == "check_and_write" else None
        self.pending[actor] = footprint(what, checked, actor in self._woken)
        self._main.switch()
        if self.over:
            raise Died
        self._woken.discard(actor)
        result = do()
        self._made += 1
        if what.method not in ("read", "scan"):
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


class _State:
    """One point of the run that is explored: who could go on, who has been tried, who need not be."""

    __slots__ = ("backtrack", "chosen", "done", "enabled", "sleep")

    def __init__(self, chosen: int, enabled: list[int], sleep: dict[int, Footprint]) -> None:
        self.chosen = chosen
        self.enabled = enabled
        self.backtrack = {chosen}
        self.done: dict[int, Footprint] = {}
        self.sleep = sleep


def interleavings(start: Callable[[], SteppedSimulator], limit: int | None = None) -> Iterator[SteppedSimulator]:
    """Every run of a scenario that differs from the others in the order of dependent steps, when it has ended.

    ``start`` makes a simulator with its processes added, the same each time. Raises RuntimeError after ``limit`` runs.
    """
    stack: list[_State] = []
    runs = 0
    while True:
        simulator = start()
        done, events = _run(simulator, stack)
        if done:
            runs += 1
            yield simulator
        simulator.end()
        if limit is not None and runs > limit:
            raise RuntimeError(f"there are more than {limit} interleavings")
        _note_races(stack, events)
        while stack:
            top = stack[-1]
            top.done[top.chosen] = events[len(stack) - 1][1]
            left = [one for one in top.backtrack if one not in top.done and one not in top.sleep]
            if left:
                top.chosen = min(left)
                break
            stack.pop()
        if not stack:
            return


def _run(simulator: SteppedSimulator, stack: list[_State]) -> tuple[bool, list[tuple[int, Footprint]]]:
    """Repeat the stack's choices, then go on with whoever comes first; False if all that follows was seen before."""
    simulator.prepare()
    events: list[tuple[int, Footprint]] = []
    sleep: dict[int, Footprint] = {}
    while True:
        ready = simulator.enabled()
        if not ready:
            return True, events
        numbers = [simulator.actors.index(actor) for actor in ready]
        at = len(events)
        if at == len(stack):
            free = [number for number in numbers if number not in sleep]
            if not free:
                return False, events
            stack.append(_State(free[0], numbers, sleep))
        state = stack[at]
        actor = simulator.actors[state.chosen]
        made = simulator.pending[actor]
        simulator.go(actor)
        if simulator.sleeps(actor):
            # From when on others' steps wake it is told by this one.
            made = made._replace(all=True)
        events.append((state.chosen, made))
        sleep = {
            number: step
            for number, step in (state.sleep | state.done).items()
            if number != state.chosen and not dependent(step, made)
        }


def _note_races(stack: list[_State], events: list[tuple[int, Footprint]]) -> None:
    """For each two steps whose order could have been the other way, see to it that it will be tried."""
    before: list[int] = []
    last: dict[int, int] = {}
    for at, (who, what) in enumerate(events):
        previous = last.get(who)
        known = 0 if previous is None else before[previous] | 1 << previous
        for earlier in range(at - 1, -1, -1):
            if known >> earlier & 1 or not dependent(events[earlier][1], what):
                continue
            _try_the_other_way(stack[earlier], events, before, earlier, at, known)
            known |= before[earlier] | 1 << earlier
        before.append(known)
        last[who] = at


def _try_the_other_way(
    state: _State, events: list[tuple[int, Footprint]], before: list[int], earlier: int, at: int, known: int
) -> None:
    # Those who can begin a run of what does not come after ``earlier``, up to and with the step ``at``.
    kept = [between for between in range(earlier + 1, at) if not before[between] >> earlier & 1]
    seen = 0
    first: list[int] = []
    for between in kept:
        if events[between][0] not in first and not before[between] & seen:
            first.append(events[between][0])
        seen |= 1 << between
    if events[at][0] not in first and not known & seen:
        first.append(events[at][0])
    able = [one for one in first if one in state.enabled]
    if not able:
        # Only a step in between made it possible to go on.
        state.backtrack.update(state.enabled)
    elif not state.backtrack.intersection(able):
        state.backtrack.add(able[0])


def few_preemptions(start: Callable[[], SteppedSimulator], preemptions: int) -> Iterator[SteppedSimulator]:
    """Every run in which at most ``preemptions`` times a process is left that could have gone on."""
    told: list[int] = []
    while True:
        simulator = start()
        bounds: list[tuple[int, int]] = []
        left = preemptions
        current: Actor | None = None
        simulator.prepare()
        while ready := simulator.enabled():
            going_on = current in ready
            if going_on:
                assert current is not None
                ready.remove(current)
                ready.insert(0, current)
            bound = len(ready) if left or not going_on else 1
            given = told[len(bounds)] if len(bounds) < len(told) else 0
            bounds.append((given, bound))
            left -= going_on and given > 0
            current = ready[given]
            simulator.go(current)
        yield simulator
        simulator.end()
        while bounds and bounds[-1][0] + 1 >= bounds[-1][1]:
            bounds.pop()
        if not bounds:
            return
        told = [given for given, _ in bounds[:-1]] + [bounds[-1][0] + 1]
