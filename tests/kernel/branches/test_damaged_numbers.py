"""Adjusts, merges and rebases of a damaged number: the error says where it is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import FormatError, Repository
from hbasemk.format import paths, schema
from hbasemk.store.abc import Cell, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore

COLUMN = schema.property_column("n")
CALLS: dict[str, Callable[[Repository, str], Any]] = {
    "adjust": lambda repo, _: repo.adjust("/a", "n", 1),
    "merge": lambda repo, branch: repo.resume_branch(branch).merge(),
    "rebase": lambda repo, branch: repo.resume_branch(branch).rebase(),
}


def newest(store: MemoryStore) -> Cell:
    (row,) = store.read(schema.NODES, [Get(paths.key("/a"), columns=(COLUMN,))])
    return row.cells[0]


@pytest.mark.parametrize(
    ("call", "change"), [*((call, "adjust") for call in CALLS), ("merge", "set"), ("rebase", "set")]
)
def test_a_damaged_number_is_reported_with_its_place(call: str, change: str) -> None:
    store = MemoryStore()
    # A new process has none of the values in its cache.
    with Repository(copy.copy(store), poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 1.5}))
        branch = repo.branch()
        branch.run(lambda tx: tx.adjust("/a", "n", 2) if change == "adjust" else tx.set("/a", "n", 2.5))
        repo.run(lambda tx: tx.set("/a", "other", 1))
    cell = newest(store)
    store.write(schema.NODES, [Put(paths.key("/a"), [NewCell(*COLUMN, b"\x03\x02", cell.timestamp)])])
    expected = r"table 'nodes', row b'.*/a', column d:b'\\x01n'"
    with (
        Repository(copy.copy(store), poll_interval=0, create=False) as repo,
        pytest.raises(FormatError, match=expected),
    ):
        CALLS[call](repo, branch.revision)
