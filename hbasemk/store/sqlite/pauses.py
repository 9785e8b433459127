"""The pauses between two attempts of a call on a busy file (decision 24)."""

from __future__ import annotations

import random
import time
from typing import Final

SHORTEST: Final = 0.0002
"""The first pause in seconds, before jitter."""
LONGEST: Final = 0.01
"""The longest pause of a call that has hurried in vain."""
PATIENCE: Final = 0.1
"""Seconds after the last write of this process before its next write hurries. Until then each pause is twice the last one.
Meanwhile another process commits many times in a row: each hand-over costs a poll and the pages that SQLite has cached."""
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
        self._hurries_until: float | None = None
        self._patient = self._late = SHORTEST

    def sleep(self) -> None:
        """Pause for a random time within a factor of three."""
        time.sleep(self.seconds(time.monotonic()) * (0.5 + random.random()))

    def seconds(self, now: float) -> float:
        """Return the length of the next pause in seconds, before jitter."""
        until_hurry = self._hurries_from - now
        if until_hurry > 0:
            seconds, self._patient = self._patient, self._patient * 2
            return min(seconds, max(until_hurry, SHORTEST))
        if self._hurries_until is None:
            self._hurries_until = now + HURRY
        if now < self._hurries_until:
            return HURRIED
        seconds, self._late = self._late, min(self._late * 2, LONGEST)
        return seconds
