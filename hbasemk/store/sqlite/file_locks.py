"""The locks that one process holds on a database's files a second time, while it has connections (decision 18).

- A shared lock on the bytes of the database that SQLite locks exclusively before it deletes the log;
- a shared lock on the byte of the index that a process locks exclusively before it truncates the index;
- an exclusive lock on a byte that SQLite does not use, for each write: it excludes a second writer;
- an exclusive lock on one of the bytes after it, for a time slice (``time_slices``);
- a shared lock on the byte of the name by which the process has opened the file: SQLite puts the log beside that name;
- while the last connection closes, a shared lock on one more byte: nobody opens the file while it is locked.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from typing import Final

from hbasemk.store.abc import FileIdentity
from hbasemk.store.sqlite import descriptors, errors, files, ofd_locks
from hbasemk.store.sqlite.time_slices import TimeSlice, TimeSlices

if sys.platform != "win32":
    import fcntl

PENDING_BYTE: Final = 0x40000000
"""The offset of SQLite's locks on the database; the page there holds no data."""
SHARED_FIRST: Final = PENDING_BYTE + 2
SHARED_SIZE: Final = 510
WRITER_BYTE: Final = SHARED_FIRST + SHARED_SIZE
"""Our writer lock, on the same page."""
SLICES_FIRST: Final = WRITER_BYTE + 1
"""The byte of time slice 0. SQLite locks no byte from here on; a lock does not keep anybody from reading and writing data."""
NAMES_FIRST: Final = 1 << 48
NAMES: Final = 1 << 32
"""The bytes of the names that the file may have, far above those of the time slices."""
CLOSING_BYTE: Final = NAMES_FIRST + NAMES
INDEX_IN_USE: Final = 128
"""SQLite's "dead man's switch" in the index: a process that finds it unlocked restarts the index."""
WAL_MODE: Final = b"\2\2"
"""The header's bytes 18 and 19 in a database with a write-ahead log."""


class NotReadyError(Exception):
    """The file has no write-ahead log (yet), or a crash interrupted a change that used no log.

    ``mode`` are the header's bytes 18 and 19.
    """

    def __init__(self, mode: bytes) -> None:
        super().__init__()
        self.mode = mode


class FileLocks:
    """The locks on the database at ``path`` with this identity, and the descriptors that hold them."""

    def __init__(self, path: str, identity: FileIdentity) -> None:
        self._path = path
        self._identity = identity
        self._writing = threading.Lock()
        self._slices = TimeSlices(SLICES_FIRST)
        self._main: int | None = None
        self.index: int | None = None
        """The descriptor of the log's index; None if no connection uses a log."""
        self.held = False
        """Whether the database is locked; False also where such locks are unsupported."""
        self._has_name = False
        self.read_only: str | None = None
        """Why this user cannot write; None if it can."""

    def hold(self, recovered: bool) -> None:
        """Lock the database so that nobody deletes its log; raises SQLite's busy error and NotReadyError.

        ``recovered``: SQLite has just checked for a journal to roll back.
        """
        try:
            self.read_only = files.read_only_because(self._path)
            flags = os.O_RDWR if self.read_only is None else os.O_RDONLY
            self._main = descriptors.open_file(self._path, flags, self._identity)
            mode = os.pread(self._main, 2, 18)
            if mode != WAL_MODE or (not recovered and os.path.exists(self._path + files.JOURNAL)):
                raise NotReadyError(mode)
            if self.read_only is None and files.foreign(self._path):
                self._replace_foreign(self._main)
            self.held = ofd_locks.lock_if_supported(self._path, self._main, fcntl.F_RDLCK, SHARED_FIRST, SHARED_SIZE)
            if self.held:
                self._hold_name(self._main)
                # After the lock above, so that a process that begins to close now does not get the exclusive lock.
                if ofd_locks.is_locked_elsewhere(self._main, CLOSING_BYTE, 1):
                    raise errors.locked()
        except BaseException:
            self.release()
            raise

    def _hold_name(self, main: int) -> None:
        """Lock the file's name; raise StoreUnusableError if the file is open by another name, which has another log."""
        own = files.name_number(self._path)
        ofd_locks.lock(main, fcntl.F_RDLCK, NAMES_FIRST + own, 1)
        self._has_name = True
        # After the lock, so that of two processes at least one finds the other.
        for start, length in ((0, own), (own + 1, NAMES - own - 1)):
            if ofd_locks.is_locked_elsewhere(main, NAMES_FIRST + start, length):
                raise errors.other_name(self._path)

    def hold_index(self, identity: FileIdentity) -> None:
        """Open the log's index, and lock it so that nobody truncates it; raises SQLite's busy error."""
        self.index = descriptors.open_file(self._path + files.INDEX, os.O_RDONLY, identity)
        # A reader takes no lock: it may be the last that has the index open, and the next writer must restart the index.
        if self.held and self.read_only is None and not ofd_locks.lock(self.index, fcntl.F_RDLCK, INDEX_IN_USE, 1):
            raise errors.locked()

    def _replace_foreign(self, main: int) -> None:
        """Replace a log and an index that this user may not write if no process uses the database; else raise."""
        names = files.foreign(self._path)
        try:
            # The range covers everything that SQLite's connections and guards lock.
            alone = ofd_locks.lock_if_supported(
                self._path, main, fcntl.F_WRLCK, PENDING_BYTE, WRITER_BYTE - PENDING_BYTE
            )
        except sqlite3.OperationalError:
            alone = False
        if not alone:
            raise errors.foreign(self._path, names, None)
        try:
            files.replace_foreign(self._path)
        except OSError as error:
            raise errors.foreign(self._path, names, error) from error
        finally:
            ofd_locks.unlock(main)

    @property
    def _locks_writes(self) -> bool:
        return self.held and self.read_only is None

    def begin_write(self) -> bool:
        """Exclude other writers of all processes; return False if there is one."""
        if not self._writing.acquire(blocking=False):
            return False
        begun = False
        try:
            begun = not self._locks_writes or ofd_locks.lock(self._main, fcntl.F_WRLCK, WRITER_BYTE, 1)
        finally:
            if not begun:
                self._writing.release()
        return begun

    def end_write(self) -> None:
        """Allow other writers again."""
        try:
            if self._locks_writes:
                ofd_locks.lock(self._main, fcntl.F_UNLCK, WRITER_BYTE, 1)
        finally:
            self._writing.release()

    def time_slice(self, now: float) -> TimeSlice | None:
        """Return the present or next time slice of this process; None if there is none for it, or no locks."""
        return self._slices.take(self._main, now) if self._locks_writes else None

    def begin_closing(self) -> None:
        """Let SQLite lock the database, and nobody else open it, until :meth:`release`.

        SQLite deletes the log while it has the exclusive lock, which another part of the process can lose.
        """
        if self.held:
            ofd_locks.lock(self._main, fcntl.F_RDLCK, CLOSING_BYTE, 1)
        self.unlock()

    def unlock(self) -> None:
        """Release all locks except that of the name and that of :meth:`begin_closing`, and keep the descriptors."""
        self._slices.forget()
        # Unlock explicitly: a forked child that has not yet started its own program shares the open file descriptions.
        if self.held:
            for descriptor in self._descriptors():
                ofd_locks.unlock(descriptor, NAMES_FIRST)
            self.held = False

    def release(self) -> None:
        """Unlock and close all descriptors; only while this process has no connection."""
        self.unlock()
        if self._has_name and self._main is not None:
            # Only now: the last connection has moved its log into the file.
            ofd_locks.unlock(self._main)
        self._has_name = False
        done = self._descriptors()
        self._main = self.index = None
        descriptors.close(done)

    def forget(self) -> None:
        """Close descriptors that came through a fork; the parent's locks stay."""
        for descriptor in self._descriptors():
            os.close(descriptor)
        self._main = self.index = None
        self.held = self._has_name = False
        self._slices.forget()

    def _descriptors(self) -> list[int]:
        return [descriptor for descriptor in (self._main, self.index) if descriptor is not None]
