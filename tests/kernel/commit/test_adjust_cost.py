"""The calls and cells that adjusts take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hbasemk import Repository
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore


def calls_of(store: CountingStore, work: Callable[[], object]) -> Any:
    store.take()
    work()
    return store.take()


def test_an_adjust_takes_the_calls_of_a_set(real_store: MemoryStore) -> None:
    store = CountingStore(real_store)
    with Repository(store, poll_interval=0) as one:
        one.run(lambda tx: tx.add("/a", {"n": 0, "m": 0}))
        one.adjust("/a", "n", 1)
        one.run(lambda tx: tx.set("/a", "m", 1))
        adjust = calls_of(store, lambda: one.run(lambda tx: tx.adjust("/a", "n", 1)))
        set_ = calls_of(store, lambda: one.run(lambda tx: tx.set("/a", "m", 2)))
        assert adjust == set_
        first = calls_of(store, lambda: one.run(lambda tx: tx.adjust("/a", "new", 1)))
        assert first == set_


def test_a_read_returns_one_cell_for_each_slot_however_often_they_changed(real_store: MemoryStore) -> None:
    store = CountingStore(real_store)
    with Repository(store, poll_interval=0) as one:
        one.run(lambda tx: tx.add("/a", {"n": 0}))
        for _ in range(200):
            one.adjust("/a", "n", 1)
        with Repository(store, poll_interval=0, owns_store=False) as other:
            store.traffic()
            assert other.head["/a"]["n"] == 200
            traffic = store.traffic()
            # deleted, lastRevision, the base and one slot
            assert (traffic.calls, traffic.cells_read) == (1, 4)
