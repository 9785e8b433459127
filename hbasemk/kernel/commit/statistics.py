"""Counters of commits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CommitStatistics:
    """Counters of this instance's commits, for reports only.

    ``conflicts`` are attempts that lost to another commit, also those that :meth:`Repository.run` repeated. ``too_slow`` are
    attempts that were repeated with a new id, because theirs had become too old.
    """

    committed: int = 0
    conflicts: int = 0
    too_slow: int = 0
