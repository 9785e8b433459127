"""What all parts of the conformance suite share: handles, tables, row keys, threads.

A table costs half a second on a real HBase, so all tests of a class share a few, and each test keeps to row keys of
its own.
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
"""Opens one more handle on the data under test; the suite closes it."""

C: Final = b"c"
D: Final = b"d"
TIMEOUT: Final = 120.0
"""Seconds after which threads of a test are taken to hang."""


class Tables(NamedTuple):
    """The tables of one test class."""

    many: Table
    """Families ``c`` and ``d``, every version kept."""
    one: Table
    """Family ``d``, the newest version kept."""
    ends: Table
    """Family ``d``, every version kept; for the one test that scans from end to end."""


def put(row: bytes, columns: dict[bytes, bytes], timestamp: int | None = None, family: bytes = D) -> Put:
    """A put of some columns of one family, all at one timestamp."""
    return Put(row, [NewCell(family, qualifier, value, timestamp) for qualifier, value in columns.items()])


def plain(rows: Sequence[Row]) -> list[tuple[bytes, list[Cell]]]:
    """Rows in a form that compares equal whatever sequence the cells are in."""
    return [(row.key, list(row.cells)) for row in rows]


def read(store: Store, table: Table, get: Get) -> list[Cell]:
    """The cells of one get."""
    rows = store.read(table.name, [get])
    assert [row.key for row in rows] == [get.row]
    return list(rows[0].cells)


def values(store: Store, table: Table, row: bytes) -> dict[bytes, bytes]:
    """The newest value of each column of a row, by qualifier."""
    return {cell.qualifier: cell.value for cell in read(store, table, Get(row))}


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run calls in threads that start at the same moment; their results in order, or the first error."""
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
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results


class Base:
    """The fixtures. ``open_store`` is the one that a store's own class gives."""

    HANDLES = 3
    """How many handles the tests with several of them use."""

    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls) -> Iterator[OpenStore]:
        """Yields a function that opens one more handle on the same data."""
        raise NotImplementedError("a subclass of StoreConformance gives the fixture open_store")

    @pytest.fixture(scope="class")
    @classmethod
    def handles(cls, open_store: OpenStore) -> Iterator[list[Store]]:
        """Several handles on the same data."""
        opened = [open_store() for _ in range(cls.HANDLES)]
        yield opened
        for handle in opened:
            handle.close()

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, handles: list[Store]) -> Store:
        """The handle that most tests use."""
        return handles[0]

    @pytest.fixture(scope="class")
    @classmethod
    def prefix(cls) -> str:
        """What the names of this run's tables begin with."""
        return f"conformance_{os.urandom(4).hex()}_"

    @pytest.fixture(scope="class")
    @classmethod
    def tables(cls, store: Store, prefix: str) -> Iterator[Tables]:
        """The tables that the tests of the class share; dropped at its end."""
        made = Tables(
            many=Table(prefix + "many", (C, D), ALL_VERSIONS),
            one=Table(prefix + "one", (D,), 1),
            ends=Table(prefix + "ends", (D,), ALL_VERSIONS),
        )
        store.create_tables(made)
        yield made
        store.drop_tables(made)

    @pytest.fixture(scope="class")
    @classmethod
    def numbers(cls) -> Iterator[int]:
        """Counts through the tests of the class."""
        return itertools.count()

    @pytest.fixture
    def row(self, numbers: Iterator[int]) -> bytes:
        """A row key of this test's own; no other test's keys begin with it."""
        return b"row%06d/" % next(numbers)
