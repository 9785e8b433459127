"""The index of a write-ahead log as SQLite keeps it in shared memory: what it says about the log and its last commit."""

from __future__ import annotations

import os
import struct
import sys
from typing import Final, NamedTuple

_INDEX: Final = struct.Struct("=I10xHI12x8s88xI")
"""The index: its version, the database's page size, the frames in the log, the log's salt, and the last frame that a
checkpoint may have moved."""
INDEX_HEADER: Final = 48
"""The size of the part of the index that each commit changes: it contains a count and running checksums of the commits."""
INDEX_VERSION: Final = 3_007_000
LOG_HEADER: Final = 32
"""The size of the header of the log."""
FRAME_HEADER: Final = 24
"""The size of the header of a frame, which one page follows."""


class LogState(NamedTuple):
    """The log as the index describes it: its generation, its number of frames, and how many a checkpoint may have moved.

    ``used`` is the size in bytes of the log's header and frames, ``data`` the part of the index that says all this.
    """

    version: int
    salt: bytes
    frames: int
    moved: int
    used: int
    data: bytes


def log_state(descriptor: int, last: LogState | None = None) -> LogState:
    """Read the state of the log from its index; return ``last``, the state read before, if the index is unchanged."""
    data = os.pread(descriptor, _INDEX.size, 0)
    if last is not None and data == last.data:
        return last
    # A truncated index counts as zeros.
    version, page, frames, salt, moved = _INDEX.unpack(data.ljust(_INDEX.size, b"\0"))
    # The index says 1 for a page of 64 KiB.
    frame = FRAME_HEADER + (page if page > 1 else 64 * 1024)
    return LogState(version, salt, frames, moved, LOG_HEADER + frames * frame, data)


def is_sound(before: LogState | None, after: LogState) -> bool:
    """Return whether a read between two states of the log is correct even if its lock vanished.

    The read used at least the log's first ``before.frames`` frames. It is correct unless another process restarted
    the log (which changes the salt), or moved later frames into the database (which the index records first).
    """
    if after.version not in {0, INDEX_VERSION}:
        return True
    return before is not None and after[:2] == before[:2] and after.moved <= before.frames


def header(descriptor: int) -> bytes:
    """Read the part of the index that each commit changes."""
    return os.pread(descriptor, INDEX_HEADER, 0)


def commit_number(header: bytes) -> int | None:
    """Return a number below ``256 ** INDEX_HEADER`` that every commit changes; None for an unknown version of the index.

    SQLite's own connections compare the same bytes to notice commits (decision 28).
    """
    # A truncated index counts as version 0.
    if int.from_bytes(header[:4], sys.byteorder) not in {0, INDEX_VERSION}:
        return None
    return int.from_bytes(header, "big")
