"""Fixtures of the tests of the collection."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite.store import SqliteStore
from tests.support.marking_store import store_in_memory
from tests.support.runtime import World


@pytest.fixture
def ordered() -> bool:
    """Whether the store orders all writes, as SQLite does; tests with ``BOTH_ORDERS`` choose it."""
    return True


@pytest.fixture
def store(world: World, ordered: bool) -> MemoryStore:
    """An empty store; without an order of writes, deletes leave markers, as in HBase."""
    return store_in_memory(world.clock, ordered=ordered)


@pytest.fixture(params=["memory", "sqlite"])
def ordered_store(world: World, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store that orders all writes."""
    return new_store(request.param, world, tmp_path)


@pytest.fixture(params=["memory", "sqlite", "unordered"])
def trimmed_store(world: World, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store, with or without an order of writes."""
    return new_store(request.param, world, tmp_path)


def new_store(kind: str, world: World, folder: Path) -> Store:
    """Return an empty store; without an order of writes, deletes leave markers, as in HBase."""
    if kind == "sqlite":
        return SqliteStore(str(folder / "content.db"), clock=world.clock)
    return store_in_memory(world.clock, ordered=kind == "memory")
