"""A model of the processes of a stepped scenario, learned from its runs, so that most orders of steps need no run.

No time passes in such a run and each process has its own random generator. So the next step of a process is a function
of the answers that it received. An answer is a function of the call and of the rows that it touches. A
:class:`Model` records both. A :class:`Moment` moves from state to state with these records alone, some hundred times
faster than the processes themselves.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from hbasemk.format.schema import TABLES
from hbasemk.store.abc import ALL_VERSIONS, Cell, Get, Scan, scan_all
from hbasemk.testing.replayed_step import StepReplay, answer_of
from hbasemk.testing.simulation import Actor
from hbasemk.testing.stepped import SteppedSimulator
from hbasemk.testing.trace import Step

RowOf = tuple[str, bytes]
"""A table and a row key."""

Remains = Callable[[SteppedSimulator, int], Hashable]
"""What remains of a process that has ended; see :class:`~hbasemk.testing.exploration.Exploration`."""


class Does(Enum):
    """The behavior of a process after some answers."""

    STEPS = auto()
    SLEEPS = auto()
    SLEEPS_TILL_WRITTEN = auto()
    ENDS = auto()


class Next(NamedTuple):
    """The next action of a process, the table and row (None: any) that its step touches, and whether it may change the row.

    ``step`` is the whole call, so that the model detects a process that makes another call after the same answers.
    """

    does: Does
    table: str = ""
    row: bytes | None = None
    writes: bool = False
    step: Step | None = None


class Outcome(NamedTuple):
    """The result of a step: the number of the answers that its process has received, and of the row that it wrote."""

    answers: int
    row: int


class State(NamedTuple):
    """The state that determines all continuations: the answers that each process received, and the store's content.

    A wake-up counts as an answer, so the answers also determine whether a process sleeps. What remains of a process that has
    ended replaces its answers.
    """

    answers: tuple[int, ...]
    content: int


class Undo(NamedTuple):
    """The part of a moment before a step: the answers, the row that the step wrote, and its number."""

    answers: list[int]
    row: RowOf | None = None
    number: int = 0


class Model:
    """The recorded behaviour of the processes of one scenario.

    Answers and rows are known by numbers of 128 random bits. The numbers of rows can be combined into one for a store
    (Zobrist, "A new hashing method with application for game playing", 1970).
    """

    def __init__(self) -> None:
        self.nexts: dict[int, Next] = {}
        """The next actions, by the answers of a process."""
        self.outcomes: dict[tuple[int, int], Outcome] = {}
        """The results of steps, by the answers of a process and the touched rows."""
        self.ended: dict[int, int] = {}
        """What remains of processes that ended when they were woken, by their answers before."""
        self.ended_with: dict[int, int] = {}
        """What remains of processes that ended with an answer, by all their answers."""
        self.replay: StepReplay | None = None
        """Makes steps whose answer may be known, so that no process needs to make them."""
        self._contents: dict[int, tuple[Cell, ...]] = {}
        self._numbers: dict[object, int] = {}
        self._random = random.Random(0)

    def number(self, thing: object) -> int:
        """Return the number of a hashable value; equal values have equal numbers."""
        number = self._numbers.get(thing)
        if number is None:
            number = self._numbers[thing] = self._random.getrandbits(128)
        return number

    def row(self, table: str, key: bytes, cells: tuple[Cell, ...]) -> int:
        """Return the number of a row with these cells; 0 for a row without cells."""
        if not cells:
            return 0
        number = self.number((table, key, cells))
        self._contents[number] = cells
        return number

    def received(self, answers: int, content: Hashable) -> int:
        """Return the number of these answers and one more, or of what remains of a process that ended with it."""
        number = self.number((answers, content))
        return self.ended_with.get(number, number)

    def woken(self, answers: int) -> int:
        """Return the number of the answers of a process that slept after these answers and was woken."""
        return self.ended.get(answers) or self.number((answers, "woken"))

    def learn_next(self, answers: int, what: Next) -> None:
        """Record a process's action; raises RuntimeError if it did something else after the same answers."""
        _same(self.nexts.setdefault(answers, what), what)

    def deduce(self, answers: int, touched: int, rows: Mapping[RowOf, int]) -> Outcome | None:
        """Make the store's part of a process's next step; return None if nothing is known of the process after it.

        ``rows`` holds the numbers of all rows.
        """
        what = self.nexts[answers]
        if self.replay is None or what.step is None:
            return None
        cells = {
            key: self._contents[number]
            for (table, key), number in rows.items()
            if number and table == what.table and what.row in (None, key)
        }
        content, after = self.replay.make(what.step, what.row, cells)
        received = self.received(answers, content)
        if received not in self.nexts:
            return None
        number = 0
        if what.writes:
            assert what.row is not None
            number = self.row(what.table, what.row, after)
        outcome = Outcome(received, number)
        self.learn_outcome(answers, touched, outcome)
        return outcome

    def learn_outcome(self, answers: int, touched: int, outcome: Outcome) -> None:
        """Record the result of a step; raises RuntimeError if the same step had another result."""
        _same(self.outcomes.setdefault((answers, touched), outcome), outcome)


class Moment:
    """The state of a run without its processes: its initial state and its steps since."""

    def __init__(self, model: Model, rows: dict[RowOf, int], answers: list[int]) -> None:
        self.model = model
        self.answers = list(answers)
        self._rows: dict[RowOf, int] = {}
        self._tables: defaultdict[str, int] = defaultdict(int)
        for row, number in rows.items():
            self.write(row, number)

    @property
    def state(self) -> State:
        """The state that determines all continuations."""
        content = 0
        for number in self._tables.values():
            content ^= number
        return State(tuple(self.answers), content)

    @property
    def rows(self) -> dict[RowOf, int]:
        """The rows with cells."""
        return {row: number for row, number in self._rows.items() if number}

    def ready(self) -> list[int]:
        """Return the processes that can make a step."""
        nexts = self.model.nexts
        return [process for process, answers in enumerate(self.answers) if nexts[answers].does is Does.STEPS]

    def touched(self, what: Next) -> int:
        """Return the number of the rows that a step touches."""
        return self._tables[what.table] if what.row is None else self._rows.get((what.table, what.row), 0)

    def write(self, row: RowOf, number: int) -> None:
        """Record the new contents of a row."""
        self._tables[row[0]] ^= self._rows.get(row, 0) ^ number
        self._rows[row] = number

    def make(self, process: int) -> Undo | None:
        """Let a process make its step; return None if the result is unknown."""
        model = self.model
        what = model.nexts[self.answers[process]]
        before, touched = self.answers[process], self.touched(what)
        outcome = model.outcomes.get((before, touched)) or model.deduce(before, touched, self._rows)
        if outcome is None:
            return None
        answers = list(self.answers)
        answers[process] = outcome.answers
        if not self._wake(answers, process, what.writes):
            return None
        undo = Undo(self.answers)
        if what.writes:
            assert what.row is not None
            row = (what.table, what.row)
            undo = Undo(self.answers, row, self._rows.get(row, 0))
            self.write(row, outcome.row)
        self.answers = answers
        return undo

    def _wake(self, answers: list[int], made: int, wrote: bool) -> bool:
        """Wake the processes that wait for such a step, or all if none is awake; False if some next action is unknown."""
        model = self.model
        all_do = []
        for one in answers:
            what = model.nexts.get(one)
            if what is None:
                return False
            all_do.append(what.does)
        nobody = Does.STEPS not in all_do
        for process, does in enumerate(all_do):
            waits = does is Does.SLEEPS or (does is Does.SLEEPS_TILL_WRITTEN and (wrote or nobody))
            if waits and (process != made or nobody):
                answers[process] = model.woken(answers[process])
                if answers[process] not in model.nexts:
                    return False
        return True

    def take_back(self, undo: Undo) -> None:
        """Return to the state before a step."""
        self.answers = undo.answers
        if undo.row is not None:
            self.write(undo.row, undo.number)


class LearningRun:
    """A run that the processes themselves make, and a model learns from. ``ready``: the processes that can make a step.

    ``remains``: see :class:`~hbasemk.testing.exploration.Exploration`.
    Raises ValueError for a step of many rows (:meth:`~hbasemk.store.abc.Store.write_if`).
    """

    def __init__(self, simulator: SteppedSimulator, moment: Moment, remains: Remains | None = None) -> None:
        self.simulator = simulator
        self.moment = moment
        self._remains = remains
        self._wakings = [0] * len(simulator.actors)
        simulator.prepare()
        self.ready = self._make_ready(range(len(simulator.actors)))

    def make(self, process: int) -> None:
        """Let a process make its step."""
        simulator, moment, model = self.simulator, self.moment, self.moment.model
        before = moment.answers[process]
        what = model.nexts[before]
        touched = moment.touched(what)
        simulator.go(simulator.actors[process])
        _, _, step, answer = simulator.steps[-1]
        content = answer_of(answer)
        remaining = self._remaining(process)
        if remaining is not None:
            model.ended_with[model.number((before, content))] = remaining
        moment.answers[process] = model.received(before, content)
        number = 0
        if what.writes:
            assert what.row is not None
            (row,) = simulator.store.read(step.table, (Get(what.row, versions=ALL_VERSIONS),))
            number = model.row(step.table, row.key, tuple(row.cells))
            moment.write((step.table, what.row), number)
        model.learn_outcome(before, touched, Outcome(moment.answers[process], number))
        self.ready = self._make_ready((process,))

    def check_end(self) -> None:
        """Raise RuntimeError if the run's end cannot be compared with others."""
        if any(not actor.greenlet.dead for actor in self.simulator.actors):
            raise RuntimeError("a process sleeps twice without a step in between, and no other process can wake it")
        if rows_of(self.simulator, self.moment.model) != self.moment.rows:
            raise RuntimeError("a process wrote outside its steps: the store contains cells that no step wrote")

    def _make_ready(self, ran: Iterable[int]) -> list[int]:
        """Learn what the processes that ran do next, wake processes, learn of these; return those that can make a step."""
        simulator, moment = self.simulator, self.moment
        self._learn(ran)
        ready = [simulator.actors.index(actor) for actor in simulator.enabled()]
        woken = [
            process
            for process, actor in enumerate(simulator.actors)
            if simulator.wakings.get(actor, 0) > self._wakings[process]
        ]
        for process in woken:
            self._wakings[process] += 1
            before = moment.answers[process]
            remaining = self._remaining(process)
            if remaining is not None:
                moment.model.ended[before] = remaining
            moment.answers[process] = moment.model.woken(before)
        self._learn(woken)
        return ready

    def _remaining(self, process: int) -> int | None:
        """Return the number of what remains of a process that has ended; None for another one, or if all answers remain."""
        if self._remains is None or not self.simulator.actors[process].greenlet.dead:
            return None
        return self.moment.model.number(("ended", process, self._remains(self.simulator, process)))

    def _learn(self, processes: Iterable[int]) -> None:
        for process in processes:
            self.moment.model.learn_next(self.moment.answers[process], self._next(self.simulator.actors[process]))

    def _next(self, actor: Actor) -> Next:
        if actor.greenlet.dead:
            return Next(Does.ENDS)
        if self.simulator.sleeps(actor):
            return Next(Does.SLEEPS_TILL_WRITTEN if self.simulator.sleeps_till_written(actor) else Does.SLEEPS)
        return _touches(self.simulator.pending[actor])


def _same(known: Next | Outcome, found: Next | Outcome) -> None:
    if known != found:
        raise RuntimeError(
            f"a process depends on more than its answers: {found} instead of {known} as before; look for randomness, time, "
            "or memory that the runs share"
        )


def _touches(step: Step) -> Next:
    what = step.what
    if step.method == "write_if":
        raise ValueError("a step must touch one row or only read; give the simulator a store without transactions")
    row = None if isinstance(what, Scan) else what if isinstance(what, bytes) else what.row
    return Next(Does.STEPS, step.table, row, step.writes, step)


def rows_of(simulator: SteppedSimulator, model: Model) -> dict[RowOf, int]:
    """Return the numbers of all rows of a simulator's store."""
    return {
        (table.name, row.key): model.row(table.name, row.key, tuple(row.cells))
        for table in TABLES
        for row in scan_all(simulator.store, table.name, Scan(None, None, 1000, versions=ALL_VERSIONS))
    }
