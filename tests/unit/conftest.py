"""Every kernel test runs on memory and on SQLite."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.repositories import Instances, instances
from tests.support.runtime import World


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instances]:
    """Opens instances on one repository; at the end its integrity is checked."""
    if request.param == "memory":
        shared = MemoryStore()

        def new_store() -> Store:
            # A shallow copy shares cells and lock, and is closed for itself.
            return copy.copy(shared)
    else:

        def new_store() -> Store:
            return SqliteStore(str(tmp_path / "content.db"))

    with instances(new_store) as made:
        yield made


@pytest.fixture
def world() -> World:
    """A time that moves only when a test moves it."""
    return World()


@pytest.fixture
def store(world: World) -> MemoryStore:
    """A store whose clock shows that time."""
    return MemoryStore(world.clock)
