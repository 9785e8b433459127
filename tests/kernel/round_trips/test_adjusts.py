"""The number of round trips of adjusts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from hbasemk import Transaction
from hbasemk.store.memory import MemoryStore
from tests.support.repositories import problems
from tests.support.round_trips import READ, Counted, ParallelMemory, fresh

ADJUSTS: dict[str, Callable[[Transaction, str], object]] = {
    "adjust": lambda tx, _: tx.adjust("/a", "n", 1),
    "first adjust": lambda tx, _: tx.adjust("/a", "first", 1),
    "adjust beside a set": lambda tx, _: (tx.adjust("/a", "n", 1), tx.set("/a", "p", 2), tx.set("/a/1", "p", 2)),
    "adjust that expects a version": lambda tx, version: tx.adjust("/a", "n", 1, if_version=version),
}


@pytest.mark.parametrize("kind", ADJUSTS)
@pytest.mark.parametrize("store", [MemoryStore, ParallelMemory, partial(MemoryStore, transactions=True)])
def test_an_adjust_takes_the_calls_of_a_set(store: Callable[[], MemoryStore], kind: str) -> None:
    counted = Counted(store())
    repository = counted.repository
    assert repository.head["/a/1"]["n"] == 1
    counted.store.take()
    with repository.transaction(base=repository.head) as tx:
        tx.set("/a", "p", 1)
    calls = counted.store.take()
    version = repository.head["/a"].version
    with repository.transaction(base=repository.head) as tx:
        ADJUSTS[kind](tx, version)
    assert counted.store.take() == calls
    assert problems(repository) == []
    repository.close()


def test_a_number_with_many_slots_is_read_in_one_call(counted: Counted) -> None:
    base = counted.repository.head
    for _ in range(20):
        with counted.repository.transaction(base=base) as tx:
            tx.adjust("/a", "n", 1)
    other = fresh(counted)
    assert other.head["/a"]["n"] == 20
    assert counted.store.take() == {READ: 1}
    assert other.head["/a"]["n"] == 20
    assert counted.store.take() == {}
    other.close()


def test_a_merge_with_adjusts_takes_as_many_calls_as_one_with_sets(counted: Counted) -> None:
    calls: list[int] = []
    for change in (lambda tx: tx.set("/a", "p", 1), lambda tx: tx.adjust("/a", "n", 1)):
        branch = counted.repository.branch()
        branch.run(change)
        counted.store.take()
        branch.merge()
        calls.append(sum(counted.store.take().values()))
    assert calls[1] == calls[0]
