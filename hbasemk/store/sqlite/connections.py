"""SQLite connections to one file: opened when needed, one user at a time, never carried across a fork.

A file is taken only if it is empty or marked as ours (application id), and not of a newer format (user version).
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hbasemk.errors import (
    ClosedError,
    FormatError,
    StoreError,
    StoreNotAppliedError,
    StoreUnknownError,
    StoreUnusableError,
)

APPLICATION_ID: Final = 0x68626D6B
"""The letters ``hbmk``; SQLite keeps them in the file's header."""
FORMAT: Final = 1
IDLE: Final = 16
"""How many idle connections are kept."""


class Connection:
    """One SQLite connection and the durability that it is set to."""

    __slots__ = ("durable", "sql")

    def __init__(self, sql: sqlite3.Connection) -> None:
        self.sql = sql
        self.durable: bool | None = None

    def set_durable(self, durable: bool) -> None:
        """Sync the write-ahead log at each commit, or leave that to the next commit that does."""
        if self.durable is not durable:
            self.sql.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self.durable = durable


class Connections:
    """A pool of connections to the file at ``path``; ``busy_timeout`` in seconds."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        self.path = str(Path(path).absolute())
        self.busy_timeout = busy_timeout
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._abandoned: list[Connection] = []
        self._pid = os.getpid()
        self._closed = False

    @contextmanager
    def use(self, *, create: bool = False) -> Iterator[Connection]:
        """A connection for one call; SQLite's errors come out as this package's."""
        connection = self._take(create)
        try:
            yield connection
        except sqlite3.Error as error:
            self._discard(connection)
            raise translate(error, self.path, self.busy_timeout) from error
        except BaseException:
            self._discard(connection)
            raise
        self._give_back(connection)

    def close(self) -> None:
        """Close what is idle now and what is in use when its call ends; idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        if self._pid == os.getpid():
            for connection in idle:
                connection.sql.close()

    def _take(self, create: bool) -> Connection:
        if self._pid != os.getpid():
            # A forked child must neither use nor close its parent's connections.
            self._lock = threading.Lock()
            self._abandoned += self._idle
            self._idle = []
            self._pid = os.getpid()
        with self._lock:
            if self._closed:
                raise ClosedError(f"the store at {self.path} has been closed")
            if self._idle:
                return self._idle.pop()
        return self._open(create)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < IDLE:
                self._idle.append(connection)
                return
        connection.sql.close()

    def _discard(self, connection: Connection) -> None:
        try:
            if connection.sql.in_transaction:
                connection.sql.execute("ROLLBACK")
        except sqlite3.Error:
            # The connection is beyond repair; closing it rolls back.
            connection.sql.close()
            return
        self._give_back(connection)

    def _open(self, create: bool) -> Connection:
        mode = "rwc" if create else "rw"
        if not create and not Path(self.path).exists():
            raise StoreUnusableError(f"there is no file {self.path}; create the repository first")
        try:
            sql = sqlite3.connect(
                f"file:{quote(self.path)}?mode={mode}",
                uri=True,
                timeout=self.busy_timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except sqlite3.Error as error:
            raise translate(error, self.path, self.busy_timeout) from error
        try:
            self._check(sql, create)
            sql.execute("PRAGMA journal_mode=WAL")
            sql.execute("PRAGMA cache_size=-32768")
            sql.execute("PRAGMA journal_size_limit=67108864")
        except sqlite3.Error as error:
            sql.close()
            raise translate(error, self.path, self.busy_timeout) from error
        except BaseException:
            sql.close()
            raise
        return Connection(sql)

    def _check(self, sql: sqlite3.Connection, create: bool) -> None:
        if self._is_ours(sql):
            return
        if not create:
            raise FormatError(f"{self.path} is an empty database; create the repository first")
        sql.execute("BEGIN IMMEDIATE")
        try:
            if not self._is_ours(sql):
                sql.execute(f"PRAGMA application_id={APPLICATION_ID}")
                sql.execute(f"PRAGMA user_version={FORMAT}")
                sql.execute(
                    "CREATE TABLE hbasemk_tables (name TEXT PRIMARY KEY, families TEXT NOT NULL, versions INTEGER NOT NULL)"
                )
            sql.execute("COMMIT")
        except BaseException:
            if sql.in_transaction:
                sql.execute("ROLLBACK")
            raise

    def _is_ours(self, sql: sqlite3.Connection) -> bool:
        """Whether the file is marked as ours; False when it is empty. Raises FormatError for any other file."""
        application = sql.execute("PRAGMA application_id").fetchone()[0]
        version = sql.execute("PRAGMA user_version").fetchone()[0]
        if application == APPLICATION_ID:
            if version > FORMAT:
                raise FormatError(
                    f"{self.path} has file format {version}, and this version of hbasemk knows formats up to {FORMAT}; "
                    "use a newer version"
                )
            return True
        if application or sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise FormatError(f"{self.path} is a SQLite database of some other program; it was not touched")
        return False


def translate(error: sqlite3.Error, path: str, busy_timeout: float) -> StoreError:
    """The kind of store error that an error of SQLite is."""
    text = str(error)
    low = text.lower()
    if "locked" in low or "busy" in low:
        return StoreNotAppliedError(
            f"another process has kept {path} locked for {busy_timeout:g} s; nothing was written, try again"
        )
    if "full" in low:
        return StoreNotAppliedError(f"there is no room to write to {path} ({text}); nothing was written, free some")
    if "not a database" in low or "malformed" in low or "corrupt" in low:
        return FormatError(f"{path} is no SQLite database or is damaged ({text}); restore it from a copy")
    if "readonly" in low or "read-only" in low or "unable to open" in low or "authorized" in low:
        return StoreUnusableError(
            f"{path} cannot be opened for writing ({text}); check that the folder exists and permissions"
        )
    if "i/o error" in low:
        return StoreUnknownError(f"reading or writing {path} failed ({text}); check the disk")
    return StoreUnusableError(f"{path} cannot be used ({type(error).__name__}: {text})")
