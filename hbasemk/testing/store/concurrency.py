"""Tests of concurrent calls: a reader sees all cells of a write to a row, or none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from hbasemk.store.abc import Cell, Get, NewCell, Put, Row, Scan, Store
from hbasemk.testing.store.base import Base, C, D, Tables, put, together, values

QUALIFIERS = [b"%02d" % number for number in range(20)]


def _whole(row: bytes, value: bytes, timestamp: int | None) -> Put:
    return Put(row, [NewCell(family, name, value, timestamp) for family in (C, D) for name in QUALIFIERS])


class Concurrency(Base):
    """Tests with threads and handles that read and write the same rows."""

    WRITES = 60

    @pytest.mark.parametrize("how", ["read", "read in a batch", "scan", "scan back"])
    @pytest.mark.parametrize("by", ["write", "check_and_write"])
    def test_a_reader_sees_all_cells_of_a_put_or_none(
        self, handles: list[Store], tables: Tables, row: bytes, how: str, by: str
    ) -> None:
        name = tables.many.name
        keys = [row + b"0", row + b"1"]
        readers: dict[str, Callable[[Store], list[Row]]] = {
            "read": lambda store: [store.read(name, [Get(key)])[0] for key in keys],
            "read in a batch": lambda store: store.read(name, [Get(key) for key in keys]),
            "scan": lambda store: store.scan(name, Scan(row, row + b"\xff", 10)),
            "scan back": lambda store: store.scan(name, Scan(row + b"\xff", row[:-1], 10, reverse=True)),
        }
        finished = threading.Event()
        handles[0].write(name, [_whole(key, b"0", 1) for key in keys])

        def write() -> int:
            try:
                for number in range(1, self.WRITES):
                    value = b"%d" % number
                    puts = [_whole(key, value, 1 + number) for key in keys]
                    if by == "write":
                        handles[0].write(name, puts)
                    else:
                        for one in puts:
                            assert handles[0].check_and_write(name, (D, b"07"), b"%d" % (number - 1), one)
            finally:
                finished.set()
            return 0

        def watch(handle: Store) -> int:
            seen = 0
            last = dict.fromkeys(keys, 0)
            while True:
                stop = finished.is_set()
                for found in readers[how](handle):
                    assert len(found.cells) == 2 * len(QUALIFIERS)
                    states = {(cell.timestamp, cell.value) for cell in found.cells}
                    assert len(states) == 1, f"a mixture: {states}"
                    value = int(states.pop()[1])
                    assert value >= last[found.key], "an older state came after a newer one"
                    last[found.key] = value
                    seen += 1
                if stop:
                    assert set(last.values()) == {self.WRITES - 1}
                    return seen

        counts = together([write, *(lambda handle=handle: watch(handle) for handle in handles[1:])])
        assert all(counts[1:])

    def test_threads_that_share_a_handle_get_their_own_answers(self, store: Store, tables: Tables, row: bytes) -> None:
        def work(number: int) -> None:
            for turn in range(40):
                key = row + b"%d/%d" % (number, turn)
                value = b"%d of %d" % (turn, number)
                store.write(tables.many.name, [put(key, {b"q": value}, turn)])
                assert values(store, tables.many, key) == {b"q": value}
                found = store.scan(tables.many.name, Scan(key, key + b"\x00", 5))
                assert [list(got.cells) for got in found] == [[Cell(D, b"q", turn, value)]]

        together([partial(work, number) for number in range(8)])

    def test_other_handles_see_a_write_immediately(self, handles: list[Store], tables: Tables, row: bytes) -> None:
        for turn in range(30):
            writer = handles[turn % len(handles)]
            writer.write(tables.many.name, [put(row, {b"q": b"%d" % turn}, turn)], durable=turn % 2 == 0)
            for handle in handles:
                assert values(handle, tables.many, row) == {b"q": b"%d" % turn}

    def test_writers_of_different_columns_of_a_row_lose_nothing(
        self, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        def work(number: int) -> None:
            handle = handles[number % len(handles)]
            for turn in range(30):
                handle.write(tables.many.name, [put(row, {b"%d/%02d" % (number, turn): b"x"}, 1)], durable=False)

        together([partial(work, number) for number in range(6)])
        assert sorted(values(handles[0], tables.many, row)) == sorted(
            b"%d/%02d" % (number, turn) for number in range(6) for turn in range(30)
        )
