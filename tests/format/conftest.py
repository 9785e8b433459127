"""Fixtures of the tests of the format."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbasemk import (
    Repository,
)
from hbasemk.store.memory import MemoryStore


@pytest.fixture
def repo(real_store: MemoryStore) -> Iterator[Repository]:
    with Repository(real_store, poll_interval=0) as made:
        made.run(lambda tx: tx.add("/a", {"n": 1}))
        yield made
