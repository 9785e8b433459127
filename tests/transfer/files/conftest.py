"""A repository and a directory to import."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk import connect
from hbasemk.kernel.settings import Settings
from tests.support.imports import SMALL, write_files
from tests.support.repositories import damage


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A repository with short leases, because tests kill workers; the integrity check runs at the end."""
    made = f"sqlite:///{tmp_path / 'content.db'}"
    with connect(made, settings=Settings(lease_ms=1000, max_clock_skew_ms=2000), poll_interval=0):
        pass
    yield made
    assert damage(made) == []


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return write_files(tmp_path / "docs", SMALL)
