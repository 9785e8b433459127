"""Fixtures of the tests of round trips."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbasemk.store.memory import MemoryStore
from tests.support.repositories import problems
from tests.support.round_trips import Counted, ParallelMemory


@pytest.fixture(params=[MemoryStore, ParallelMemory])
def counted(request: pytest.FixtureRequest) -> Iterator[Counted]:
    counted = Counted(request.param())
    yield counted
    assert problems(counted.repository) == []
    counted.repository.close()
