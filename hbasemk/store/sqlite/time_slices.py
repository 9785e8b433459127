"""Time slices of a file, in which one process commits many times in a row (decision 54).

Slice ``n`` begins ``n * SLICE`` seconds after the zero of the machine's monotonic clock, which all processes share. It
belongs to the process that has locked byte ``first + n`` of the file. So a process that waits locks the first byte that is
free: the processes queue, and take turns. The operating system removes the locks of a process that ends. Slices only
arrange waits: a process may write at any time, and clocks that differ merely let slices overlap.
"""

from __future__ import annotations

import sys
import threading
from typing import Final, NamedTuple

from hbasemk.store.sqlite import ofd_locks

if sys.platform != "win32":
    import fcntl

SLICE: Final = 0.016
"""The length of a slice in seconds: some 20 commits. A hand-over costs as much as one or two."""
QUEUE: Final = 64
"""The maximum number of slices that may be taken at one time; further processes do not queue."""


class TimeSlice(NamedTuple):
    """A slice, in seconds of the monotonic clock."""

    begins: float
    ends: float


class TimeSlices:
    """The slice of this process on one file; ``first`` is the offset of the byte of slice 0. Thread-safe."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._lock = threading.Lock()
        self._taken: int | None = None

    def take(self, descriptor: int | None, now: float) -> TimeSlice | None:
        """Return the present or next slice of this process, and take one if it has none; None if the queue is full."""
        present = int(now / SLICE)
        with self._lock:
            if self._taken is None or self._taken < present:
                self._give_back(descriptor)
                for number in range(present, present + QUEUE):
                    if ofd_locks.lock(descriptor, fcntl.F_WRLCK, self._first + number, 1):
                        self._taken = number
                        break
                else:
                    return None
            return TimeSlice(self._taken * SLICE, (self._taken + 1) * SLICE)

    def _give_back(self, descriptor: int | None) -> None:
        if self._taken is not None:
            taken, self._taken = self._taken, None
            ofd_locks.lock(descriptor, fcntl.F_UNLCK, self._first + taken, 1)

    def forget(self) -> None:
        """Forget the slice, because its lock has been released or belongs to another process."""
        with self._lock:
            self._taken = None
