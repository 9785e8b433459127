"""The pauses between two attempts of a call on a busy file."""

from __future__ import annotations

import random
import time
from typing import Final

SHORTEST_WAIT: Final = 0.0002
LONGEST_WAIT: Final = 0.001
"""The shortest and longest time in seconds between two attempts on a busy file.

Longer waits are unfair: a writer that never pauses would win every time.
"""
BUSY: Final = 0.02
LONGEST_BUSY_WAIT: Final = 0.005
"""After ``BUSY`` seconds many processes are waiting for the file; an attempt every ms would saturate the machine."""


class Pauses:
    """The pauses of one call that waits for a busy file; ``begun`` is the time at which the call began."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._next = SHORTEST_WAIT

    def sleep(self) -> None:
        """Pause; each pause is longer than the one before, up to a limit, and random within a factor of three."""
        time.sleep(self._next * (0.5 + random.random()))
        long = time.monotonic() - self._begun > BUSY
        self._next = min(self._next * 2, LONGEST_BUSY_WAIT if long else LONGEST_WAIT)
