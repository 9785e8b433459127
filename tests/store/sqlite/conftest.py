"""Fixtures of the tests of SQLite files: where the file is, and a store on it with tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.sqlite import TABLES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store's file is, or will be."""
    return tmp_path / "content.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Yield a store with its tables."""
    store = SqliteStore(str(path))
    store.create_tables(TABLES)
    yield store
    store.close()


@pytest.fixture
def memory() -> MemoryStore:
    """Return a store in memory with the same tables."""
    memory = MemoryStore(lambda: 1)
    memory.create_tables(TABLES)
    return memory
