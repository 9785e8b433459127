"""The explorer of interleavings reaches everything that trying all of them reaches, in fewer runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.kernel import schema
from hbasemk.store.abc import Get, NewCell, Put, Scan, scan_all
from hbasemk.testing.exploration import SteppedSimulator, few_preemptions, interleavings
from hbasemk.testing.simulation import Actor, SimulatedStore

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


def results(
    explore: Callable[[Callable[[], SteppedSimulator]], Iterator[SteppedSimulator]], make: Callable[[], Scene]
) -> list[str]:
    scenes: list[Scene] = []

    def start() -> SteppedSimulator:
        scenes[:] = [make()]
        return scenes[0].simulator

    return [scenes[0].result() for _ in explore(start)]


@pytest.mark.parametrize(("processes", "steps", "sleeps"), [(2, 3, False), (2, 4, False), (2, 3, True), (3, 2, False)])
def test_what_can_come_out_comes_out(processes: int, steps: int, sleeps: bool) -> None:
    saved = 0
    for seed in range(40):
        all_of_them = results(
            lambda start: few_preemptions(start, 99), lambda seed=seed: Scene(seed, processes, steps, sleeps)
        )
        some = results(interleavings, lambda seed=seed: Scene(seed, processes, steps, sleeps))
        assert set(some) == set(all_of_them), f"seed {seed}"
        saved += len(all_of_them) - len(some)
    assert saved > 0


def test_independent_steps_take_one_run() -> None:
    def start() -> SteppedSimulator:
        simulator = SteppedSimulator()
        simulator.store.create_tables(schema.TABLES)

        def work(actor: Actor) -> None:
            store = SimulatedStore(actor)
            row = ROWS[int(actor.name)]
            for _ in range(4):
                store.write(schema.JOURNAL, [Put(row, [NewCell(*VALUE, b"x")])])

        for number in range(3):
            simulator.add(str(number), work)
        return simulator

    assert len(list(interleavings(start))) == 1


def test_too_many_interleavings_are_an_error() -> None:
    def start() -> SteppedSimulator:
        return Scene(1, 2, 6, False).simulator

    with pytest.raises(RuntimeError, match="more than 3"):
        list(interleavings(start, limit=3))
