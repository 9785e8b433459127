"""Tests of the isolation of transactions: nobody sees a part of one, and none decides by an old state."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from hbasemk.store.abc import Get, Row, Store
from hbasemk.testing.store.base import Base, Tables, accept, put, together, values


class Isolation(Base):
    """Tests of concurrent transactions."""

    INCREMENTS = 15
    """The number of increments of each thread."""

    @pytest.mark.parametrize("read", ["gets", "also"])
    def test_concurrent_transactions_lose_no_update(
        self, handles: list[Store], store: Store, tables: Tables, row: bytes, read: str
    ) -> None:
        many = tables.many.name
        store.write(many, [put(row, {b"n": b"0"}, 1)])
        gets, also = ([Get(row)], []) if read == "gets" else ([], [(many, Get(row))])

        def add(number: int) -> None:
            handle = handles[number % len(handles)]
            done = turn = 0
            while done < self.INCREMENTS:
                found = values(handle, tables.many, row)[b"n"]
                turn += 1

                def is_found(rows: list[Row], found: bytes = found) -> bool:
                    return [cell.value for cell in rows[0].cells] == [found]

                added = put(row, {b"n": b"%d" % (int(found) + 1)}, int(found) + 2)
                decision = self.decision(tables, row + b"%d/%d" % (number, turn), None)
                done += bool(handle.write_if(many, [added], gets, is_found, decision, also))

        together([partial(add, number) for number in range(4)])
        assert values(store, tables.many, row) == {b"n": b"%d" % (4 * self.INCREMENTS)}

    def test_a_transaction_is_visible_as_a_whole(
        self, handles: list[Store], store: Store, tables: Tables, row: bytes
    ) -> None:
        keys = [row + b"%d" % number for number in range(60)]
        over = threading.Event()

        def write() -> None:
            try:
                for key in keys:
                    puts = [put(key + name, {b"q": b"1"}, 1) for name in (b"a", b"b")]
                    decision = self.decision(tables, key, None)._replace(with_puts=[put(key + b"with", {b"q": b"1"})])
                    assert store.write_if(tables.many.name, puts, [], accept, decision)
            finally:
                over.set()

        def watch(handle: Store) -> None:
            for key in keys:
                while not values(handle, tables.one, key):
                    if over.is_set():
                        assert values(handle, tables.one, key), f"no decision for {key!r}"
                found = handle.read(tables.many.name, [Get(key + b"a"), Get(key + b"b")])
                assert all(one.cells for one in found), f"the puts of {key!r} are not visible, but its decision is"
                assert values(handle, tables.one, key + b"with")

        calls = [partial(watch, handle) for handle in handles[1:]]
        together([partial(write), *calls])
