"""Simulated runs are not traced for coverage: tests elsewhere run the same lines, and tracing doubles the time of these."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def untraced(no_cover: None) -> None:
    """Pause coverage during each test here."""
