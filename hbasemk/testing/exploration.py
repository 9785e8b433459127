"""Explore all orders of the steps of a few processes, or all orders with few preemptions, instead of random ones.

A search through the states of a scenario: it makes one of all runs that end in the same state. It leaves a state if all
continuations were tried before, with at least as many preemptions to spare. Of a process that has ended, a state contains only
what the caller says remains of it. A model (:mod:`hbasemk.testing.model`) makes most steps. The processes themselves run only
for unknown steps, and once for each final state. The bound on preemptions is that of Musuvathi and Qadeer, "Iterative context
bounding" (PLDI 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from hbasemk.testing.model import LearningRun, Model, Moment, Remains, RowOf, State, Undo, rows_of
from hbasemk.testing.replayed_step import StepReplay
from hbasemk.testing.stepped import SteppedSimulator


class _Point:
    """A choice in a run: the processes that can make the next step (the one of the last step first), the chosen one, and the
    number of remaining preemptions.
    """

    __slots__ = ("going_on", "left", "ready", "undo", "which")

    def __init__(self, ready: list[int], going_on: bool, left: float) -> None:
        self.ready = ready
        self.going_on = going_on
        self.left = left
        self.which = -1
        self.undo: Undo | None = None

    @property
    def chosen(self) -> int:
        """The process that continues."""
        return self.ready[self.which]

    @property
    def left_after(self) -> float:
        """The number of preemptions that remain after this choice."""
        return self.left - (self.going_on and self.which > 0)

    def choose(self) -> bool:
        """Choose the next process; return False if all were chosen."""
        self.which += 1
        return self.which < (len(self.ready) if self.left or not self.going_on else 1)


class _Explored:
    """For each reached state: the process of the last step, if it could continue (else None), and the remaining preemptions."""

    def __init__(self) -> None:
        self._known: dict[State, dict[int | None, float]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def covers(self, state: State, going_on: int | None, left: float) -> bool:
        """Return whether all continuations were tried before.

        For the same process, or for None, as many preemptions are enough. Another process needs one more, because the switch
        from it costs one.
        """
        known = self._known.get(state)
        return known is not None and any(
            spare >= left + (who is not None and who != going_on) for who, spare in known.items()
        )

    def add(self, state: State, going_on: int | None, left: float) -> None:
        """Record that all continuations are about to be tried."""
        self._known.setdefault(state, {})[going_on] = left


class Exploration:
    """Iterate over it, once, for the simulators of the runs that have ended, each before it is stopped.

    ``start`` makes a simulator with its processes added, the same each time. ``preemptions`` bounds how many times in a run
    another process continues although the last one could (one that was woken because all slept counts as such); None: there
    is no bound. ``runs`` counts what the processes ran, ``steps`` what was tried.

    ``remains`` is called with a simulator and the number of a process that has just ended. It returns a hashable value that
    determines everything that the caller later reads or calls in this process. Runs that differ only in what the process
    had read before then count as one. None: all answers of a process remain.

    ``is_known`` says of the state of an end, which :attr:`end` holds while its simulator is yielded, that the caller does not
    need it: it is not yielded.

    Raises ValueError for a bound below 0. Iterating raises RuntimeError if the processes are seen to depend on anything but
    the answers of the store, or to write past it, or for the second time, and ValueError for a step that writes several rows.
    """

    def __init__(
        self,
        start: Callable[[], SteppedSimulator],
        preemptions: int | None = None,
        remains: Remains | None = None,
        is_known: Callable[[State], bool] = lambda _: False,
    ) -> None:
        if preemptions is not None and preemptions < 0:
            raise ValueError(f"preemptions must be at least 0, got {preemptions}")
        self.runs = 0
        self.steps = 0
        self._start = start
        self.end: State | None = None
        self._remains = remains
        self._is_known = is_known
        self._preemptions = inf if preemptions is None else preemptions
        self._model = Model()
        self._rows: dict[RowOf, int] = {}
        self._explored = _Explored()
        self._ends: set[State] = set()

    @property
    def states(self) -> int:
        """The number of states reached, ends included."""
        return len(self._explored) + self.ends

    @property
    def ends(self) -> int:
        """The number of ends reached, known ones included."""
        return len(self._ends)

    def __iter__(self) -> Iterator[SteppedSimulator]:
        if self.runs:
            raise RuntimeError(
                "an Exploration can be iterated once, because it leaves out known ends; make another one"
            )
        simulator = self._start()
        self._rows = rows_of(simulator, self._model)
        self._model.replay = StepReplay(int(simulator.ms))
        first = self._began(simulator)
        moment = Moment(self._model, self._rows, first.moment.answers)
        yield from self._finish(first, ())
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
                yield from self._run(stack, None)
                point.undo = moment.make(point.chosen)
                if point.undo is None:
                    raise RuntimeError("the explorer made a step whose result it does not know")
            if moment.ready():
                self._enter(stack, moment, point.chosen, point.left_after)
            elif self._is_new(moment.state):
                yield from self._run(stack, moment.state)

    def _is_new(self, end: State) -> bool:
        """Return whether an end must be yielded; record one that the caller does not need."""
        if end not in self._ends and self._is_known(end):
            self._ends.add(end)
        return end not in self._ends

    def _enter(self, stack: list[_Point], moment: Moment, before: int | None, left: float) -> None:
        """Continue from here unless that was tried or nothing remains to be tried."""
        ready = moment.ready()
        going_on = before if before in ready else None
        state = moment.state
        if not ready or self._explored.covers(state, going_on, left):
            return
        self._explored.add(state, going_on, left)
        ready.sort(key=lambda process: process != going_on)
        stack.append(_Point(ready, going_on is not None, left))

    def _began(self, simulator: SteppedSimulator) -> LearningRun:
        """Run the processes up to their first steps."""
        self.runs += 1
        began = [self._model.number((process, "began")) for process in range(len(simulator.actors))]
        return LearningRun(simulator, Moment(self._model, self._rows, began), self._remains)

    def _run(self, stack: Sequence[_Point], expected: State | None) -> Iterator[SteppedSimulator]:
        """Make the chosen steps and continue to the end, which may be known."""
        return self._finish(self._began(self._start()), [point.chosen for point in stack], expected)

    def _finish(
        self, run: LearningRun, chosen: Sequence[int], expected: State | None = None
    ) -> Iterator[SteppedSimulator]:
        """Make these steps, continue without preemptions, yield the simulator if the end is new, and stop it."""
        try:
            current = -1
            for current in chosen:
                run.make(current)
            while run.ready:
                current = current if current in run.ready else run.ready[0]
                run.make(current)
            run.check_end()
            state = run.moment.state
            if expected not in (None, state):
                raise RuntimeError("the processes reached another state by the same steps")
            if self._is_new(state):
                self._ends.add(state)
                self.end = state
                yield run.simulator
        finally:
            run.simulator.end()
