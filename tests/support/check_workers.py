"""Checks of small repositories by several processes."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any

import pytest

from hbasemk.check import workers


def use_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the workers of each check, and let them check all rows but the first ones."""

    def wait_for_one(pipes: Sequence[Any], _: float | None = None) -> list[Any]:
        return wait(pipes) if pipes else []

    monkeypatch.setattr(workers, "WORTH", 1)
    monkeypatch.setattr(workers, "wait", wait_for_one)
