"""Room at the end of the write-ahead log for the next commits.

A sync of a file that has grown also writes its new size to the disk. This takes as long as the sync of the data itself. So
zeros are appended to the log, many commits at a time. SQLite's frames then overwrite them (decision 51).
"""

from __future__ import annotations

import os
from typing import Final

from hbasemk.store.abc import FileIdentity
from hbasemk.store.sqlite import files
from hbasemk.store.sqlite.wal_index import LogState

ROOM: Final = 256 * 1024
"""Bytes that are appended at a time. The next sync writes them, so a multiple of this makes single commits slow."""
LEAST: Final = 32 * 1024
"""Room that suffices for a commit of a few cells, in bytes."""
MOST: Final = 16 * 1024 * 1024
"""A log of this size gets no more room: about here SQLite begins again at the start of the log."""

_ZEROS: Final = bytes(ROOM)


class LogRoom:
    """The room in the log of the database at ``path``; a process uses one for all of its connections."""

    def __init__(self, path: str) -> None:
        self._path = path + files.LOG
        self._descriptor: int | None = None
        self._failed = False
        self._salt = b""
        self._size = 0

    def make(self, state: LogState, identity: FileIdentity) -> None:
        """Append room to the log with this identity if it has too little for a commit.

        This never overwrites anything, so it is harmless whatever other processes do. If the disk is full or the file was
        replaced, nothing is appended: commits report such errors where they need the space or the file.
        """
        if state.salt != self._salt:
            # SQLite began again at the start of the log, and may have truncated it.
            self._salt = state.salt
            self._size = 0
            # The disk may have space again.
            self._failed = False
        elif self._suffices(state):
            return
        if self._failed or state.used >= MOST:
            return
        try:
            is_new = self._descriptor is None
            descriptor = self._opened()
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != identity:
                self._failed, self._descriptor = True, None
                if is_new:
                    os.close(descriptor)
                # Otherwise other code of this process has closed the descriptor, and its number is that of another file now.
                return
            self._size = found.st_size
            if not self._suffices(state):
                self._size += os.write(descriptor, _ZEROS)
        except OSError:
            self._failed = True

    def _suffices(self, state: LogState) -> bool:
        return self._size - state.used >= LEAST

    def _opened(self) -> int:
        """Return a descriptor that appends. SQLite locks no bytes of the log, so closing it releases no lock."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
        return self._descriptor

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        self._failed = False
        self._salt = b""
        if descriptor is not None:
            os.close(descriptor)
