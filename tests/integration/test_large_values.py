"""Reads of many nodes with large values, on a real HBase: no answer of the gateway is much larger than necessary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.errors import StoreError, StoreNotAppliedError
from hbasemk.format.values import encode
from hbasemk.store.abc import ALL_VERSIONS, Get, NewCell, Put, Row, Scan, Table
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.hbase.large_values import LEAST, PATIENCE, LargeTables
from tests.support.hbase import HBase

pytestmark = pytest.mark.integration

TABLE = Table("cells", (b"c", b"d"), ALL_VERSIONS)
MOST = 100_000
LARGE = 40_000


class SmallAnswers(HBaseStore):
    """A store with a small bound, which records the bytes of values in each answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sizes: list[int] = []
        make, in_order = self._client.make, self._client.call_in_order

        def recorded(answer: Any) -> Any:
            if isinstance(answer, list):
                self.sizes.append(sum(len(cell.value) for row in answer for cell in getattr(row, "cells", ())))
            return answer

        self._client.make = lambda *request: recorded(make(*request))  # type: ignore[method-assign]
        self._client.call_in_order = lambda *requests: [  # type: ignore[method-assign]
            recorded(answer) for answer in in_order(*requests)
        ]

    @property
    def batch_bytes(self) -> int:
        return MOST

    def take(self) -> list[int]:
        """Return the sizes so far, and let the next reads of many rows get the filter, as after a timeout."""
        found, self.sizes = self.sizes, []
        self._large_tables.failed(TABLE.name, timeout(), filtered=False)
        return found


def timeout() -> StoreError:
    """Return the error of a call that has timed out."""
    try:
        raise StoreNotAppliedError("no answer") from TimeoutError()
    except StoreError as error:
        return error


@pytest.fixture(scope="module")
def store(hbase_server: HBase) -> Iterator[SmallAnswers]:
    made = SmallAnswers([Address(hbase_server.host, hbase_server.thrift2)], prefix=f"large_{os.urandom(4).hex()}_")
    made.create_tables([TABLE])
    yield made
    made.drop_tables([TABLE])
    made.close()


def values(number: int) -> dict[bytes, bytes]:
    """Return the values of a row; each third one has a large value, and some have a value that looks like a length."""
    first = os.urandom(LARGE) if number % 3 == 2 else b"x" * (number % 5)
    return {b"e": b"", b"l": (LARGE if number % 7 else LEAST).to_bytes(4, "big"), b"p": first}


@pytest.fixture(scope="module")
def rows(store: SmallAnswers) -> list[Row]:
    """The rows of the table: 20 small ones, and 60 of which many are large."""
    contents = {b"r%03d" % number: values(0 if number < 20 else number) for number in range(80)}
    for key, cells in contents.items():
        store.write(TABLE.name, [Put(key, [NewCell(b"d", name, value, 5) for name, value in cells.items()])])
    store.take()
    return [store.read(TABLE.name, [Get(key)])[0] for key in contents]


def test_many_gets_are_answered_in_small_parts(store: SmallAnswers, rows: list[Row]) -> None:
    store.take()
    gets = [Get(row.key, families=(b"d",)) for row in rows]
    gets[3:3] = [Get(b"none"), Get(rows[0].key, columns=[(b"d", b"p")])]
    found = store.read(TABLE.name, gets)
    assert found[:3] + found[5:] == rows
    assert found[3] == Row(b"none", [])
    assert max(store.take()) <= MOST


def test_the_first_gets_are_answered_without_large_values_of_the_others(store: SmallAnswers, rows: list[Row]) -> None:
    gets = [Get(row.key, families=(b"d",)) for row in rows]
    gets[3:3] = [Get(b"none"), Get(rows[0].key, columns=[])]
    gets.append(gets[4])
    found: list[Row] = []
    while len(found) < len(gets):
        store.take()
        first = store.read_first(TABLE.name, gets[len(found) :], MOST)
        assert sum(len(cell.value) for row in first for cell in row.cells) <= MOST
        # One answer has lengths in place of the large values, the other one the rows that are returned.
        assert len(store.take()) <= 2
        found += first
    assert found == [*rows[:3], Row(b"none", []), Row(rows[0].key, []), *rows[3:], Row(rows[0].key, [])]


def test_a_write_that_also_reads_gets_small_answers(store: SmallAnswers, rows: list[Row]) -> None:
    store.take()
    gets = [Get(row.key) for row in rows]
    assert store.write_and_read(TABLE.name, [Put(b"s", [NewCell(b"d", b"q", b"1", 1)])], gets) == rows
    assert max(store.take()) <= MOST


@pytest.mark.parametrize("most", [None, 1, MOST, 3 * MOST])
@pytest.mark.parametrize("limit", [3, 25, 60, 1000])
def test_a_scan_is_answered_in_small_parts(store: SmallAnswers, rows: list[Row], limit: int, most: int | None) -> None:
    scan = Scan(b"r", b"s", limit, most_bytes=most)
    store.take()
    found = store.scan(TABLE.name, scan)
    assert found == rows[: len(found)]
    size = sum(len(cell.value) for row in found for cell in row.cells)
    assert len(found) == min(limit, len(rows)) or (most is not None and size >= most)
    assert most is None or size < most + MOST + LARGE
    # Few rows may have values of any size.
    assert max(store.take()) <= max(MOST, 3 * (LARGE + 8))


def test_small_rows_are_read_by_one_call(store: SmallAnswers, rows: list[Row]) -> None:
    store.take()
    assert store.read(TABLE.name, [Get(row.key) for row in rows[:20]]) == rows[:20]
    assert store.scan(TABLE.name, Scan(b"r", b"r020", 1000)) == rows[:20]
    assert len(store.take()) == 2


def test_short_properties_are_no_lengths(store: SmallAnswers) -> None:
    texts = [b"a%02d" % number for number in range(30)]
    for number, text in enumerate(texts):
        cell = NewCell(b"d", b"p", encode(text.decode()), 5)
        store.write(TABLE.name, [Put(b"t%03d" % number, [cell])])
    store.take()
    found = store.scan(TABLE.name, Scan(b"t", b"u", 1000))
    assert store.read(TABLE.name, [Get(row.key) for row in found]) == found
    assert [row.cells[0].value[1:] for row in found] == texts
    assert len(store.take()) == 2


@pytest.mark.parametrize("kind", ["get", "scan"])
@pytest.mark.parametrize("has_failed", [True, False])
def test_many_values_below_the_limit_are_bounded_after_the_first_answer(
    store: SmallAnswers, kind: str, has_failed: bool
) -> None:
    rows = [Row(b"w%03d" % number, []) for number in range(40)]
    for row in rows:
        cells = [NewCell(b"d", b"p%02d" % number, os.urandom(LEAST), 5) for number in range(20)]
        store.write(TABLE.name, [Put(row.key, cells)])

    def read() -> None:
        if kind == "get":
            store.read(TABLE.name, [Get(row.key) for row in rows])
        else:
            store.scan(TABLE.name, Scan(b"w", b"x", 1000))

    store._large_tables = LargeTables()
    if has_failed:
        time_out(store, read)
    else:
        read()
    store.sizes = []
    read()
    assert max(store.sizes) <= MOST


def test_versions_and_times_are_those_of_the_request(store: SmallAnswers, rows: list[Row]) -> None:
    keys = [b"v%d" % number for number in range(8)]
    for at in (1, 2, 3):
        store.write(TABLE.name, [Put(key, [NewCell(b"c", b"q", key * LEAST * at, at)]) for key in keys[:4]])
        store.write(TABLE.name, [Put(key, [NewCell(b"c", b"q", key * LEAST * at, at)]) for key in keys[4:]])
    gets = [Get(key, families=(b"c",), before=3, versions=2) for key in keys]
    expected = [store.read(TABLE.name, [get])[0] for get in gets]
    assert [[cell.timestamp for cell in row.cells] for row in expected] == [[2, 1]] * 8
    assert store.read(TABLE.name, gets) == expected
    assert store.scan(TABLE.name, Scan(b"v", b"w", 1000, before=3, versions=2)) == expected


@pytest.mark.parametrize("kind", ["get", "scan", "write"])
def test_after_small_answers_and_until_a_timeout_answers_have_any_size(
    store: SmallAnswers, rows: list[Row], kind: str
) -> None:
    gets = [Get(row.key) for row in rows]

    def read() -> list[Row]:
        if kind == "get":
            return store.read(TABLE.name, gets)
        if kind == "scan":
            return store.scan(TABLE.name, Scan(b"r", b"s", 1000))
        return store.write_and_read(TABLE.name, [Put(b"s", [NewCell(b"d", b"q", b"1", 1)])], gets)

    store.take()
    for _ in range(PATIENCE):
        assert store.read(TABLE.name, gets[:10]) == rows[:10]
    store.sizes = []
    assert read() == rows
    assert len(store.sizes) == 1
    assert store.sizes[0] > MOST
    if kind == "write":
        return
    time_out(store, read)
    store.sizes = []
    assert read() == rows
    assert max(store.sizes) <= MOST


def time_out(store: SmallAnswers, read: Callable[[], object]) -> None:
    """Read while each request times out."""
    make, store._client.make = store._client.make, fail  # type: ignore[method-assign]
    try:
        with pytest.raises(StoreNotAppliedError):
            read()
    finally:
        store._client.make = make  # type: ignore[method-assign]


def fail(*_: Any) -> None:
    raise timeout()
