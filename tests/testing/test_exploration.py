"""The exploration comes to every end that trying all orders comes to, and to each once."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from hbasemk.errors import StoreUnusableError
from hbasemk.format import schema
from hbasemk.store.abc import ALL_VERSIONS, CellVersion, Decision, Delete, Get, NewCell, Put, Scan, scan_all
from hbasemk.store.memory import MemoryStore
from hbasemk.testing import exploration
from hbasemk.testing.exploration import Exploration
from hbasemk.testing.model import Remains
from hbasemk.testing.simulated_store import SimulatedStore
from hbasemk.testing.simulation import Actor
from hbasemk.testing.stepped import SteppedSimulator
from tests.support.proof import PROOF

VALUE = (schema.DATA, b"\x01value")
ROWS = [schema.revision_key(number) for number in (1, 2, 3)]
TABLES = [schema.JOURNAL, schema.NODES]


class Scene:
    """Processes that each make a few steps drawn from a seed, and what they saw.

    r, s: read a row, scan; w, c: write, compare-and-set; d, x: delete a version, a row; z: sleep; e: raise; others end early.
    """

    def __init__(self, seed: int, processes: int, steps: int, letters: str) -> None:
        self.simulator = SteppedSimulator()
        self.simulator.store.create_tables(schema.TABLES)
        self.seen: dict[str, list[Any]] = {}
        draw = random.Random(seed)
        for number in range(processes):
            length = draw.randrange(steps + 1) if "e" in letters else steps
            program = [
                (draw.choice(letters), draw.choice(TABLES), draw.choice(ROWS), draw.randrange(1, 9))
                for _ in range(length)
            ]
            self.simulator.add(f"p{number}", self.work(program))

    def work(self, program: list[tuple[str, str, bytes, int]]) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            store = SimulatedStore(actor)
            seen = self.seen[actor.name] = []
            for (what, table, row, number), (then, *_) in zip(program, [*program[1:], " "], strict=True):
                put = Put(row, [NewCell(*VALUE, f"{actor.name}{number}".encode(), number)])
                if what == "r":
                    found = store.read(table, [Get(row, columns=[VALUE], versions=2)])[0].cells
                    seen.append([cell.value for cell in found])
                elif what == "s":
                    rows = store.scan(table, Scan(ROWS[0], row, 10, columns=[VALUE]))
                    seen.append([(one.key, one.cells[0].value) for one in rows])
                elif what == "w":
                    store.write(table, [put])
                elif what == "c":
                    seen.append(store.check_and_write(table, VALUE, None, put))
                elif what == "d":
                    store.delete(table, [Delete(row, [CellVersion(*VALUE, number)])])
                elif what == "x":
                    store.delete_rows(table, [row])
                elif what == "z":
                    actor.runtime.sleep(1)
                    # Nobody sleeps twice without a look in between.
                    if then == "z":
                        seen.append(store.read(table, [Get(row, columns=[VALUE])])[0].cells)
                elif what == "e":
                    raise ValueError("on purpose")

        return work

    def remains(self, number: int) -> str:
        """The last answer of a process, and how it ended."""
        actor = self.simulator.actors[number]
        return repr((self.seen[actor.name][-1:], actor.error))

    def result(self, whole: bool = True) -> str:
        """All that was read or only what remains of it, how the processes ended, and all that is left."""
        assert all(actor.greenlet.dead for actor in self.simulator.actors)
        left = [
            (table, row.key, row.cells)
            for table in TABLES
            for row in scan_all(self.simulator.store, table, Scan(None, None, 100, versions=ALL_VERSIONS))
        ]
        remains = [self.remains(number) for number in range(len(self.simulator.actors))]
        return repr((sorted(self.seen.items()) if whole else (), remains, left))


def one_by_one(start: Callable[[], SteppedSimulator], preemptions: int) -> Iterator[SteppedSimulator]:
    """Every run in which at most so many times a process is left that could have gone on, with nothing left out."""
    choices: list[int] = []
    while True:
        simulator = start()
        bounds: list[tuple[int, int]] = []
        left = preemptions
        current: Actor | None = None
        simulator.prepare()
        while ready := simulator.enabled():
            going_on = current in ready
            ready.sort(key=lambda actor: actor is not current)
            bound = len(ready) if left or not going_on else 1
            given = choices[len(bounds)] if len(bounds) < len(choices) else 0
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
        choices = [given for given, _ in bounds[:-1]] + [bounds[-1][0] + 1]


def results(
    explore: Callable[[Callable[[], SteppedSimulator], Remains], Iterable[SteppedSimulator]],
    make: Callable[[], Scene],
    whole: bool = True,
) -> list[str]:
    scenes: list[Scene] = []

    def start() -> SteppedSimulator:
        scenes[:] = [make()]
        return scenes[0].simulator

    return [scenes[0].result(whole) for _ in explore(start, lambda _, number: scenes[0].remains(number))]


@pytest.mark.parametrize(
    ("processes", "steps", "letters", "bounds", "seeds"),
    [
        (2, 4, "rrwwcs", (0, 1, 2, None), 40),
        (2, 4, "rwcsdxz", (0, 1, 2, None), 80),
        (3, 2, "rrwwcs", (0, 1, None), 40),
        (3, 3, "rwcsdxze", (0, 1, 2), 40),
        pytest.param(3, 3, "rwcsdxze", (0, 1, 2), 200, marks=PROOF),
        (3, 3, "wwrz", (0, 1), 40),
        pytest.param(3, 3, "wwrz", (0, 1), 160, marks=PROOF),
    ],
)
def test_every_possible_result_is_found_exactly_once(
    processes: int, steps: int, letters: str, bounds: tuple[int | None, ...], seeds: int
) -> None:
    for seed, bound in itertools.product(range(seeds), bounds):

        def make(seed: int = seed) -> Scene:
            return Scene(seed, processes, steps, letters)

        every = results(lambda start, _: one_by_one(start, 99 if bound is None else bound), make)  # noqa: B023 - called at once
        once = results(lambda start, _: Exploration(start, bound), make)  # noqa: B023 - called at once
        assert sorted(once) == sorted(set(every)), f"seed {seed}, up to {bound} preemptions"


@pytest.mark.parametrize(
    ("processes", "steps", "letters", "bounds", "seeds"),
    [(2, 4, "rrrwwcs", (0, 1, None), 20), (2, 4, "rrcz", (0, 1, None), 20), (3, 3, "rrrwwc", (0, 1), 12)],
)
def test_every_state_of_what_remains_is_found_exactly_once(
    processes: int, steps: int, letters: str, bounds: tuple[int | None, ...], seeds: int
) -> None:
    fewer = 0
    for seed, bound in itertools.product(range(seeds), bounds):

        def make(seed: int = seed) -> Scene:
            return Scene(seed, processes, steps, letters)

        whole = results(lambda start, _: Exploration(start, bound), make)  # noqa: B023 - called at once
        every = results(lambda start, _: Exploration(start, bound), make, whole=False)  # noqa: B023 - called at once
        once = results(lambda start, remains: Exploration(start, bound, remains), make, whole=False)  # noqa: B023 - called at once
        assert sorted(once) == sorted(set(every)), f"seed {seed}, up to {bound} preemptions"
        fewer += len(once) < len(whole)
    assert fewer > seeds / 4


def test_steps_on_known_rows_take_fewer_runs_and_reach_the_same_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def explored() -> tuple[list[list[str]], int]:
        found: list[list[str]] = []
        runs = 0
        for seed in range(8):
            scene = partial(Scene, seed, 2, 4, "rrwwcdx")
            explorations: list[Exploration] = []

            def explore(start: Callable[[], SteppedSimulator], _: Remains, kept: Any = explorations) -> Exploration:
                kept.append(Exploration(start))
                return kept[0]

            found.append(sorted(results(explore, scene)))
            runs += explorations[0].runs
        return found, runs

    found, runs = explored()
    monkeypatch.setattr(exploration, "StepReplay", lambda _: None)
    same, more_runs = explored()
    assert found == same
    assert runs < more_runs


def test_known_ends_are_left_out() -> None:
    asked: list[object] = []

    def is_known(end: object) -> bool:
        asked.append(end)
        return len(asked) % 2 == 0

    def make() -> Scene:
        return Scene(0, 2, 4, "rrwwcs")

    every = results(lambda start, _: Exploration(start), make)
    some = results(lambda start, _: Exploration(start, is_known=is_known), make)
    assert set(some) < set(every)
    assert len(some) == len(set(some))


def writers(
    processes: int, steps: int, row: Callable[[int], bytes], value: Callable[[], bytes] = lambda: b"x"
) -> SteppedSimulator:
    """Processes that write."""
    simulator = SteppedSimulator()
    simulator.store.create_tables(schema.TABLES)

    def work(actor: Actor) -> None:
        store = SimulatedStore(actor)
        for _ in range(steps):
            store.write(schema.JOURNAL, [Put(row(int(actor.name)), [NewCell(*VALUE, value())])])

    for number in range(processes):
        simulator.add(str(number), work)
    return simulator


def test_independent_processes_have_one_result_and_need_one_run() -> None:
    explored = Exploration(lambda: writers(3, 4, lambda number: ROWS[number]))
    assert len(list(explored)) == 1
    # Each process can be at any of its steps while the others are at any of theirs.
    assert explored.states == 5**3
    assert explored.runs == 1


@pytest.mark.parametrize("rows", [ROWS[:1], ROWS])
def test_a_process_that_depends_on_more_than_its_answers_is_an_error(rows: list[bytes]) -> None:
    count, place = itertools.count(), itertools.cycle([*rows, rows[0]])
    with pytest.raises(RuntimeError, match="depends on more than its answers"):
        list(Exploration(lambda: writers(2, 2, lambda _: next(place), lambda: b"%d" % next(count))))


def only(work: Callable[[Actor], None], processes: int = 2) -> SteppedSimulator:
    """Processes that do the same."""
    simulator = SteppedSimulator(MemoryStore(transactions=True))
    simulator.store.create_tables(schema.TABLES)
    for number in range(processes):
        simulator.add(f"p{number}", work)
    return simulator


def test_a_compare_and_set_that_expects_something_else_in_another_run_is_an_error() -> None:
    expected = itertools.cycle([None, None, b"x"])

    def work(actor: Actor) -> None:
        put = Put(ROWS[0], [NewCell(*VALUE, actor.name.encode())])
        SimulatedStore(actor).check_and_write(schema.JOURNAL, VALUE, next(expected), put)
        SimulatedStore(actor).read(schema.JOURNAL, [Get(ROWS[0])])

    with pytest.raises(RuntimeError, match="depends on more than its answers"):
        list(Exploration(lambda: only(work)))


def test_a_write_past_the_steps_is_an_error() -> None:
    def work(actor: Actor) -> None:
        SimulatedStore(actor).read(schema.JOURNAL, [Get(ROWS[0])])
        actor.simulator.store.write(schema.JOURNAL, [Put(ROWS[0], [NewCell(*VALUE, b"x")])])

    with pytest.raises(RuntimeError, match="outside its steps"):
        list(Exploration(lambda: only(work)))


def test_two_processes_that_sleep_twice_are_an_error() -> None:
    def work(actor: Actor) -> None:
        actor.runtime.sleep(1)
        actor.runtime.sleep(1)

    with pytest.raises(RuntimeError, match="sleeps twice"):
        list(Exploration(lambda: only(work)))


def test_a_rejection_by_the_store_is_an_answer() -> None:
    def work(actor: Actor) -> None:
        store = SimulatedStore(actor)
        with contextlib.suppress(StoreUnusableError):
            store.read(schema.JOURNAL, [Get(ROWS[0], families=[b"no"])])
        store.write(schema.JOURNAL, [Put(ROWS[0], [NewCell(*VALUE, actor.name.encode(), 1)])])

    assert len(list(Exploration(lambda: only(work)))) == 2


def test_a_negative_number_of_preemptions_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Exploration(lambda: only(lambda _: None), -1)


def test_a_step_that_writes_several_rows_is_an_error() -> None:
    def work(actor: Actor) -> None:
        put = Put(ROWS[0], [NewCell(*VALUE, b"x")])
        decision = Decision(schema.JOURNAL, VALUE, b"", put)
        SimulatedStore(actor).write_if(schema.JOURNAL, [put], [], lambda _: True, decision)

    with pytest.raises(ValueError, match="store without transactions"):
        list(Exploration(lambda: only(work)))


def test_an_exploration_can_be_iterated_once() -> None:
    explored = Exploration(lambda: writers(2, 2, lambda _: ROWS[0], lambda: b"x"))
    assert list(explored)
    with pytest.raises(RuntimeError, match="once"):
        list(explored)
