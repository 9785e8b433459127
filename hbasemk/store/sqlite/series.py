"""Series of commits: a process that commits again at once shares the file with other such processes by time slices.

While one process commits in a row, its head, its caches and SQLite's pages stay valid. Each hand-over to another process
costs a poll and the pages. Processes that commit now and then are in no series, and never wait here (decision 54).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from hbasemk.store.sqlite.time_slices import TimeSlice

GAP: Final = 0.001
"""A commit that begins within so many seconds after the last write of its process continues a series."""
LENGTH: Final = 3
"""The first commit that waits for a time slice is the third one in a row that continues a series."""
LOOK: Final = 0.004
"""While a process waits, it looks after so many seconds, or after half of the rest if that is longer, whether others commit."""
LEAD: Final = 0.002
"""The first wait ends so many seconds before the slice. Meanwhile the process reads what others have committed."""


class Phase(Enum):
    """What the present call of :meth:`Series.give_way` must do."""

    COMMITS = auto()
    """Begin to wait if the commit belongs to a series."""
    APPROACHES = auto()
    """Wait for the begin of the slice."""
    BEGINS = auto()
    """Let the commit begin: it has waited."""


class Series:
    """The present series of commits of one process to one file."""

    def __init__(self) -> None:
        self._length = 0
        self._free_until = float("-inf")
        self._phase = Phase.COMMITS

    def give_way(
        self, written: float, at_most: float, look: Callable[[float], tuple[TimeSlice | None, int | None]]
    ) -> bool:
        """Wait for the time slice of this process if it commits in a series; return whether the call waited.

        After True the caller polls and calls again: a first wait ends :data:`LEAD` before the slice, a second one with its
        begin. A wait ends early after ``at_most`` seconds, or if nobody commits.

        ``written`` is the time of the last write of this process. ``look`` gets the time and returns the slice of this process,
        None if it has none, and a number that each commit of any process changes, None if that is unknown.
        """
        begun = now = time.monotonic()
        phase, self._phase = self._phase, Phase.COMMITS
        if phase is Phase.BEGINS:
            return False
        if phase is Phase.COMMITS:
            self._length = self._length + 1 if now - written < GAP else 0
            if self._length < LENGTH or now < self._free_until:
                return False
        seen = None
        while True:
            mine, counter = look(now)
            if mine is None:
                return now > begun
            lead = LEAD if phase is Phase.COMMITS else 0
            wait = min(mine.begins - lead, begun + at_most) - now
            nobody_commits = counter is not None and counter == seen
            if wait <= 0 or nobody_commits:
                break
            seen = counter
            time.sleep(min(wait, max(LOOK, wait / 2)))
            now = time.monotonic()
        waited = now > begun
        if waited and phase is Phase.COMMITS and not nobody_commits:
            self._phase = Phase.APPROACHES
        else:
            self._phase = Phase.BEGINS if waited else Phase.COMMITS
            self._free_until = mine.ends
        return waited
