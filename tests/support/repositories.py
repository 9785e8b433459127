"""Repositories for tests, and the integrity check that runs at the end of every test that wrote.

Fixtures hand out repositories through :class:`Instances` or :class:`Checked`, or instances in a :class:`World`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import pytest

from hbasemk import FormatError, Repository, StoreUnusableError, Transaction, connect
from hbasemk.check import DAMAGE, IntegrityCheck
from hbasemk.format import schema
from hbasemk.opening import open_store
from hbasemk.repository import instance_of
from hbasemk.store.abc import Scan, Store
from hbasemk.store.memory import MemoryStore

Where = TypeVar("Where", str, MemoryStore)


def problems(repository: Repository) -> list[str]:
    """Return the problems of the integrity check as text."""
    return [str(problem) for problem in IntegrityCheck(instance_of(repository)).run()]


def damage(where: str | MemoryStore) -> list[str]:
    """Return the problems that a new instance finds at a URL or in a store, after it has recovered dead writers.

    Recovery takes until their leases expire; what is left after two minutes is damage as well. Returns nothing if there is
    no repository.
    """
    try:
        if isinstance(where, str):
            opened = connect(where, create=False, poll_interval=0)
        else:
            opened = Repository(where, create=False, poll_interval=0)
    except FormatError:
        raise
    except StoreUnusableError:
        if not _is_unused(where):
            raise
        return []
    deadline = time.monotonic() + 120
    with opened as repository:
        while True:
            found = list(IntegrityCheck(instance_of(repository)).run())
            if all(problem.severity == DAMAGE for problem in found) or time.monotonic() > deadline:
                return [str(problem) for problem in found]
            time.sleep(0.1)
            instance_of(repository).recovery.recover()
            instance_of(repository).recovery.advance()


def _is_unused(where: str | MemoryStore) -> bool:
    """Return whether no repository was created: no file and no table exists, or all tables are empty."""
    store = open_store(where)[0] if isinstance(where, str) else copy.copy(where)
    with closing(store):
        rows = [_rows(store, table.name) for table in schema.TABLES]
        return set(rows) == {0} or (set(rows) == {None} and not store.files())


def _rows(store: Store, table: str) -> int | None:
    """Return 0 for an empty table, 1 for another one, None if there is none."""
    try:
        return len(store.scan(table, Scan(None, None, 1)))
    except FormatError:
        raise
    except StoreUnusableError:
        return None


def judge(test: pytest.Item, found: list[str]) -> None:
    """Fail a test that left damage, or that is marked with `damages` and left none."""
    marker = test.get_closest_marker("damages")
    if marker is None:
        assert not found, "\n".join(found)
    else:
        (reason,) = marker.args
        assert found, f"marked as leaving damage ({reason}), but nothing is found"


class Checked:
    """Registers a URL or a store in memory, and returns it; ``finish`` checks the repository there."""

    def __init__(self) -> None:
        self._given: list[str | MemoryStore] = []

    def __call__(self, where: Where) -> Where:
        """Register a repository; a test may close its store."""
        self._given.append(where if isinstance(where, str) else copy.copy(where))
        return where

    def finish(self, test: pytest.Item) -> None:
        """Check all registered repositories."""
        judge(test, [problem for where in self._given for problem in damage(where)])


def tree(repository: Repository) -> dict[str, dict[str, Any]]:
    """Return the whole tree at head after a poll: properties by path."""
    return {node.path: dict(node) for node in repository.refresh().walk()}


class Instances:
    """Opens instances on stores and remembers them."""

    def __init__(self, new_store: Callable[[], Store]) -> None:
        self.new_store = new_store
        self._opened: list[Repository] = []

    def __call__(self, store: Store | None = None, **options: Any) -> Repository:
        """Open one more instance, by default without background polling."""
        options.setdefault("poll_interval", 0)
        repository = Repository(store or self.new_store(), **options)
        self._opened.append(repository)
        return repository

    def pair(self, build: Callable[[Transaction], object], message: str = "") -> tuple[Repository, Repository]:
        """Commit ``build`` and open a second instance; both see the commit."""
        one = self()
        one.run(build, message)
        return one, self()

    def finish(self) -> None:
        """Check the integrity through a fresh instance, then close all."""
        for repository in self._opened:
            repository.close()
        if self._opened:
            with Repository(self.new_store(), poll_interval=0) as fresh:
                found = problems(fresh)
            assert found == [], found


@contextmanager
def instances(new_store: Callable[[], Store]) -> Iterator[Instances]:
    """Yield instances; check their repository when the test ends without an error."""
    made = Instances(new_store)
    yield made
    made.finish()
