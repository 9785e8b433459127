"""A value that exceeds a limit of the store only together with its name and its path: the error names node and property."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk import Branch, LimitError, Repository, Transaction
from hbasemk.format import schema
from hbasemk.store.abc import Limits, Scan
from hbasemk.store.memory import MemoryStore
from tests.support.repositories import problems

NAME = "n" * 400
PATH = "/" + "é" * 150
SIZE = 1 + len(NAME) + 2 + 301


class SmallStore(MemoryStore):
    """A store that limits the bytes of a cell and its key together, as HBase does."""

    limits = Limits(row_key=1000, cell=4900, together=5000)


@pytest.fixture(params=[False, True], ids=["unordered", "ordered"])
def repo(request: pytest.FixtureRequest) -> Iterator[Repository]:
    with Repository(SmallStore(transactions=request.param), poll_interval=0) as repository:
        repository.run(lambda tx: tx.add(PATH))
        yield repository
        assert problems(repository) == []


WAYS: dict[str, Callable[[Transaction, bytes], Any]] = {
    "set": lambda tx, value: tx.set(PATH, NAME, value),
    "update": lambda tx, value: tx.update(PATH, {"a": 1, NAME: value}),
    "add": lambda tx, value: tx.add(PATH[:-1], {NAME: value + b"12"}),
}


@pytest.mark.parametrize("on_branch", [False, True], ids=["trunk", "branch"])
@pytest.mark.parametrize("way", WAYS)
def test_the_error_names_the_node_and_the_property(repo: Repository, way: str, on_branch: bool) -> None:
    """It named a row and a column, and a journal row had been written."""
    tree: Repository | Branch = repo.branch() if on_branch else repo
    journal = len(repo.store.scan(schema.JOURNAL, Scan(None, None, 100)))
    largest = bytes(5000 - SIZE - 1)
    with pytest.raises(LimitError) as raised:
        tree.run(lambda tx: WAYS[way](tx, largest + b"1"))
    path = PATH[:-1] if way == "add" else PATH
    assert str(raised.value) == (
        f"property '{NAME[:60]}'… (400 characters) of {path} has 5001 bytes together with its name and its path; at most 5000 "
        "are possible; nothing was committed. Store large content in a blob, or use a shorter name or path."
    )
    assert (raised.value.path, raised.value.name) == (path, NAME)
    assert len(repo.store.scan(schema.JOURNAL, Scan(None, None, 100))) == journal
    tree.run(lambda tx: WAYS[way](tx, largest))
