"""The parts that all tests of the conformance suite share: handles, tables, row keys, threads.

Creating a table takes half a second on a real HBase. So all tests of a class share a few tables, and each test uses
its own row keys.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Queue
from typing import Any, Final, NamedTuple, TypeVar

import pytest

from hbasemk.store.abc import ALL_VERSIONS, Arrivals, Cell, Column, Decision, Get, NewCell, Put, Row, Store, Table

T = TypeVar("T")

OpenStore = Callable[[], Store]
"""A function that opens one more handle on the data under test; the suite closes the handle."""

C: Final = b"c"
D: Final = b"d"
FLAG: Final[Column] = (D, b"flag")
TIMEOUT: Final = 120.0
"""The time in seconds after which the suite considers a thread hung."""
GRACE: Final = 5.0
"""The time in seconds for which the other threads may continue after one of them has failed."""


class Tables(NamedTuple):
    """The tables of one test class."""

    many: Table
    """Families ``c`` and ``d``; keeps all versions."""
    one: Table
    """Family ``d``; keeps the newest version."""
    ends: Table
    """Family ``d``; keeps all versions; only for the test that scans the whole table."""


def put(row: bytes, columns: dict[bytes, bytes], timestamp: int | None = None, family: bytes = D) -> Put:
    """Return a put of columns of one family, all with one timestamp."""
    return Put(row, [NewCell(family, qualifier, value, timestamp) for qualifier, value in columns.items()])


def plain(rows: Sequence[Row]) -> list[tuple[bytes, list[Cell]]]:
    """Return rows in a form that compares equal for any type of cell sequence."""
    return [(row.key, list(row.cells)) for row in rows]


def read(store: Store, table: Table, get: Get) -> list[Cell]:
    """Return the cells of one get."""
    rows = store.read(table.name, [get])
    assert [row.key for row in rows] == [get.row]
    return list(rows[0].cells)


def values(store: Store, table: Table, row: bytes) -> dict[bytes, bytes]:
    """Return the newest value of each column of a row, by qualifier."""
    return {cell.qualifier: cell.value for cell in read(store, table, Get(row))}


def accept(_: Sequence[Row]) -> bool:
    """Accept any rows, as the judge of a transaction."""
    return True


def news(store: Store, tables: Tables, after: int = 0, limit: int = 1000) -> Arrivals:
    """Return what was written to the table ``one`` after an arrival number, with the column ``flag``."""
    return store.arrivals(tables.one.name, after, limit, (FLAG,))


def last_number(store: Store, tables: Tables) -> int:
    """Return the number of the last write to the table ``one``."""
    number, complete = 0, False
    while not complete:
        last, _, complete = news(store, tables, number)
        assert complete or last > number, (
            f"the answer for arrivals after {number} must be complete or have a higher last number, got {last}"
        )
        number = last
    return number


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run calls in threads that start simultaneously; return their results in order, or raise the first error.

    After an error, the other threads have a few seconds to end: they may wait for the thread that has failed.
    """
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    ends: Queue[BaseException | None] = Queue()

    def run(number: int) -> None:
        try:
            barrier.wait(TIMEOUT)
            results[number] = calls[number]()
        except BaseException as error:
            ends.put(error)
        else:
            ends.put(None)

    for number in range(len(calls)):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    first: BaseException | None = None
    for _ in calls:
        try:
            error = ends.get(timeout=GRACE if first else TIMEOUT)
        except Empty:
            assert first, f"a thread did not end within {TIMEOUT} s"
            break
        first = first or error
    if first:
        raise first
    return results


class Base:
    """The suite's fixtures; a store's test class provides ``open_store``."""

    HANDLES = 3
    """The number of handles in tests with several handles."""

    @pytest.fixture(autouse=True)
    def _supported(self, request: pytest.FixtureRequest, store: Store) -> None:
        """Skip tests of transactions and arrivals, by their names, for a store that supports none."""
        if re.search("transaction|arrival", request.node.name) and not store.supports_transactions:
            pytest.skip("this store does not support transactions")

    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls) -> Iterator[OpenStore]:
        """Yield a function that opens one more handle on the same data."""
        raise NotImplementedError("a subclass of StoreConformance must provide the fixture open_store")

    @pytest.fixture(scope="class")
    @classmethod
    def handles(cls, open_store: OpenStore) -> Iterator[list[Store]]:
        """Open several handles on the same data."""
        opened = [open_store() for _ in range(cls.HANDLES)]
        yield opened
        for handle in opened:
            handle.close()

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, handles: list[Store]) -> Store:
        """Return the handle that most tests use."""
        return handles[0]

    @pytest.fixture(scope="class")
    @classmethod
    def prefix(cls) -> str:
        """Return the prefix of this run's table names."""
        return f"conformance_{os.urandom(4).hex()}_"

    @pytest.fixture(scope="class")
    @classmethod
    def tables(cls, store: Store, prefix: str) -> Iterator[Tables]:
        """Create the tables that the tests of the class share, and drop them at the end."""
        created = Tables(
            many=Table(prefix + "many", (C, D), ALL_VERSIONS),
            one=Table(prefix + "one", (D,), 1, arrivals=True),
            ends=Table(prefix + "ends", (D,), ALL_VERSIONS),
        )
        store.create_tables(created)
        yield created
        store.drop_tables(created)

    @pytest.fixture(scope="class")
    @classmethod
    def numbers(cls) -> Iterator[int]:
        """Return a counter for the tests of the class."""
        return itertools.count()

    def decision(self, tables: Tables, row: bytes, expected: bytes | None = b"no") -> Decision:
        """Return a decision that sets the flag of a row to "yes" if it is ``expected``."""
        return Decision(tables.one.name, FLAG, expected, put(row, {b"flag": b"yes"}))

    @pytest.fixture
    def new_table(self, store: Store, prefix: str, numbers: Iterator[int]) -> Iterator[Table]:
        """Yield the definition of a table that does not exist yet; drop the table afterwards."""
        table = Table(f"{prefix}new_table{next(numbers)}", (C, D), ALL_VERSIONS)
        yield table
        store.drop_tables([table])

    @pytest.fixture
    def row(self, numbers: Iterator[int]) -> bytes:
        """Return this test's own row key; no other test's keys begin with it."""
        return b"row%06d/" % next(numbers)
