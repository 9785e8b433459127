"""Counters of commits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CommitStatistics:
    """Counters of this instance's commits, for reports only."""

    committed: int = 0
    conflicts: int = 0
    too_slow: int = 0
