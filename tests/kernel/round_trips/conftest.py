"""Fixtures of the tests of round trips."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbasemk.kernel.journal import fence
from hbasemk.store.memory import MemoryStore
from tests.support.repositories import problems
from tests.support.round_trips import Counted, ParallelMemory


@pytest.fixture(params=[MemoryStore, ParallelMemory])
def counted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    # After this time a read also reads the horizon, and a busy machine may stop a test for as long.
    monkeypatch.setattr(fence, "TRUST", 600.0)
    counted = Counted(request.param())
    yield counted
    assert problems(counted.repository) == []
    counted.repository.close()
