"""All orders of the steps of a few processes, or all with few preemptions, instead of random ones.

A search through the states of a scenario: of all runs that end in the same state, one is made. A state is left where
everything that can follow was tried before, with at least as many preemptions to spare. Most steps are made by what is known
of the processes (:mod:`hbasemk.testing.model`); they themselves run for what is not known yet, and once for each state
that a run can end in. The bound on preemptions is that of Musuvathi and Qadeer, "Iterative context bounding" (PLDI 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hbasemk.testing.model import LearningRun, Model, Moment, RowOf, State, Undo, rows_of
from hbasemk.testing.stepped import SteppedSimulator


class _Point:
    """Somewhere in a run: who could go on (first who made the step before), who does, how many preemptions are left.

    ``left`` None: as many as there may be.
    """

    __slots__ = ("going_on", "left", "ready", "undo", "which")

    def __init__(self, ready: list[int], going_on: bool, left: int | None) -> None:
        self.ready = ready
        self.going_on = going_on
        self.left = left
        self.which = -1
        self.undo: Undo | None = None

    @property
    def chosen(self) -> int:
        """Who goes on."""
        return self.ready[self.which]

    @property
    def left_after(self) -> int | None:
        """How many preemptions are left then."""
        return self.left if self.left is None else self.left - (self.going_on and self.which > 0)

    def choose(self) -> bool:
        """Choose who was not chosen yet; False if there is nobody."""
        self.which += 1
        return self.which < (1 if self.left == 0 and self.going_on else len(self.ready))


class _Explored:
    """The states that were come to: who had made the last step and could go on (None: nobody), how many preemptions were left."""

    def __init__(self) -> None:
        self._known: dict[State, dict[int | None, int | None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def covers(self, state: State, going_on: int | None, left: int | None) -> bool:
        """Whether all that can follow was tried before: by the same process, by nobody, or with one preemption more."""
        known = self._known.get(state)
        if known is None:
            return False
        if left is None:
            return True
        return any(
            spare is not None and spare >= left + (who is not None and who != going_on) for who, spare in known.items()
        )

    def add(self, state: State, going_on: int | None, left: int | None) -> None:
        """All that can follow is about to be tried."""
        self._known.setdefault(state, {})[going_on] = left


class Exploration:
    """Iterate over it for the simulators of the runs that have ended, each before it is stopped.

    ``start`` makes a simulator with its processes added, the same each time. ``preemptions`` bounds how many times in a run
    a process is left that could have gone on; None: it may always be. ``runs`` counts what the processes ran, ``steps``
    what was tried.

    Iterating raises RuntimeError if the processes depend on anything but the answers of the store, ValueError for a store
    with transactions.
    """

    def __init__(self, start: Callable[[], SteppedSimulator], preemptions: int | None = None) -> None:
        self.runs = 0
        self.steps = 0
        self._start = start
        self._preemptions = preemptions
        self._model = Model()
        self._rows: dict[RowOf, int] = {}
        self._first: list[int] = []
        """What the processes were answered before the first step: some have slept."""
        self._explored = _Explored()
        self._ends: set[State] = set()

    @property
    def states(self) -> int:
        """How many states were come to."""
        return len(self._explored) + len(self._ends)

    def __iter__(self) -> Iterator[SteppedSimulator]:
        yield from self._end(self._run(()))
        moment = Moment(self._model, self._rows, self._first)
        stack: list[_Point] = []
        self._enter(stack, moment, None, self._preemptions)
        while stack:
            point = stack[-1]
            if point.undo is not None:
                moment.take_back(point.undo)
                point.undo = None
            if not point.choose():
                stack.pop()
                continue
            self.steps += 1
            point.undo = moment.make(point.chosen)
            if point.undo is None:
                yield from self._end(self._run([one.chosen for one in stack]))
                point.undo = moment.make(point.chosen)
            if moment.ready():
                self._enter(stack, moment, point.chosen, point.left_after)
            elif moment.state not in self._ends:
                run = self._run([one.chosen for one in stack])
                if run.moment.state != moment.state:
                    raise RuntimeError("the processes came to another state by the same steps")
                yield from self._end(run)

    def _enter(self, stack: list[_Point], moment: Moment, before: int | None, left: int | None) -> None:
        """Go on from here, unless that was tried."""
        ready = moment.ready()
        going_on = before if before in ready else None
        state = moment.state
        if self._explored.covers(state, going_on, left):
            return
        self._explored.add(state, going_on, left)
        ready.sort(key=lambda process: process != going_on)
        stack.append(_Point(ready, going_on is not None, left))

    def _run(self, chosen: Sequence[int]) -> LearningRun:
        """The processes make these steps, and go on to their end without preemptions."""
        simulator = self._start()
        if not self.runs:
            self._rows = rows_of(simulator, self._model)
        began = [self._model.number((process, "began")) for process in range(len(simulator.actors))]
        run = LearningRun(simulator, Moment(self._model, self._rows, began))
        if not self.runs:
            self._first = list(run.moment.answers)
        self.runs += 1
        current = -1
        for current in chosen:
            run.make(current)
        while run.ready:
            current = current if current in run.ready else run.ready[0]
            run.make(current)
        return run

    def _end(self, run: LearningRun) -> Iterator[SteppedSimulator]:
        """The run's simulator, if it came to an end that is new."""
        state = run.moment.state
        if state not in self._ends:
            self._ends.add(state)
            yield run.simulator
        run.simulator.end()
