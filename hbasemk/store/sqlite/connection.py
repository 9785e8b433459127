"""One SQLite connection to a database that a guard protects."""

from __future__ import annotations

import sqlite3
import weakref

from hbasemk.store.sqlite.cells import reject_text
from hbasemk.store.sqlite.guard import Guard
from hbasemk.store.sqlite.wal_index import LogState


class Connection:
    """One SQLite connection and its known state."""

    __slots__ = ("__weakref__", "_close", "committing", "durable", "frozen", "guard", "sql", "unsound", "writes")

    def __init__(self, sql: sqlite3.Connection, frozen: bool, guard: Guard) -> None:
        # The tables have no text; those of the catalog are read as blobs.
        sql.text_factory = reject_text
        self.sql = sql
        self.frozen = frozen
        self.guard = guard
        self._close = weakref.finalize(self, guard.is_garbage, sql)
        # Other threads may still use the connection when the process ends.
        self._close.atexit = False
        self.durable: bool | None = None
        self.committing = False
        self.unsound = False
        """Whether the pool must close the connection: it may read an old state of the file, or cannot write to the file."""
        self.writes = 0

    def begin(self, durable: bool) -> None:
        """Begin a write; raises SQLite's busy error at once if there is another writer, or StoreUnusableError."""
        self.guard.used.check()
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
        self.guard.used.check_written()
        self.guard.read_log_state()

    def is_sound(self, before: LogState | None) -> bool:
        """Return whether a read that began at this state of the log is correct even if its lock vanished."""
        return self.guard.used.is_frozen() if self.frozen else self.guard.is_sound(before)

    def close(self) -> None:
        """Close the connection; idempotent. Garbage collection also closes it."""
        if self._close.detach() is not None:
            self.guard.close(self.sql)

    def usable_again(self) -> bool:
        """Roll back an unfinished transaction; return False if the connection must be closed."""
        if self.committing or self.unsound or self.guard.used.lost is not None:
            return False
        try:
            if self.sql.in_transaction:
                self.sql.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True
