"""One database file: how a connection to it opens, what a file needs to be accepted, and that it stays the same file.

A file is accepted only if it is empty or has our application id, and its format (user version) is not newer.
"""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hbasemk.errors import FormatError, InvalidValueError, StoreUnusableError
from hbasemk.store.abc import FileIdentity
from hbasemk.store.sqlite import errors, files, guard, log_size
from hbasemk.store.sqlite.connection import Connection
from hbasemk.store.sqlite.file_locks import NotReadyError

APPLICATION_ID: Final = 0x68626D6B
"""The letters ``hbmk``; SQLite stores them in the file's header."""
FORMAT: Final = 1
CATALOG: Final = (
    "CREATE TABLE hbasemk_tables (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, "
    "families TEXT NOT NULL, versions INTEGER NOT NULL)"
)


class DatabaseFile:
    """The file at ``path``; once a connection was open, no other file may take its place."""

    def __init__(self, path: str) -> None:
        try:
            self.path = str(Path(path).absolute())
        except FileNotFoundError:
            raise StoreUnusableError(
                f"{path!r} is relative, and the folder in which this process runs has been deleted; give an absolute path, or "
                "run in another folder"
            ) from None
        try:
            self.path.encode()
        except UnicodeEncodeError:
            raise InvalidValueError(
                f"the path {self.path!r} of the file is not UTF-8, as SQLite requires; rename the file or its folder"
            ) from None
        self._identity: FileIdentity | None = None
        self.lost: str | None = None
        """The path of a file that was replaced or deleted; then :meth:`check` raises."""

    # --- its user and its identity ---------------------------------------------------------------------------

    def read_only_because(self) -> str | None:
        """Return why this process's user can only read the file; None if it can write, or the file does not exist."""
        path = files.real_path(self.path)
        return files.read_only_because(path) if os.path.exists(path) else None

    def note_loss(self, connection: Connection | None) -> None:
        """Record that the files were replaced: results of earlier connections may not be in the new files."""
        if connection is not None and connection.guard.used.lost is not None:
            self.lost = connection.guard.used.lost

    def check(self) -> None:
        """Raise StoreUnusableError if another file was found in the place of this one."""
        if self.lost is not None:
            raise errors.replaced(self.path, self.lost)

    # --- opening ---------------------------------------------------------------------------------------------

    def open(self, create: bool) -> Connection:
        """Open a connection; ``create`` creates a missing file.

        Raises SQLite's errors, StoreUnusableError, FormatError and OSError.
        """
        path = files.real_path(self.path)
        mode = b""
        for recovered in (False, True):
            identity = files.identity(path)
            if identity is None:
                if self._identity is not None:
                    self.lost = path
                    raise errors.replaced(self.path, path)
                if not create:
                    raise StoreUnusableError(
                        f"the file {self.path} does not exist or cannot be reached; check the URL, or create the repository "
                        "first (hbasemk init)"
                    )
            elif self._identity not in {None, identity}:
                self.lost = path
                raise errors.replaced(self.path, path)
            if identity is not None:
                other = files.other_than_file(path)
                if other is not None:
                    raise StoreUnusableError(
                        f"{self.path} is {other}; use the path of a file, or of a file to be created"
                    )
                found = guard.of(path, identity)
                try:
                    sql, frozen = found.open(
                        partial(self._connect, path),
                        lambda sql, writable: self._prepare(sql, create, writable),
                        recovered,
                    )
                    self._identity = identity
                    return Connection(sql, frozen, found)
                except NotReadyError as error:
                    mode = error.mode
            # No guard holds the file here: SQLite switches to a log only while it has the file to itself.
            reason = files.read_only_because(path) if identity is not None else None
            sql = self._connect(
                path, "mode=rwc" if create and reason is None else "mode=rw" if reason is None else "mode=ro"
            )
            try:
                if reason is None:
                    self._prepare(sql, create, writable=True)
                else:
                    self._create_unless_ours(sql, create=False)
                    raise errors.needs_a_writer(self.path, reason, "its creation is not complete")
            finally:
                sql.close()
        if len({*mode}) > 1:
            # SQLite writes both bytes together.
            problem = f"the bytes 18 and 19 of its header are {mode[0]} and {mode[1]}, expected 2 and 2"
            raise errors.damaged(self.path, problem)
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
        self._create_unless_ours(sql, create and writable)
        sql.execute("PRAGMA cache_size=-32768")
        if not writable:
            return
        # Only after the check: another program's file must not change.
        mode = sql.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnusableError(
                f"{self.path} cannot have a write-ahead log (SQLite chooses {mode!r} there); use another file system"
            )
        log_size.configure(sql)

    def _create_unless_ours(self, sql: sqlite3.Connection, create: bool) -> None:
        if self._is_ours(sql):
            return
        if not create:
            raise StoreUnusableError(f"{self.path} is empty; create the repository first (hbasemk init)")
        # Only an empty file takes this setting without being rewritten.
        sql.execute("PRAGMA auto_vacuum=INCREMENTAL")
        sql.execute("BEGIN IMMEDIATE")
        try:
            if not self._is_ours(sql):
                encoding = sql.execute("PRAGMA encoding").fetchone()[0]
                if encoding != "UTF-8":
                    # SQLite never changes the encoding of a file. The names of our tables are read as UTF-8.
                    raise StoreUnusableError(
                        f"{self.path} is an empty SQLite database with the encoding {encoding}, and a repository needs UTF-8; it "
                        "was not touched. Delete it, or use another file."
                    )
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
        application, version, is_empty = _mark_of(sql)
        if application == APPLICATION_ID:
            if version > FORMAT:
                raise FormatError(
                    f"{self.path} has file format {version}; this version of hbasemk supports formats up to {FORMAT}; "
                    "use a newer version"
                )
            return True
        if application or version or not is_empty:
            raise FormatError(f"{self.path} is a SQLite database of another program; it was not touched")
        return False


def _mark_of(sql: sqlite3.Connection) -> tuple[int, int, bool]:
    """Return the application id, the user version, and whether the file is empty, all from one state of the file."""
    # Another process may create the repository between two statements.
    begun = not sql.in_transaction
    if begun:
        sql.execute("BEGIN")
    try:
        application = sql.execute("PRAGMA application_id").fetchone()[0]
        version = sql.execute("PRAGMA user_version").fetchone()[0]
        # The schema of a file with a mark need not be readable: its format may be newer.
        marked = application or version
        return application, version, not marked and not sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        # SQLite has ended the transaction itself after some errors.
        if begun and sql.in_transaction:
            sql.execute("ROLLBACK")
