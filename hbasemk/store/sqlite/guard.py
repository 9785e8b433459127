"""Locks that protect a database's files while this process uses them, whatever else the process does with the files.

SQLite's own locks are POSIX locks. They vanish when the process closes any descriptor of the file, even by
``open(path).close()``. Another process then considers the file unused, and deletes the log that this process still
writes. So the process holds the important locks a second time, as locks of an *open file description*, which end only
when that description is closed (decision 18):

- a shared lock on the bytes of the database that SQLite locks exclusively before it deletes the log;
- a shared lock on the byte of the index that a process locks exclusively before it truncates the index;
- an exclusive lock on a byte that SQLite does not use, for each write: it excludes a second writer.

Each process has one :class:`Guard` per file, which opens and closes all connections. The guard also records which
files the connections have open, and detects that other files have replaced them.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import sqlite3
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import FileIdentity
from hbasemk.store.sqlite import errors, files

if sys.platform != "win32":
    import fcntl

_log = logging.getLogger("hbasemk")

PENDING_BYTE: Final = 0x40000000
"""The offset of SQLite's locks on the database; the page there holds no data."""
SHARED_FIRST: Final = PENDING_BYTE + 2
SHARED_SIZE: Final = 510
WRITER_BYTE: Final = SHARED_FIRST + SHARED_SIZE
"""Our writer lock, on the same page."""
INDEX_IN_USE: Final = 128
"""SQLite's "dead man's switch" in the index: a process that finds it unlocked restarts the index."""
CHECK_EVERY: float = 1.0
"""Seconds after which a read checks the files again; a write always checks them."""
_INDEX: Final = struct.Struct("=I12xI12x8s88xI")
"""The index: its version, the frames in the log, the log's salt, and the last frame that a checkpoint may have moved."""
INDEX_HEADER: Final = 48
"""The size of the part of the index that each commit changes: it contains a count and running checksums of the commits."""
INDEX_VERSION: Final = 3_007_000
WAL_MODE: Final = b"\2\2"
"""The header's bytes 18 and 19 in a database with a write-ahead log."""

_set_lock: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform != "win32" else None
_BUSY: Final = (errno.EAGAIN, errno.EACCES)
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


WRITABLE: Final = "mode=rw"
READABLE: Final = "mode=ro&readonly_shm=1"
FROZEN: Final = "mode=ro&immutable=1"
"""Modes of a connection: read and write; read only, without creating files; read a database without a log."""
USED: Final = ("", files.LOG, files.INDEX)


class LogState(NamedTuple):
    """The log as the index describes it: its generation, its number of frames, and how many a checkpoint may have moved."""

    version: int
    salt: bytes
    frames: int
    moved: int


class Opened(NamedTuple):
    """A connection. A ``frozen`` one assumes that the database never changes; its reads are valid only if that holds."""

    sql: sqlite3.Connection
    frozen: bool


class NotReadyError(Exception):
    """The file has no write-ahead log (yet), or a crash interrupted a change that used no log."""


class Guard:
    """This process's locks and descriptors of one database, held while it has connections; :func:`of` creates it."""

    def __init__(self, path: str, identity: FileIdentity) -> None:
        self._path = path
        self._identity = identity
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._connections = 0
        self._garbage: list[sqlite3.Connection] = []
        self._checked_at = 0.0
        self._main: int | None = None
        self._index: int | None = None
        self._locks = False
        self._unchanged = (0, 0)
        self.read_only: str | None = None
        """Why this user cannot write; None if it can."""
        self._expected: list[tuple[str, FileIdentity]] = []
        self.log_state: LogState | None = None
        """The state of the log as last read from the index."""
        self._opening = 0
        self.lost: str | None = None
        """The path of a file that was replaced or deleted; no connection may be used after that."""

    # --- connections -----------------------------------------------------------------------------------------

    def open(
        self,
        connect: Callable[[str], sqlite3.Connection],
        prepare: Callable[[sqlite3.Connection, bool], None],
        recovered: bool,
    ) -> Opened:
        """Open one more connection.

        ``connect`` opens it in a mode of SQLite. ``prepare`` is its first use and must read; its second argument is
        whether this user may write. ``recovered``: SQLite has just checked for a journal to roll back.

        Raises NotReadyError, SQLite's busy error, StoreUnusableError for files that were replaced or that this user
        cannot use, and the errors of ``connect`` and ``prepare``.
        """
        with self._lock:
            self.check()
            if not self._connections:
                self._hold(recovered)
            sql = None
            try:
                mode = self._mode()
                sql = connect(mode)
                prepare(sql, self.read_only is None)
                if mode == FROZEN:
                    self._note_main()
                    if not self.is_frozen():
                        raise errors.locked()
                elif len(self._expected) < len(USED):
                    self._note()
                self.check()
            except BaseException:
                if not self._connections:
                    # Unlock before SQLite closes, so that a foreign file is left without a log beside it.
                    self._unlock()
                if sql is not None:
                    sql.close()
                if not self._connections:
                    self._release()
                raise
            self._connections += 1
            return Opened(sql, mode == FROZEN)

    def _mode(self) -> str:
        """Return the mode for a new connection.

        A user who may not write creates no log and no index: the owner could not use them.
        """
        if self.read_only is None:
            return WRITABLE
        found = [os.path.exists(self._path + suffix) for suffix in (files.LOG, files.INDEX)]
        if all(found):
            return READABLE
        if found[0]:
            # A writer is just about to create the index, or the index was deleted.
            raise sqlite3.OperationalError(f"unable to open database file: {self._path}{files.INDEX} is missing")
        return FROZEN

    def is_frozen(self) -> bool:
        """Return whether the database is unchanged since the first frozen connection.

        A writer creates a log before anything else. The log cannot vanish meanwhile: that takes the exclusive lock.
        """
        if os.path.exists(self._path + files.LOG):
            return False
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return (found.st_mtime_ns, found.st_size) == self._unchanged

    def close(self, sql: sqlite3.Connection) -> None:
        """Close a connection; the last one checkpoints the log if no other process has it open."""
        if self._pid != os.getpid():
            # A thread of the parent, which the child does not have, may hold the lock.
            _abandoned.append((sql, self))
            return
        with self._lock:
            self._close(sql)
        self._close_garbage()

    def is_garbage(self, sql: sqlite3.Connection) -> None:
        """Close an unreferenced connection, now or soon.

        The garbage collector may call this at any moment. So it must not wait for a lock that its own thread may hold.
        """
        self._garbage.append(sql)
        self._close_garbage()

    def _close_garbage(self) -> None:
        while self._garbage and self._lock.acquire(blocking=False):
            try:
                if not _guards_lock.acquire(blocking=False):
                    return
                _guards_lock.release()
                self._close(self._garbage.pop())
            finally:
                self._lock.release()

    def _close(self, sql: sqlite3.Connection) -> None:
        if self._pid != os.getpid():
            _abandoned.append((sql, self))
            return
        if self.lost is not None and not self._locks:
            # Closing could move a log into a file that it does not belong to. This process must not open more connections
            # either: SQLite would give them the old index.
            _abandoned.append((sql, self))
            return
        # If log and file do not belong together, the lock stays: while it is held, SQLite touches neither.
        if self._connections == 1 and self.lost is None:
            self._unlock()
        sql.close()
        self._connections -= 1
        if not self._connections:
            self._release()

    # --- writing ---------------------------------------------------------------------------------------------

    def begin_write(self) -> bool:
        """Exclude other writers of all processes; return False if there is one."""
        if not self._writing.acquire(blocking=False):
            return False
        begun = False
        try:
            begun = not self._locks or self.read_only is not None or _lock(self._main, fcntl.F_WRLCK, WRITER_BYTE, 1)
        finally:
            if not begun:
                self._writing.release()
        return begun

    def end_write(self) -> None:
        """Allow other writers again."""
        try:
            if self._locks and self.read_only is None:
                _lock(self._main, fcntl.F_UNLCK, WRITER_BYTE, 1)
        finally:
            self._writing.release()

    # --- reading ---------------------------------------------------------------------------------------------

    def is_sound(self, before: LogState | None) -> bool:
        """Return whether a read is correct even if its lock vanished; ``before`` is :attr:`log_state` from before the read.

        The read used at least the log's first ``before.frames`` frames. It is correct unless another process restarted
        the log (which changes the salt), or moved later frames into the database (which the index records first).
        """
        state = self.read_log_state()
        if state is None or state.version not in {0, INDEX_VERSION}:
            return True
        return before is not None and state[:2] == before[:2] and state.moved <= before.frames

    def read_log_state(self) -> LogState | None:
        """Read the log's state from the index; set and return :attr:`log_state`."""
        if self._index is None:
            return None
        # A truncated index counts as zeros.
        data = os.pread(self._index, _INDEX.size, 0).ljust(_INDEX.size, b"\0")
        version, frames, salt, moved = _INDEX.unpack(data)
        self.log_state = state = LogState(version, salt, frames, moved)
        return state

    def change_counter(self) -> int | None:
        """Return a number that every commit of every process makes different; None for an unknown version of the index.

        SQLite's own connections compare the same bytes to notice commits (decision 28). While the files are closed, another
        process may commit and then leave an equal index; so each opening of the files changes the number too. A database
        without a log changes only if it is opened anew, which :meth:`is_frozen` ensures.
        """
        if self._index is None:
            return self._opening
        header = os.pread(self._index, INDEX_HEADER, 0)
        # A truncated index counts as version 0.
        if int.from_bytes(header[:4], sys.byteorder) not in {0, INDEX_VERSION}:
            return None
        return self._opening << 8 * INDEX_HEADER | int.from_bytes(header, "big")

    # --- detecting replaced files ------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise StoreUnusableError if a path no longer leads to the file that the connections have open."""
        if self.lost is None:
            for path, identity in self._expected:
                try:
                    found = os.stat(path)
                except (FileNotFoundError, NotADirectoryError):
                    self.lost = path
                    break
                except OSError as error:
                    raise errors.unreachable(path, error) from error
                if found.st_ino != identity[1] or found.st_dev != identity[0]:
                    self.lost = path
                    break
            else:
                return
        raise errors.replaced(self._path, self.lost)

    def check_sometimes(self, now: float) -> None:
        """Call :meth:`check` unless that happened within the last :data:`CHECK_EVERY` seconds; for reads."""
        if now - self._checked_at >= CHECK_EVERY:
            self._checked_at = now
            self.check()

    def check_written(self) -> None:
        """Call :meth:`check` after a write that may be lost; raises StoreUnknownError instead."""
        try:
            self.check()
        except StoreUnusableError as error:
            raise errors.replaced_meanwhile(self._path, self.lost, str(error)) from error

    def _note_main(self) -> None:
        """Record the identity and state of a database file without a log."""
        if not self._expected:
            self._expected = [(self._path, self._identity)]
            found = os.stat(self._path)
            self._unchanged = found.st_mtime_ns, found.st_size
            self._opening = next(_openings)

    def _note(self) -> None:
        """Record which files the first connection with a log has opened."""
        expected = [(self._path, self._identity)]
        for suffix in (files.LOG, files.INDEX):
            identity = files.identity(self._path + suffix)
            if identity is None:
                raise errors.locked()
            expected.append((self._path + suffix, identity))
        if self.read_only is None:
            files.share_with_group(self._path)
        self._index = _descriptor(self._path + files.INDEX, os.O_RDONLY, expected[2][1])
        # A reader takes no lock: it may be the last that has the index open, and the next writer must restart the index.
        if self._locks and self.read_only is None and not _lock(self._index, fcntl.F_RDLCK, INDEX_IN_USE, 1):
            raise errors.locked()
        self.read_log_state()
        self._opening = next(_openings)
        self._expected = expected

    # --- the locks -------------------------------------------------------------------------------------------

    def _hold(self, recovered: bool) -> None:
        """Lock the database so that nobody deletes its log; raises SQLite's busy error and NotReadyError."""
        try:
            self.read_only = files.read_only_because(self._path)
            flags = os.O_RDWR if self.read_only is None else os.O_RDONLY
            self._main = _descriptor(self._path, flags, self._identity)
            if os.pread(self._main, 2, 18) != WAL_MODE:
                raise NotReadyError
            if not recovered and os.path.exists(self._path + files.JOURNAL):
                raise NotReadyError
            if self.read_only is None and files.foreign(self._path):
                self._replace_foreign(self._main)
            self._locks = self._try(self._main, fcntl.F_RDLCK, SHARED_FIRST, SHARED_SIZE)
        except BaseException:
            self._release()
            raise

    def _replace_foreign(self, main: int) -> None:
        """Replace a log and an index that this user may not write if no process uses the database; else raise."""
        names = files.foreign(self._path)
        try:
            # The range covers everything that SQLite's connections and guards lock.
            alone = self._try(main, fcntl.F_WRLCK, PENDING_BYTE, WRITER_BYTE - PENDING_BYTE)
        except sqlite3.OperationalError:
            alone = False
        if not alone:
            raise errors.foreign(self._path, names, None)
        try:
            files.replace_foreign(self._path)
        except OSError as error:
            raise errors.foreign(self._path, names, error) from error
        finally:
            _lock(main, fcntl.F_UNLCK, 0, 0)

    def _try(self, descriptor: int, kind: int, start: int, length: int) -> bool:
        """Lock; return False if such locks are unsupported. Raises SQLite's busy error if another lock blocks it."""
        if _set_lock is None:
            return False
        try:
            if not _lock(descriptor, kind, start, length):
                raise errors.locked()
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            _log.debug("%s: the file system does not support locks of open file descriptions (%s)", self._path, error)
            return False
        return True

    def _unlock(self) -> None:
        # Unlock explicitly: a forked child that has not yet started its own program shares the open file descriptions.
        if self._locks:
            for descriptor in (self._main, self._index):
                if descriptor is not None:
                    _lock(descriptor, fcntl.F_UNLCK, 0, 0)
            self._locks = False

    def _release(self) -> None:
        """Unlock and close all descriptors; only after the last connection of this process is closed."""
        self._unlock()
        done = [descriptor for descriptor in (self._main, self._index) if descriptor is not None]
        self._main = self._index = None
        self._expected = []
        self.lost = None
        _close(done)

    def forget(self) -> None:
        """Close descriptors that came through a fork; the parent's locks stay."""
        for descriptor in (self._main, self._index):
            if descriptor is not None:
                os.close(descriptor)
        self._main = self._index = None
        self._locks = False


# --- all guards of this process ----------------------------------------------------------------------------------

_guards: weakref.WeakValueDictionary[FileIdentity, Guard] = weakref.WeakValueDictionary()
_guards_lock = threading.Lock()
_guards_pid = os.getpid()
_openings = itertools.count(1)
"""Numbers the times at which guards of this process opened a database's files."""
_parked: list[int] = []
"""Descriptors without locks that must stay open, because other users of the file in this process may hold locks."""
_abandoned: list[tuple[sqlite3.Connection, Guard]] = []
"""Connections that are neither used nor closed: they came through a fork, or their files were replaced."""


def of(path: str, identity: FileIdentity) -> Guard:
    """Return the guard of the file at ``path`` (without symbolic links), which has this identity."""
    with _guards_lock:
        found = _guards.get(identity)
        if found is None:
            found = _guards[identity] = Guard(path, identity)
        return found


def after_fork() -> None:
    """Reset all guards in a forked child; no other thread may use the store. Idempotent."""
    global _guards, _guards_lock, _guards_pid
    if _guards_pid == os.getpid():
        return
    _guards_pid = os.getpid()
    inherited, _guards = list(_guards.values()), weakref.WeakValueDictionary()
    _guards_lock = threading.Lock()
    for guard in inherited:
        guard.forget()


def _close(descriptors: list[int]) -> None:
    """Close descriptors, now or later: not while something else in this process may hold locks on their files."""
    with _guards_lock:
        waiting, _parked[:] = [*_parked, *descriptors], []
        for descriptor in waiting:
            found = os.fstat(descriptor)
            if _is_open_elsewhere((found.st_dev, found.st_ino), waiting):
                _parked.append(descriptor)
            else:
                os.close(descriptor)


def _is_open_elsewhere(identity: FileIdentity, ours: list[int]) -> bool:
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return False
    for name in names:
        if int(name) in ours:
            continue
        try:
            found = os.stat(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == identity:
            return True
    return False


def _descriptor(path: str, flags: int, identity: FileIdentity) -> int:
    """Return a descriptor of the file at a path; raises SQLite's busy error if the file has another identity."""
    with _guards_lock:
        for descriptor in _parked:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) == identity and _flags(descriptor) == flags:
                _parked.remove(descriptor)
                return descriptor
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != identity:
        _close([descriptor])
        raise errors.locked()
    return descriptor


def _flags(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_RDWR | os.O_RDONLY | os.O_WRONLY)


def _lock(descriptor: int | None, kind: int, start: int, length: int) -> bool:
    """Set or release a lock of an open file description; return False if another lock blocks it."""
    assert _set_lock is not None
    assert descriptor is not None
    try:
        fcntl.fcntl(descriptor, _set_lock, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True
