"""What SQLite's errors mean for the caller: not applied, unknown, or unusable.

A transaction that fails before its COMMIT had no effect. A COMMIT that finds the disk full had none either: its last
frame, without which the others do not count, was not written. After any other failure of a COMMIT nobody knows.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from hbasemk.errors import FormatError, StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError

_BUSY: Final = ("database is locked", "database table is locked", "locking protocol", "database schema is locked")
_FULL: Final = "database or disk is full"
_DAMAGED: Final = ("file is not a database", "malformed")
_FORBIDDEN: Final = ("readonly database", "unable to open database file", "access permission denied", "not authorized")
_FAILED: Final = "disk i/o error"


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else's lock is in the way for the moment."""
    return _says(error, *_BUSY)


def is_missing_table(error: sqlite3.Error) -> bool:
    """Whether an SQL table is not there (any more)."""
    return _says(error, "no such table")


def busy(path: str, seconds: float) -> StoreError:
    """The error for a file that stayed locked for the whole ``busy_timeout``."""
    return StoreNotAppliedError(
        f"another process or thread has kept {path} locked for {seconds:g} s; nothing was written. Try again, or look "
        "for a process that is stopped in the middle of a call."
    )


def locked() -> sqlite3.OperationalError:
    """What SQLite raises when another's lock is in the way: the call is made again."""
    return sqlite3.OperationalError(_BUSY[0])


def replaced(path: str, lost: str | None) -> StoreUnusableError:
    """The error for every call after a file of an open database was found to be deleted or replaced."""
    return StoreUnusableError(
        f"{lost or path} was deleted or replaced while this process had the database {path} open; nothing more is "
        "read or written through this object, and commits that were acknowledged shortly before may be missing. Close "
        "every repository of this process that uses the database (or end the process), open it again, and run "
        "`hbasemk check`."
    )


def replaced_meanwhile(path: str, lost: str | None) -> StoreUnknownError:
    """The error for the write in which that was found."""
    return StoreUnknownError(
        f"{lost or path} was deleted or replaced while this process wrote to the database {path}; whether the write is "
        "in the database that others see is not known. Close every repository of this process that uses the database, "
        "open it again, and run `hbasemk check`."
    )


def translate(error: sqlite3.Error, path: str, *, committing: bool) -> StoreError:
    """The kind of store error that an error of SQLite is; ``committing``: it came from a write's COMMIT."""
    text = str(error)
    if _says(error, _FULL):
        return StoreNotAppliedError(f"there is no room to write to {path} ({text}); nothing was written. Free some.")
    if _says(error, *_DAMAGED):
        return FormatError(f"{path} is no SQLite database or is damaged ({text}); restore it from a copy")
    if _says(error, *_FORBIDDEN):
        return StoreUnusableError(
            f"{path} cannot be opened or written ({text}); check that its folder exists, and that this user may write "
            "to the file and to the folder"
        )
    if committing:
        return StoreUnknownError(
            f"writing to {path} failed at its very end ({text}); whether it was applied is not known. Check the disk."
        )
    if _says(error, _FAILED):
        return StoreNotAppliedError(f"reading or writing {path} failed ({text}); nothing was written. Check the disk.")
    return StoreUnusableError(f"{path} cannot be used ({type(error).__name__}: {text})")


def _says(error: sqlite3.Error, *parts: str) -> bool:
    # The texts are those of SQLite's result codes, which Python tells only from 3.11 on.
    low = str(error).lower()
    return any(part in low for part in parts)
