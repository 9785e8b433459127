"""The parts that all tests of the conformance suite share: handles, tables, row keys, threads.

Creating a table takes half a second on a real HBase. So all tests of a class share a few tables, and each test uses
its own row keys.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import pytest

from hbasemk.store.abc import ALL_VERSIONS, Cell, Get, NewCell, Put, Row, Store, Table

T = TypeVar("T")

OpenStore = Callable[[], Store]
"""A function that opens one more handle on the data under test; the suite closes the handle."""

C: Final = b"c"
D: Final = b"d"
TIMEOUT: Final = 120.0
"""The time in seconds after which the suite considers a thread hung."""


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


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run calls in threads that start simultaneously; return their results in order, or raise the first error."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(TIMEOUT)
            results[number] = calls[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), f"a thread did not end within {TIMEOUT} s"
    if errors:
        raise errors[0]
    return results


class Base:
    """The suite's fixtures; a store's test class provides ``open_store``."""

    HANDLES = 3
    """The number of handles in tests with several handles."""

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

    @pytest.fixture
    def row(self, numbers: Iterator[int]) -> bytes:
        """Return this test's own row key; no other test's keys begin with it."""
        return b"row%06d/" % next(numbers)
