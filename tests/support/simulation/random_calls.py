"""Two processes that make random calls of all kinds on few rows: the same rows, columns and orders meet again and again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from hbasemk.format import schema
from hbasemk.store.abc import (
    ALL_VERSIONS,
    LAST_ROW,
    CellVersion,
    Decision,
    Delete,
    DeleteBelow,
    Get,
    NewCell,
    Put,
    Scan,
    Store,
    scan_all,
)
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.simulated_store import SimulatedStore
from hbasemk.testing.simulation import START_MS, Actor
from tests.support.simulation.equivalent_orders import Order, RecordedSimulator
from tests.support.simulation.footprints import Footprint

ROWS: Final = [schema.revision_key(number) for number in (1, 2)]
COLUMNS: Final = [(schema.DATA, b"\x01one"), (schema.DATA, b"\x01two")]
TABLES: Final = [schema.JOURNAL, schema.NODES]
"""The first one keeps the order of its writes."""


def contents(store: MemoryStore) -> Any:
    """Return all cells, and the order of writes as far as the store keeps it."""
    return [
        (
            table.name,
            [
                (row.key, row.cells)
                for row in scan_all(store, table.name, Scan(None, None, 1000, versions=ALL_VERSIONS))
            ],
            store._tables[table.name].written,
            store._tables[table.name].forgotten,
        )
        for table in schema.TABLES
    ]


class Calls:
    """The calls that one process makes, drawn from a seed, and their answers."""

    def __init__(self, store: Store, runtime: Any, seed: str, ordered: bool) -> None:
        self.store, self.runtime = store, runtime
        self.seen: list[Any] = []
        self._draw = random.Random(seed)
        kinds = [self.reads, self.scans, self.puts, self.compares, self.deletes, self.deletes_below, self.deletes_rows]
        kinds += [self.counts, self.sleeps]
        if ordered:
            kinds += [self.transacts, self.transacts, self.reads_arrivals, self.reads_arrivals, self.forgets]
        self._program = [self._draw.choice(kinds) for _ in range(self._draw.randrange(2, 8))]

    def make(self) -> None:
        """Make all calls."""
        for call in self._program:
            self.seen.append(call())

    def _table(self) -> str:
        return self._draw.choice(TABLES)

    def _row(self) -> bytes:
        return self._draw.choice(ROWS)

    def _column(self) -> tuple[bytes, bytes]:
        return self._draw.choice(COLUMNS)

    def _get(self) -> Get:
        columns = self._draw.choice((None, [self._column()], COLUMNS))
        return Get(self._row(), columns=columns, versions=self._draw.choice((1, 3)))

    def _put(self) -> Put:
        cell = NewCell(*self._column(), self._draw.randbytes(2))
        return Put(self._row(), [cell], self._draw.choice((None, 1, 2, 3)))

    def reads(self) -> Any:
        return self.store.read(self._table(), [self._get()])

    def scans(self) -> Any:
        start, stop = self._draw.choice((None, *ROWS)), self._draw.choice((None, *ROWS))
        columns = self._draw.choice((None, [self._column()]))
        scan = Scan(start, stop, self._draw.choice((1, 2, 9)), reverse=self._draw.random() < 0.5, columns=columns)
        return self.store.scan(self._table(), scan)

    def puts(self) -> Any:
        return self.store.write(self._table(), [self._put()])

    def compares(self) -> Any:
        expected = self._draw.choice((None, None, b"x"))
        return self.store.check_and_write(self._table(), self._column(), expected, self._put())

    def deletes(self) -> Any:
        cell = CellVersion(*self._column(), self._draw.choice((1, 2, 3, START_MS)))
        return self.store.delete(self._table(), [Delete(self._row(), [cell])])

    def deletes_below(self) -> Any:
        if self._draw.random() < 0.5:
            delete = DeleteBelow(self._row(), [CellVersion(*self._column(), 3)])
        else:
            delete = DeleteBelow(self._row(), families=[(schema.DATA, 3)])
        return self.store.delete_below(self._table(), [delete])

    def deletes_rows(self) -> Any:
        return self.store.delete_rows(self._table(), [self._row()])

    def counts(self) -> Any:
        """Compare the number of changes with that of a moment ago; this is no step."""
        return self.store.change_counter()

    def sleeps(self) -> Any:
        return self.runtime.sleep(1)

    def transacts(self) -> Any:
        draw = self._draw
        also = draw.choice(([], [(self._table(), self._get())], [(self._table(), Get(LAST_ROW, versions=1))]))
        since = draw.choice((None, (schema.JOURNAL, draw.randrange(4))))
        unchanged = draw.choice((None, None, (schema.JOURNAL, draw.randrange(4))))
        with_puts = draw.choice(([], [self._put()]))
        decision = Decision(self._table(), self._column(), None, self._put(), unchanged, with_puts)
        seen: list[Any] = []

        def judge(rows: Any) -> bool:
            seen.append(rows)
            return draw_of_rows(rows)

        answer = self.store.write_if(
            self._table(), [self._put()], iter([self._get()]), judge, decision, also, unchanged_since=since
        )
        return seen, answer

    def reads_arrivals(self) -> Any:
        return self.store.arrivals(schema.JOURNAL, self._draw.randrange(4), 9, self._draw.choice(([], COLUMNS[:1])))

    def forgets(self) -> Any:
        return self.store.forget_arrivals(schema.JOURNAL, self._draw.randrange(4))


def draw_of_rows(rows: Any) -> bool:
    """Accept most of what a transaction reads."""
    return sum(len(row.cells) for row in rows) % 4 != 3


class Meeting:
    """One run of both processes of a seed, in one order."""

    def __init__(self, seed: int, order: Order) -> None:
        ordered = seed % 2 == 0
        store = MemoryStore(lambda: START_MS, transactions=ordered)
        store.create_tables(schema.TABLES)
        draw = random.Random(seed)
        for table in TABLES:
            for row in ROWS:
                for column in COLUMNS:
                    if draw.random() < 0.4:
                        store.write(table, [Put(row, [NewCell(*column, b"x")], draw.randrange(1, 4))])
        self.simulator = RecordedSimulator(store, START_MS)
        self.calls: list[Calls] = []
        for number in range(2):
            actor = self.simulator.add(f"p{number}", self._make)
            self.calls.append(Calls(SimulatedStore(actor), actor.runtime, f"{seed} {number}", ordered))
        self.simulator.prepare()
        self.steps = self.simulator.run_with_switches(order)
        for actor in self.simulator.actors:
            if actor.error is not None:
                raise actor.error

    def _make(self, actor: Actor) -> None:
        self.calls[self.simulator.actors.index(actor)].make()

    @property
    def footprints(self) -> list[list[Footprint]]:
        """What the steps of both processes touched."""
        return [self.simulator.footprints[actor] for actor in self.simulator.actors]

    @property
    def result(self) -> Any:
        """All answers, and all that is left."""
        return [calls.seen for calls in self.calls], contents(self.simulator.cells)


def orders(seed: int) -> Iterator[Order]:
    """Yield the orders with at most two switches, for the numbers of steps of one of the runs."""
    steps = Meeting(seed, (0, 99, 99)).steps
    for first in (0, 1):
        for own in range(steps[first] + 1):
            for others in range(steps[1 - first] + 2):
                yield first, own, others
