"""Every kernel test runs on memory and on SQLite."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.repositories import Checked, Instances, instances, judge
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
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A time that moves only when a test moves it; at the end the repositories opened in it are checked and closed."""
    made = World()
    yield made
    try:
        judge(request.node, made.problems())
    finally:
        made.close()


@pytest.fixture
def store(world: World) -> MemoryStore:
    """A store whose clock shows that time."""
    return MemoryStore(world.clock)


@pytest.fixture
def real_store(checked: Checked) -> MemoryStore:
    """A store whose clock is this machine's; the repository in it is checked at the end."""
    return checked(MemoryStore())


@pytest.fixture
def url(checked: Checked, tmp_path: Path) -> str:
    """Where there is no repository yet; it is checked at the end if there is one then."""
    return checked(f"sqlite:///{tmp_path / 'content.db'}")
