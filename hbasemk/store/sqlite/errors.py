"""What SQLite's errors mean for the caller: not applied, unknown, or unusable.

A transaction that fails before its COMMIT had no effect. A COMMIT that finds the disk full had none either: its last
frame, without which the others do not count, was not written. After any other failure of a COMMIT nobody knows.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from hbasemk.errors import FormatError, StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError
from hbasemk.store.sqlite import files

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


def unreachable(path: str, error: OSError) -> StoreUnusableError:
    """The error for a file that the operating system does not let this user reach."""
    return StoreUnusableError(
        f"{path} cannot be reached or opened ({error.strerror}); check that it is a file, and that user {files.me()} may read "
        "it and the files beside it, and enter its folder"
    )


def replaced_meanwhile(path: str, lost: str | None, why: str) -> StoreUnknownError:
    """The error for the write in which that was found."""
    if lost is None:
        return StoreUnknownError(f"a write to the database {path} may be lost: {why}")
    return StoreUnknownError(
        f"{lost or path} was deleted or replaced while this process wrote to the database {path}; whether the write is "
        "in the database that others see is not known. Close every repository of this process that uses the database, "
        "open it again, and run `hbasemk check`."
    )


class ForeignFilesError(StoreUnusableError):
    """Files beside the database belong to another user; perhaps only for a moment."""


def foreign(path: str, names: list[str], error: OSError | None) -> ForeignFilesError:
    """The error for a log or an index that this user may not write, and that cannot be replaced."""
    why = f"they cannot be replaced ({error})" if error is not None else "another process has the database open"
    reference = f"--reference={path}"
    return ForeignFilesError(
        f"user {files.me()} may not write to {', '.join(map(files.described, names))}, which belong to the database "
        f"{files.described(path)}; {why}. End the processes that use the database, or run as root: "
        f"chown {reference} {' '.join(names)} && chmod {reference} {' '.join(names)}"
    )


def read_only(path: str, reason: str) -> StoreUnusableError:
    """The error for a write by a user who may only read."""
    return StoreUnusableError(f"{path} is open for reading only: {reason}; nothing was written")


def needs_a_writer(path: str, reason: str, text: str) -> StoreUnusableError:
    """The error for a database that this user could read if another had completed it."""
    return StoreUnusableError(
        f"{path} cannot be read without writing now ({text}), and {reason}. Let a user who may write open the "
        "repository once (`hbasemk status`), and try again."
    )


def is_read_only(error: sqlite3.Error) -> bool:
    """Whether SQLite had to write and could not."""
    return _says(error, "readonly database", "unable to open database file")


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
