"""The pauses between two attempts of a call on a busy file (decision 24)."""

from __future__ import annotations

import random
import time
from typing import Final

SHORTEST: Final = 0.0002
LONGEST: Final = 0.01
"""The shortest and longest pause in seconds, before jitter, while a call does not hurry."""
PATIENCE: Final = 0.05
"""Seconds after the last write of this process before its next write hurries. Meanwhile another process commits several
times in a row: each hand-over costs a poll and the pages that SQLite has cached."""
HURRY: Final = 0.01
HURRIED: Final = 0.0003
"""A call that hurries pauses ``HURRIED`` seconds between attempts, but only for ``HURRY`` seconds. A file that is busy even
longer is locked by a long write; then frequent attempts would only use the processor."""


class Pauses:
    """The pauses of one call that waits for a busy file.

    ``begun`` is the time at which the call began, and ``written`` the one of the last write of this process to the file.
    """

    def __init__(self, begun: float, written: float) -> None:
        self._hurries_from = max(begun, written + PATIENCE)
        self._next = SHORTEST

    def sleep(self) -> None:
        """Pause for a random time within a factor of three."""
        time.sleep(self.seconds(time.monotonic()) * (0.5 + random.random()))

    def seconds(self, now: float) -> float:
        """Return the length of the next pause in seconds, before jitter."""
        if 0 <= now - self._hurries_from < HURRY:
            return HURRIED
        seconds = self._next
        self._next = min(seconds * 2, LONGEST)
        return seconds
