"""A pool of SQLite connections to one file: opened on demand, one user at a time, never carried across a fork.

The pool accepts a file only if it is empty or has our application id, and its format (user version) is not newer.
"""

from __future__ import annotations

import math
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from hbasemk.errors import ClosedError, FormatError, StoreUnknownError, StoreUnusableError
from hbasemk.interrupts import SLICE, Deferred
from hbasemk.store.abc import FileIdentity
from hbasemk.store.sqlite import atfork, errors, files, guard
from hbasemk.store.sqlite.guard import Guard, NotReadyError

T = TypeVar("T")

APPLICATION_ID: Final = 0x68626D6B
"""The letters ``hbmk``; SQLite stores them in the file's header."""
FORMAT: Final = 1
CATALOG: Final = (
    "CREATE TABLE hbasemk_tables (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, "
    "families TEXT NOT NULL, versions INTEGER NOT NULL)"
)
IDLE: Final = 16
"""The largest number of idle connections that the pool keeps."""
LOG_PAGES: Final = 4000
"""A commit checkpoints the write-ahead log from this many pages on; with SQLite's default of 1000 loading is 14 % slower."""
LOG_BOUND: Final = 64 * 1024 * 1024
"""Above this size of the write-ahead log in bytes, a writer waits for readers to release it, and truncates it."""
WRITES_PER_LOG_CHECK: Final = 64
"""A connection checks the size of the log after this many of its writes."""
LOG_TIMEOUT_MS: Final = 1000
"""The longest time in ms that a writer waits for readers to release the log."""
FOREIGN_TIMEOUT: Final = 1.0
"""The longest time in seconds that a call waits for files that another user may be about to complete."""
SHORTEST_WAIT: Final = 0.0002
LONGEST_WAIT: Final = 0.001
"""The shortest and longest time in seconds between two attempts on a busy file.

Longer waits are unfair: a writer that never pauses would win every time.
"""
BUSY: Final = 0.02
LONGEST_BUSY_WAIT: Final = 0.005
"""After ``BUSY`` seconds many processes are waiting for the file; an attempt every ms would saturate the machine."""

_inherited: list[Connection] = []
"""Connections that came through a fork that Python did not report; closing them would harm the parent."""


class Connection:
    """One SQLite connection and its known state."""

    __slots__ = ("__weakref__", "_close", "committing", "durable", "frozen", "guard", "sql", "unsound", "writes")

    def __init__(self, sql: sqlite3.Connection, frozen: bool, guard: Guard) -> None:
        self.sql = sql
        self.frozen = frozen
        self.guard = guard
        self._close = weakref.finalize(self, guard.is_garbage, sql)
        # Other threads may still use the connection when the process ends.
        self._close.atexit = False
        self.durable: bool | None = None
        self.committing = False
        self.unsound = False
        """Whether the pool must close the connection: its cache may differ from the file, or it cannot write to the file."""
        self.writes = 0

    def begin(self, durable: bool) -> None:
        """Begin a write; raises SQLite's busy error at once if there is another writer, or StoreUnusableError."""
        self.guard.check()
        if self.durable is not durable:
            # Both modes write the log in order, and one sync covers the whole log.
            self.sql.execute("PRAGMA synchronous=FULL" if durable else "PRAGMA synchronous=NORMAL")
            self.durable = durable
        self.sql.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit a write; raises StoreUnknownError if the connection's files are no longer those of the database."""
        self.committing = True
        self.sql.execute("COMMIT")
        self.committing = False
        self.writes += 1
        self.guard.check_written()
        self.guard.read_log_state()

    def close(self) -> None:
        """Close the connection; idempotent. Garbage collection also closes it."""
        if self._close.detach() is not None:
            self.guard.close(self.sql)

    def usable_again(self) -> bool:
        """Roll back an unfinished transaction; return False if the connection must be closed."""
        if self.committing or self.unsound or self.guard.lost is not None:
            return False
        try:
            if self.sql.in_transaction:
                self.sql.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True


class _Pauses:
    """The pauses of one call that waits for a busy file; ``begun`` is the time at which the call began."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._next = SHORTEST_WAIT

    def sleep(self) -> None:
        """Pause; each pause is longer than the one before, up to a limit, and random within a factor of three."""
        time.sleep(self._next * (0.5 + random.random()))
        long = time.monotonic() - self._begun > BUSY
        self._next = min(self._next * 2, LONGEST_BUSY_WAIT if long else LONGEST_WAIT)


class Connections:
    """A pool of connections to the file at ``path``; ``busy_timeout`` in seconds."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        self.path = str(Path(path).absolute())
        self.busy_timeout = busy_timeout
        self._state = threading.Condition()
        self._writing = threading.Lock()
        self._idle: list[Connection] = []
        self._in_use = 0
        self._forking = False
        self._identity: FileIdentity | None = None
        self._lost: str | None = None
        self._pid = os.getpid()
        self._closed = False
        self._log_limit = LOG_BOUND
        atfork.register(self)

    def reading(self, call: Callable[[Connection], T]) -> T:
        """Run a call that only reads and return its result; raises StoreError and ClosedError."""
        with Deferred() as interrupts:
            self._check_process()
            return self._run(call, create=False, writing=False, begun=time.monotonic(), interrupts=interrupts)

    def writing(self, call: Callable[[Connection], T], *, create: bool = False) -> T:
        """Run a call that writes in one transaction and return its result; one write of this pool at a time.

        ``create`` creates a missing file. If the file is busy, the pool repeats the call from its beginning. So the call
        must not write before its transaction has begun.
        """
        with Deferred() as interrupts:
            self._check_process()
            begun = time.monotonic()
            while not self._writing.acquire(timeout=SLICE):
                interrupts.deliver()
                if self._is_over(begun):
                    raise errors.busy(self.path, self.busy_timeout)
            try:
                return self._run(call, create, writing=True, begun=begun, interrupts=interrupts)
            finally:
                self._writing.release()

    def close(self) -> None:
        """Close idle connections now, and busy connections when their calls end; idempotent."""
        with Deferred():
            self._close()

    def _close(self) -> None:
        with self._state:
            self._closed = True
            idle, self._idle = self._idle, []
            # Counts as a use, because a fork waits until no connection is being closed.
            self._in_use += 1
        try:
            if self._pid != os.getpid():
                _inherited.extend(idle)
            else:
                for connection in idle:
                    connection.close()
        finally:
            self._give_back(None, usable=False)

    # --- one call ------------------------------------------------------------------------------------------

    def _run(
        self, call: Callable[[Connection], T], create: bool, writing: bool, begun: float, interrupts: Deferred
    ) -> T:
        pauses = _Pauses(begun)
        while True:
            connection = self._take()
            usable = False
            try:
                if connection is None:
                    try:
                        connection = self._open(create)
                    except OSError as error:
                        raise errors.unreachable(self.path, error) from error
                if not writing:
                    connection.guard.check_sometimes(begun)
                    result = self._read(connection, call)
                    usable = True
                    return result
                if connection.guard.read_only is not None:
                    raise errors.read_only(self.path, connection.guard.read_only)
                while not connection.guard.begin_write():
                    # Another process writes. Asking again costs one system call, so it does not take turns with the connection.
                    usable = True
                    interrupts.deliver()
                    if self._forking or self._closed or self._is_over(begun):
                        raise errors.locked()
                    pauses.sleep()
                usable = False
                try:
                    result = call(connection)
                    usable = True
                    if connection.writes >= WRITES_PER_LOG_CHECK:
                        usable = self._bound_log(connection)
                    return result
                finally:
                    connection.guard.end_write()
            except errors.ForeignFilesError:
                # Another user's process may just be creating the files, before it shares them with the group.
                if self._is_over(begun, FOREIGN_TIMEOUT):
                    raise
            except (StoreUnusableError, StoreUnknownError):
                self._check_files(connection)
                raise
            except sqlite3.Error as error:
                self._raise_unless_repeatable(error, connection, begun)
            finally:
                self._give_back(connection, usable)
            interrupts.deliver()
            pauses.sleep()

    def _raise_unless_repeatable(self, error: sqlite3.Error, connection: Connection | None, begun: float) -> None:
        """Return if the call may be repeated; otherwise raise the store error for an error of SQLite."""
        if errors.is_busy(error):
            if self._is_over(begun):
                raise errors.busy(self.path, self.busy_timeout) from error
            return
        reason = self._read_only_because()
        committing = connection is not None and connection.committing
        files_over = self._is_over(begun, FOREIGN_TIMEOUT)
        if reason is not None and (errors.is_read_only(error) or errors.is_not_opened(error)):
            # A writer may just be creating the log and its index.
            if files_over:
                raise errors.needs_a_writer(self.path, reason, str(error)) from error
        elif errors.is_read_only(error) and not committing and not files_over:
            # SQLite opened the files of another user who had not shared them with the group yet. This connection
            # cannot write to them any more; a new one can.
            if connection is not None:
                connection.unsound = True
        else:
            raise errors.translate(error, self.path, committing=committing) from error

    def _is_over(self, begun: float, limit: float = math.inf) -> bool:
        """Return whether a call has lasted for ``busy_timeout``, or for a shorter limit in seconds."""
        return time.monotonic() - begun >= min(limit, self.busy_timeout)

    def _read(self, connection: Connection, call: Callable[[Connection], T]) -> T:
        """Run a call that reads; raises SQLite's busy error if it may have read more than one state of the file."""
        guard = connection.guard
        before = guard.log_state
        connection.unsound = True
        try:
            result = call(connection)
        except Exception as error:
            if guard.is_frozen() if connection.frozen else guard.is_sound(before):
                connection.unsound = False
                raise
            raise errors.locked() from error
        if not (guard.is_frozen() if connection.frozen else guard.is_sound(before)):
            raise errors.locked()
        connection.unsound = False
        return result

    @property
    def read_only(self) -> bool:
        """Whether the file exists and this process's user can only read it."""
        return self._read_only_because() is not None

    def _read_only_because(self) -> str | None:
        path = files.real_path(self.path)
        return files.read_only_because(path) if os.path.exists(path) else None

    def _check_files(self, connection: Connection | None) -> None:
        """Record that the files were replaced: earlier results of this pool may not be in the new files."""
        if connection is not None and connection.guard.lost is not None:
            self._lost = connection.guard.lost

    def _take(self) -> Connection | None:
        """Return an idle connection, or None if the caller must open one; count it as in use."""
        with self._state:
            while self._forking:
                self._state.wait()
            if self._closed:
                raise ClosedError(f"the store at {self.path} is closed; open it again")
            if self._lost is not None:
                raise errors.replaced(self.path, self._lost)
            self._in_use += 1
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: Connection | None, usable: bool) -> None:
        if connection is not None and not usable:
            usable = connection.usable_again()
        with self._state:
            if connection is not None and usable and not (self._closed or self._forking) and len(self._idle) < IDLE:
                self._idle.append(connection)
                self._in_use -= 1
                return
        # Close before the count drops, because a fork waits for the count.
        if connection is not None:
            connection.close()
        with self._state:
            self._in_use -= 1
            if self._forking:
                self._state.notify_all()

    def _bound_log(self, connection: Connection) -> bool:
        """Truncate a large log: the usual checkpoint cannot while there is always some reader.

        Returns whether the connection is still usable. The write itself stands in either case.
        """
        connection.writes = 0
        try:
            size = os.stat(files.real_path(self.path) + files.LOG).st_size
            if size <= self._log_limit:
                return True
            connection.sql.execute(f"PRAGMA busy_timeout={LOG_TIMEOUT_MS}")
            stuck = connection.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            connection.sql.execute("PRAGMA busy_timeout=0")
        except (OSError, sqlite3.Error):
            return False
        # The higher limit keeps writers from waiting again and again for a reader that is stopped in a call.
        self._log_limit = size + LOG_BOUND if stuck else LOG_BOUND
        return True

    # --- forks ---------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait for running calls and close all connections; the state stays locked until :meth:`after_fork`."""
        self._state.acquire()
        self._forking = True
        self._state.wait_for(lambda: not self._in_use, timeout=self.busy_timeout + 10)
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def after_fork(self, child: bool) -> None:
        """Allow calls again; the child starts with new locks and no connections."""
        self._forking = False
        if child:
            self._renew()
        else:
            self._state.notify_all()
            self._state.release()

    def _renew(self) -> None:
        self._state = threading.Condition()
        self._writing = threading.Lock()
        self._in_use = 0
        self._pid = os.getpid()
        guard.after_fork()

    def _check_process(self) -> None:
        """Detect a fork that Python did not report; the child neither uses nor closes inherited connections."""
        if self._pid != os.getpid():
            _inherited.extend(self._idle)
            self._idle = []
            self._renew()

    # --- opening -------------------------------------------------------------------------------------------

    def _open(self, create: bool) -> Connection:
        path = files.real_path(self.path)
        for recovered in (False, True):
            identity = files.identity(path)
            if identity is None:
                if self._identity is not None:
                    self._lost = path
                    raise errors.replaced(self.path, path)
                if not create:
                    raise StoreUnusableError(
                        f"the file {self.path} does not exist or cannot be reached; create the repository first"
                    )
            elif self._identity not in {None, identity}:
                self._lost = path
                raise errors.replaced(self.path, path)
            if identity is not None:
                found = guard.of(path, identity)
                try:
                    sql, frozen = found.open(
                        partial(self._connect, path),
                        lambda sql, writable: self._prepare(sql, create, writable),
                        recovered,
                    )
                    self._identity = identity
                    return Connection(sql, frozen, found)
                except NotReadyError:
                    pass
            # No guard holds the file here: SQLite switches to a log only while it has the file to itself.
            reason = files.read_only_because(path) if identity is not None else None
            sql = self._connect(
                path, "mode=rwc" if create and reason is None else "mode=rw" if reason is None else "mode=ro"
            )
            try:
                if reason is None:
                    self._prepare(sql, create, writable=True)
                else:
                    self._check(sql, create=False)
                    raise errors.needs_a_writer(self.path, reason, "its creation is not complete")
            finally:
                sql.close()
        # Another process is changing the file.
        raise errors.locked()

    def _connect(self, path: str, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(path)}?{mode}",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    def _prepare(self, sql: sqlite3.Connection, create: bool, writable: bool) -> None:
        self._check(sql, create and writable)
        sql.execute("PRAGMA cache_size=-32768")
        if not writable:
            return
        # Only after the check: another program's file must not change.
        mode = sql.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnusableError(
                f"{self.path} cannot have a write-ahead log (SQLite chooses {mode!r} there); use another file system"
            )
        sql.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
        sql.execute(f"PRAGMA journal_size_limit={LOG_BOUND}")

    def _check(self, sql: sqlite3.Connection, create: bool) -> None:
        if self._is_ours(sql):
            return
        if not create:
            raise StoreUnusableError(f"{self.path} is empty; create the repository first")
        sql.execute("BEGIN IMMEDIATE")
        try:
            if not self._is_ours(sql):
                sql.execute(f"PRAGMA application_id={APPLICATION_ID}")
                sql.execute(f"PRAGMA user_version={FORMAT}")
                sql.execute(CATALOG)
            sql.execute("COMMIT")
        except BaseException:
            if sql.in_transaction:
                sql.execute("ROLLBACK")
            raise

    def _is_ours(self, sql: sqlite3.Connection) -> bool:
        """Return whether the file has our mark; False if it is empty. Raises FormatError for any other file."""
        if os.stat(self.path).st_size == 1:
            # SQLite treats such a file as empty. (Reading the file here would release SQLite's locks.)
            raise FormatError(f"{self.path} is not a SQLite database or is damaged; it was not touched")
        application = sql.execute("PRAGMA application_id").fetchone()[0]
        version = sql.execute("PRAGMA user_version").fetchone()[0]
        if application == APPLICATION_ID:
            if version > FORMAT:
                raise FormatError(
                    f"{self.path} has file format {version}; this version of hbasemk supports formats up to {FORMAT}; "
                    "use a newer version"
                )
            return True
        if application or version or sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise FormatError(f"{self.path} is a SQLite database of another program; it was not touched")
        return False
