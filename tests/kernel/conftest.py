"""Fixtures of the tests of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite.store import SqliteStore
from tests.support.runtime import World


@pytest.fixture(params=["memory", "sqlite"])
def ordered_store(request: pytest.FixtureRequest, tmp_path: Path, world: World) -> Store:
    """A store that orders all writes."""
    opened: Store = (
        MemoryStore(world.clock, transactions=True)
        if request.param == "memory"
        else SqliteStore(str(tmp_path / "content.db"), clock=world.clock)
    )
    return opened
