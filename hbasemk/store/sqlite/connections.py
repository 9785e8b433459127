"""A pool of SQLite connections to one file: opened on demand, one user at a time, never carried across a fork."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from hbasemk.errors import ClosedError, StoreUnknownError, StoreUnusableError
from hbasemk.interrupts import SLICE, Deferred
from hbasemk.store import atfork
from hbasemk.store.sqlite import errors, guard
from hbasemk.store.sqlite.connection import Connection
from hbasemk.store.sqlite.database_file import DatabaseFile
from hbasemk.store.sqlite.log_size import LogSize
from hbasemk.store.sqlite.pauses import Pauses
from hbasemk.store.sqlite.series import Series

T = TypeVar("T")

IDLE: Final = 16
"""The largest number of idle connections that the pool keeps."""
FOREIGN_TIMEOUT: Final = 1.0
"""The longest time in seconds that a call waits for files that another user may be about to complete."""

_inherited: list[Connection] = []
"""Connections that came through a fork that Python did not report; closing them would harm the parent."""


class _SignalArrivedError(Exception):
    """A signal has arrived while a call waits; its handler is called when the call has given everything back."""


class Connections:
    """A pool of connections to the file at ``path``; ``busy_timeout`` in seconds."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        self._file = DatabaseFile(path)
        self.path = self._file.path
        self.busy_timeout = busy_timeout
        self._new_locks()
        self._idle: list[Connection] = []
        self._in_use = 0
        self._forking = False
        self._pid = os.getpid()
        self._closed = False
        self._log = LogSize(self.path)
        self._written = float("-inf")
        self._series = Series()
        atfork.register(self)

    def _new_locks(self) -> None:
        # A lock implemented in C is faster than a condition, which is in Python.
        self._lock = threading.RLock()
        self._state = threading.Condition(self._lock)
        self._writing = threading.Lock()

    def reading(self, call: Callable[[Connection], T]) -> T:
        """Run a call that only reads and return its result; raises StoreError and ClosedError."""
        with Deferred() as interrupts:
            self._check_process()
            begun = time.monotonic()
            while True:
                try:
                    return self._run(call, create=False, writing=False, begun=begun, interrupts=interrupts)
                except _SignalArrivedError:
                    interrupts.deliver()

    def writing(self, call: Callable[[Connection], T], *, create: bool = False) -> T:
        """Run a call that writes in one transaction and return its result; one write of this pool at a time.

        ``create`` creates a missing file. If the file is busy, the pool repeats the call from its beginning. So the call
        must not write before its transaction has begun.
        """
        with Deferred() as interrupts:
            self._check_process()
            begun = time.monotonic()
            while True:
                if not self._writing.acquire(timeout=SLICE):
                    interrupts.deliver()
                    if self._is_over(begun):
                        raise errors.busy(self.path, self.busy_timeout)
                    continue
                try:
                    return self._run(call, create, writing=True, begun=begun, interrupts=interrupts)
                except _SignalArrivedError:
                    pass
                finally:
                    self._writing.release()
                # A handler may fork, or wait for a thread that writes. So it runs while this thread has nothing.
                interrupts.deliver()

    def give_way(self, at_most: float) -> bool:
        """Wait until this process may continue a series of commits; see :meth:`Series.give_way`."""
        return self._series.give_way(
            self._written,
            at_most,
            lambda now: self.reading(
                lambda connection: (connection.guard.locks.time_slice(now), connection.guard.change_counter())
            ),
        )

    def change_counter(self) -> int | None:
        """Return the change counter of the file; see :meth:`Guard.change_counter`.

        Idle instances ask many times a second. So this takes no connection while an idle one keeps the files open, until their
        next check is due or their loss is known. It takes no lock either: if another thread closes the files meanwhile, and
        this one reads whatever has got their descriptor, the counter is an error or a number that was never returned before.
        """
        if self._idle and self._file.lost is None and self._pid == os.getpid():
            try:
                connection = self._idle[-1]
                if not (connection.frozen or connection.guard.used.is_check_due(time.monotonic())):
                    return connection.guard.change_counter()
            except (IndexError, OSError):
                # The last idle connection has just been taken or closed.
                pass
        return self.reading(lambda connection: connection.guard.change_counter())

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
        pauses: Pauses | None = None
        while True:
            connection = self._take()
            usable = False
            try:
                if connection is None:
                    try:
                        connection = self._file.open(create)
                    except OSError as error:
                        raise errors.unreachable(self.path, error) from error
                if not writing:
                    connection.guard.used.check_sometimes(begun)
                    result = self._read(connection, call)
                    usable = True
                    return result
                if connection.guard.locks.read_only is not None:
                    raise errors.read_only(self.path, connection.guard.locks.read_only)
                while not connection.guard.locks.begin_write():
                    # Another process writes. Asking again costs one system call, so it does not take turns with the connection.
                    usable = True
                    if interrupts.arrived:
                        raise _SignalArrivedError
                    if self._forking or self._closed or self._is_over(begun):
                        raise errors.locked()
                    pauses = pauses or Pauses(begun, self._written)
                    pauses.sleep()
                usable = False
                try:
                    result = call(connection)
                    usable = self._log.bound(connection)
                    self._written = time.monotonic()
                    return result
                finally:
                    connection.guard.locks.end_write()
            except errors.ForeignFilesError:
                # Another user's process may just be creating the files, before it shares them with the group.
                if self._is_over(begun, FOREIGN_TIMEOUT):
                    raise
            except (StoreUnusableError, StoreUnknownError):
                self._file.note_loss(connection)
                raise
            except sqlite3.Error as error:
                self._raise_unless_repeatable(error, connection, begun)
            except UnicodeDecodeError as error:
                self._raise_unless_repeatable(errors.of_bytes(error), connection, begun)
            except _SignalArrivedError:
                raise
            except BaseException:
                # It may refer to the cursor of a statement that has not ended, and that would keep an old state of the file.
                if connection is not None:
                    connection.unsound = True
                raise
            finally:
                self._give_back(connection, usable)
            if interrupts.arrived:
                raise _SignalArrivedError
            pauses = pauses or Pauses(begun, self._written)
            pauses.sleep()

    def _raise_unless_repeatable(self, error: sqlite3.Error, connection: Connection | None, begun: float) -> None:
        """Return if the call may be repeated; otherwise raise the store error for an error of SQLite."""
        if errors.is_busy(error):
            if self._is_over(begun):
                raise errors.busy(self.path, self.busy_timeout) from error
            return
        reason = self._file.read_only_because()
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
        before = connection.guard.log_state
        connection.unsound = True
        try:
            result = call(connection)
        except Exception as error:
            if connection.is_sound(before):
                connection.unsound = False
                raise
            raise errors.locked() from error
        if not connection.is_sound(before):
            raise errors.locked()
        connection.unsound = False
        return result

    @property
    def read_only(self) -> bool:
        """Whether the file exists and this process's user can only read it."""
        return self._file.read_only_because() is not None

    def _take(self) -> Connection | None:
        """Return an idle connection, or None if the caller must open one; count it as in use."""
        with self._lock:
            while self._forking:
                self._state.wait()
            if self._closed:
                raise ClosedError(f"the store at {self.path} is closed; open the repository again with connect()")
            self._file.check()
            self._in_use += 1
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: Connection | None, usable: bool) -> None:
        if connection is not None and not usable:
            usable = connection.usable_again()
        with self._lock:
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
        self._new_locks()
        self._in_use = 0
        self._pid = os.getpid()
        guard.after_fork()

    def _check_process(self) -> None:
        """Detect a fork that Python did not report; the child neither uses nor closes inherited connections."""
        if self._pid != os.getpid():
            _inherited.extend(self._idle)
            self._idle = []
            self._renew()
