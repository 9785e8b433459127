"""Fixtures of the tests of the collection."""

from __future__ import annotations

import pytest

from hbasemk.store.memory import MemoryStore
from tests.support.runtime import World


@pytest.fixture
def store(world: World) -> MemoryStore:
    """A store that orders all writes, as SQLite."""
    return MemoryStore(world.clock, transactions=True)
