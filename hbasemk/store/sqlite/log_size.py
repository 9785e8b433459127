"""Keeps the write-ahead log small: SQLite's own checkpoints cannot truncate it while there is always some reader.

A log that is small still has room for the next commits (``log_room``).
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final

from hbasemk.store.sqlite import files
from hbasemk.store.sqlite.connection import Connection

LOG_PAGES: Final = 4000
"""A commit checkpoints the write-ahead log from this many pages on; with SQLite's default of 1000 loading is 14 % slower."""
LOG_BOUND: Final = 64 * 1024 * 1024
"""Above this size of the write-ahead log in bytes, a writer waits for readers to release it, and truncates it."""
WRITES_PER_LOG_CHECK: Final = 64
"""A connection checks the size of the log after this many of its writes."""
LOG_TIMEOUT_MS: Final = 1000
"""The longest time in ms that a writer waits for readers to release the log."""


def configure(sql: sqlite3.Connection) -> None:
    """Set when SQLite checkpoints the log of a connection that may write, and to which size it then truncates the log."""
    sql.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
    sql.execute(f"PRAGMA journal_size_limit={LOG_BOUND}")


class LogSize:
    """The size of the log of the database at ``path``, as one pool bounds it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._limit = LOG_BOUND

    def bound(self, connection: Connection) -> bool:
        """After a write of this connection, give the log room; once in a while, truncate a large log.

        Returns whether the connection is still usable. The write itself stands in either case.
        """
        if connection.durable:
            connection.guard.make_room()
        if connection.writes < WRITES_PER_LOG_CHECK:
            return True
        connection.writes = 0
        try:
            size = os.stat(files.real_path(self._path) + files.LOG).st_size
            if size <= self._limit:
                return True
            connection.sql.execute(f"PRAGMA busy_timeout={LOG_TIMEOUT_MS}")
            stuck = connection.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            connection.sql.execute("PRAGMA busy_timeout=0")
        except (OSError, sqlite3.Error):
            # It may still wait for locks.
            connection.unsound = True
            return False
        # The higher limit keeps writers from waiting again and again for a reader that is stopped in a call.
        self._limit = size + LOG_BOUND if stuck else LOG_BOUND
        return True
