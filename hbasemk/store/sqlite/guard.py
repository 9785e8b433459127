"""Opens and closes all of this process's connections to one database, and protects the database while they are open.

SQLite's own locks are POSIX locks. They vanish when the process closes any descriptor of the file, even by
``open(path).close()``. Another process then considers the file unused, and deletes the log that this process still
writes. So the process holds the important locks a second time, as locks of an *open file description*, which end only
when that description is closed (decision 18).

Each process has one :class:`Guard` per file. It consists of the locks (``file_locks``), the record of which files the
connections have open (``used_files``), the last known state of the log (``wal_index``), and its room (``log_room``).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple

from hbasemk.interrupts import Deferred
from hbasemk.store.abc import FileIdentity
from hbasemk.store.sqlite import descriptors, errors, files, wal_index
from hbasemk.store.sqlite.file_locks import FileLocks
from hbasemk.store.sqlite.log_room import LogRoom
from hbasemk.store.sqlite.used_files import UsedFiles
from hbasemk.store.sqlite.wal_index import LogState

WRITABLE: Final = "mode=rw"
READABLE: Final = "mode=ro&readonly_shm=1"
FROZEN: Final = "mode=ro&immutable=1"
"""Modes of a connection: read and write; read only, without creating files; read a database without a log."""


class Opened(NamedTuple):
    """A connection. A ``frozen`` one assumes that the database never changes; its reads are valid only if that holds."""

    sql: sqlite3.Connection
    frozen: bool


class Guard:
    """The protection of one database while this process has connections to it; :func:`of` creates it."""

    def __init__(self, path: str, identity: FileIdentity) -> None:
        self._path = path
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._connections = 0
        self._garbage: list[sqlite3.Connection] = []
        self.locks = FileLocks(path, identity)
        self.used = UsedFiles(path, identity)
        self._room = LogRoom(path)
        self.log_state: LogState | None = None
        """The state of the log as last read from the index."""
        self._counter: tuple[bytes, int, int | None] = (b"", 0, None)
        """The change counter returned last, and what it was made of."""

    # --- opening ---------------------------------------------------------------------------------------------

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
            self.used.check()
            if not self._connections:
                self.locks.hold(recovered)
            sql = None
            try:
                mode = self._mode()
                sql = connect(mode)
                prepare(sql, self.locks.read_only is None)
                if mode == FROZEN:
                    self.used.record_without_log()
                    if not self.used.is_frozen():
                        raise errors.locked()
                elif not self.used.has_log:
                    self._record_log()
                self.used.check()
            except BaseException:
                if sql is not None:
                    if not self._connections:
                        # Unlock before SQLite closes, so that a foreign file is left without a log beside it.
                        self.locks.begin_closing()
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
        if self.locks.read_only is None:
            return WRITABLE
        found = [os.path.exists(self._path + suffix) for suffix in (files.LOG, files.INDEX)]
        if all(found):
            return READABLE
        if found[0]:
            # A writer is just about to create the index, or the index was deleted.
            raise sqlite3.OperationalError(f"unable to open database file: {self._path}{files.INDEX} is missing")
        return FROZEN

    def _record_log(self) -> None:
        """Lock the index that the first connection with a log has opened, and record the files."""
        expected = self.used.find()
        if self.locks.read_only is None:
            files.share_with_group(self._path)
        self.locks.hold_index(expected[-1][1])
        self.read_log_state()
        self.used.record(expected)

    # --- closing ---------------------------------------------------------------------------------------------

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
        with Deferred():
            while self._garbage and self._lock.acquire(blocking=False):
                try:
                    if descriptors.is_locked():
                        return
                    self._close(self._garbage.pop())
                finally:
                    self._lock.release()

    def _close(self, sql: sqlite3.Connection) -> None:
        if self._pid != os.getpid():
            _abandoned.append((sql, self))
            return
        if self.used.lost is not None and not self.locks.held:
            # Closing could move a log into a file that it does not belong to. This process must not open more connections
            # either: SQLite would give them the old index.
            _abandoned.append((sql, self))
            return
        # If log and file do not belong together, the lock stays: while it is held, SQLite touches neither.
        if self._connections == 1 and self.used.lost is None:
            self.locks.begin_closing()
        sql.close()
        self._connections -= 1
        if not self._connections:
            self._release()

    def _release(self) -> None:
        """Unlock and forget the files; only after the last connection of this process is closed."""
        self.locks.unlock()
        self.used.forget()
        self._room.close()
        self.locks.release()

    # --- writing ---------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Give the log room for further commits, after a commit, while no other process writes."""
        log = self.used.log
        if self.log_state is not None and log is not None:
            self._room.make(self.log_state, log)

    def forget(self) -> None:
        """Close the descriptors that came through a fork."""
        self._room.close()
        self.locks.forget()

    # --- reading ---------------------------------------------------------------------------------------------

    def is_sound(self, before: LogState | None) -> bool:
        """Return whether a read is correct even if its lock vanished; ``before`` is :attr:`log_state` from before the read."""
        state = self.read_log_state()
        return state is None or wal_index.is_sound(before, state)

    def read_log_state(self) -> LogState | None:
        """Read the log's state from the index; set and return :attr:`log_state`."""
        if self.locks.index is None:
            return None
        self.log_state = state = wal_index.log_state(self.locks.index, self.log_state)
        return state

    def change_counter(self) -> int | None:
        """Return a number that every commit of every process makes different; None for an unknown version of the index.

        While the files are closed, another process may commit and then leave an equal index; so each opening of the files
        changes the number too. A database without a log changes only if it is opened anew, which
        :meth:`UsedFiles.is_frozen` ensures.
        """
        index, opening = self.locks.index, self.used.opening
        if index is None:
            return opening
        known = self._counter
        header = wal_index.header(index)
        if known[0] != header or known[1] != opening:
            number = wal_index.commit_number(header)
            counter = None if number is None else opening << 8 * wal_index.INDEX_HEADER | number
            known = self._counter = header, opening, counter
        return known[2]


# --- all guards of this process ----------------------------------------------------------------------------------

_guards: weakref.WeakValueDictionary[tuple[FileIdentity, int], Guard] = weakref.WeakValueDictionary()
_guards_lock = threading.Lock()
_guards_pid = os.getpid()
_abandoned: list[tuple[sqlite3.Connection, Guard]] = []
"""Connections that are neither used nor closed: they came through a fork, or their files were replaced."""


def of(path: str, identity: FileIdentity) -> Guard:
    """Return the guard of the file at ``path`` (without symbolic links), which has this identity.

    Each name of the file has a guard of its own: of two such guards, only one can open it.
    """
    key = identity, files.name_number(path)
    with _guards_lock:
        found = _guards.get(key)
        if found is None:
            found = _guards[key] = Guard(path, identity)
        return found


def after_fork() -> None:
    """Reset all guards in a forked child; no other thread may use the store. Idempotent."""
    global _guards, _guards_lock, _guards_pid
    if _guards_pid == os.getpid():
        return
    _guards_pid = os.getpid()
    inherited, _guards = list(_guards.values()), weakref.WeakValueDictionary()
    _guards_lock = threading.Lock()
    descriptors.after_fork()
    for guard in inherited:
        guard.forget()
