"""The exploration comes to every end that trying all orders comes to, and to each once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from hbasemk.kernel import schema
from hbasemk.store.abc import Decision, Get, NewCell, Put, Scan, scan_all
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.exploration import Exploration
from hbasemk.testing.simulation import Actor, SimulatedStore
from hbasemk.testing.stepped import SteppedSimulator

VALUE = (schema.DATA, b"\x01value")
ROWS = [schema.revision_key(number) for number in (1, 2, 3)]


class Scene:
    """Processes that each make a few steps drawn from a seed, and what they saw."""

    def __init__(self, seed: int, processes: int, steps: int, sleeps: bool) -> None:
        self.simulator = SteppedSimulator()
        self.simulator.store.create_tables(schema.TABLES)
        self.seen: dict[str, list[Any]] = {}
        draw = random.Random(seed)
        for number in range(processes):
            program = [(draw.choice("rrwwcs"), draw.choice(ROWS), draw.randrange(9)) for _ in range(steps)]
            if sleeps:
                program.insert(draw.randrange(steps), ("z", ROWS[0], 0))
            self.simulator.add(f"p{number}", self.work(program))

    def work(self, program: list[tuple[str, bytes, int]]) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            store = SimulatedStore(actor)
            seen = self.seen[actor.name] = []
            for what, row, number in program:
                put = Put(row, [NewCell(*VALUE, f"{actor.name}{number}".encode())])
                if what == "r":
                    found = store.read(schema.JOURNAL, [Get(row, columns=[VALUE])])[0].cells
                    seen.append([cell.value for cell in found])
                elif what == "s":
                    rows = store.scan(schema.JOURNAL, Scan(ROWS[0], row, 10, columns=[VALUE]))
                    seen.append([(one.key, one.cells[0].value) for one in rows])
                elif what == "w":
                    store.write(schema.JOURNAL, [put])
                elif what == "c":
                    seen.append(store.check_and_write(schema.JOURNAL, VALUE, None, put))
                else:
                    actor.runtime.sleep(1)

        return work

    def result(self) -> str:
        """All that was read and all that is left."""
        for actor in self.simulator.actors:
            assert actor.error is None
        left = scan_all(self.simulator.store, schema.JOURNAL, Scan(None, None, 100, columns=[VALUE]))
        return repr((sorted(self.seen.items()), [(row.key, row.cells[0].value) for row in left]))


def one_by_one(start: Callable[[], SteppedSimulator], preemptions: int) -> Iterator[SteppedSimulator]:
    """Every run in which at most so many times a process is left that could have gone on, with nothing left out."""
    told: list[int] = []
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


def results(
    explore: Callable[[Callable[[], SteppedSimulator]], Iterable[SteppedSimulator]], make: Callable[[], Scene]
) -> list[str]:
    scenes: list[Scene] = []

    def start() -> SteppedSimulator:
        scenes[:] = [make()]
        return scenes[0].simulator

    return [scenes[0].result() for _ in explore(start)]


@pytest.mark.parametrize("preemptions", [0, 1, 2, None])
@pytest.mark.parametrize(("processes", "steps", "sleeps"), [(2, 3, False), (2, 4, False), (2, 3, True), (3, 2, False)])
def test_what_can_come_out_comes_out(processes: int, steps: int, sleeps: bool, preemptions: int | None) -> None:
    for seed in range(40):

        def make(seed: int = seed) -> Scene:
            return Scene(seed, processes, steps, sleeps)

        bound = 99 if preemptions is None else preemptions
        every = results(lambda start: one_by_one(start, bound), make)  # noqa: B023 - called at once
        once = results(lambda start: Exploration(start, preemptions), make)
        assert sorted(once) == sorted(set(every)), f"seed {seed}"


def test_three_that_sleep() -> None:
    for seed in range(10):
        every = results(lambda start: one_by_one(start, 2), lambda seed=seed: Scene(seed, 3, 2, True))
        once = results(lambda start: Exploration(start, 2), lambda seed=seed: Scene(seed, 3, 2, True))
        assert sorted(once) == sorted(set(every)), f"seed {seed}"


def writers(processes: int, steps: int, row: Callable[[int], bytes], value: Callable[[], bytes]) -> SteppedSimulator:
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


def test_what_does_not_meet_ends_in_one_way_and_one_run_shows_it() -> None:
    explored = Exploration(lambda: writers(3, 4, lambda number: ROWS[number], lambda: b"x"))
    assert len(list(explored)) == 1
    # Each process can be at any of its steps while the others are at any of theirs.
    assert explored.states == 5**3
    assert explored.runs == 1


@pytest.mark.parametrize("rows", [ROWS[:1], ROWS])
def test_processes_that_do_not_depend_on_their_answers_alone_are_an_error(rows: list[bytes]) -> None:
    count, place = itertools.count(), itertools.cycle([*rows, rows[0]])
    with pytest.raises(RuntimeError, match="does not depend on its answers alone"):
        list(Exploration(lambda: writers(2, 2, lambda _: next(place), lambda: b"%d" % next(count))))


def test_a_store_with_transactions_is_an_error() -> None:
    def start() -> SteppedSimulator:
        simulator = SteppedSimulator(MemoryStore(transactions=True))
        simulator.store.create_tables(schema.TABLES)

        def work(actor: Actor) -> None:
            put = Put(ROWS[0], [NewCell(*VALUE, b"x")])
            SimulatedStore(actor).write_if(
                schema.JOURNAL, [put], [], lambda _: True, Decision(schema.JOURNAL, VALUE, b"", put)
            )

        simulator.add("one", work)
        return simulator

    with pytest.raises(ValueError, match="store without transactions"):
        list(Exploration(start))
