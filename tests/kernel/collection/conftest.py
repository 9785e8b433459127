"""Fixtures of the tests of the collection."""

from __future__ import annotations

import pytest

from hbasemk.store.memory import MemoryStore
from tests.support.runtime import World


@pytest.fixture
def ordered() -> bool:
    """Whether the store orders all writes, as SQLite does; tests with ``BOTH_ORDERS`` choose it."""
    return True


@pytest.fixture
def store(world: World, ordered: bool) -> MemoryStore:
    """An empty store."""
    return MemoryStore(world.clock, transactions=ordered, parallel=not ordered)
