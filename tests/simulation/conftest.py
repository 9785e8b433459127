"""What the tests of simulated runs share: these runs are not traced for coverage, and their garbage is seldom collected."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hbasemk.kernel import periodic_work
from hbasemk.kernel.journal import known_revisions

OBJECTS = 400_000
"""So many new objects are made between two collections of garbage."""


@pytest.fixture(autouse=True)
def untraced(no_cover: None) -> None:
    """Pause coverage during each test here: tests elsewhere run the same lines, and tracing doubles the time of these."""


@pytest.fixture(autouse=True)
def garbage_kept_longer() -> Iterator[None]:
    """Collect garbage seldom during each test here. Each run leaves cycles, and Python would look for them all the time."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, 50, 100)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let instances drop positions, and read the watermark, after two revisions."""
    monkeypatch.setattr(known_revisions, "KEPT", 2)
    monkeypatch.setattr(periodic_work, "ADVANCE_AFTER", 2)
