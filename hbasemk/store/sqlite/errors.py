"""Translate SQLite's errors into the kinds of store errors: not applied, unknown, or unusable.

A transaction that fails before its COMMIT had no effect. A COMMIT that finds the disk full had no effect either: its
last frame, without which the other frames do not count, was not written. After any other failure of a COMMIT the
outcome is unknown.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from typing import Final

from hbasemk.errors import FormatError, StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError
from hbasemk.store.sqlite import files

_BUSY: Final = ("database is locked", "database table is locked", "locking protocol", "database schema is locked")
_FULL: Final = "database or disk is full"
_NO_DATABASE: Final = "file is not a database"
_DAMAGED: Final = (
    _NO_DATABASE,
    "malformed",
    "could not decode to utf-8",
    "no such column",
    "no column named",
)
"""Errors of a damaged file. All statements are fixed, so a column that does not exist has a damaged name."""
_READ_ONLY: Final = "readonly database"
_NOT_OPENED: Final = "unable to open database file"
_FORBIDDEN: Final = (_READ_ONLY, _NOT_OPENED, "access permission denied", "not authorized")
_FAILED: Final = "disk i/o error"
NEEDED: Final = 8
"""More descriptors than a connection needs: the file, its log and index, and those of the locks."""
_TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process or thread holds a lock at the moment."""
    return _says(error, *_BUSY)


def is_read_only(error: sqlite3.Error) -> bool:
    """Return whether a connection cannot write to a file that it has opened."""
    return _says(error, _READ_ONLY)


def is_not_opened(error: sqlite3.Error) -> bool:
    """Return whether SQLite could not open the file, or a file beside it."""
    return _says(error, _NOT_OPENED)


def is_missing_table(error: sqlite3.Error) -> bool:
    """Return whether an SQL table does not exist (any more)."""
    return _says(error, "no such table")


def busy(path: str, seconds: float) -> StoreError:
    """Return the error for a file that stayed locked for the whole ``busy_timeout``."""
    return StoreNotAppliedError(
        f"another process or thread kept {path} locked for {seconds:g} s; nothing was written. Try again, or look "
        "for a process that is stopped in the middle of a call."
    )


def damaged(path: str, problem: str, **where: object) -> FormatError:
    """Return the error for a file with damage that SQLite does not see; ``where`` has the fields of the error."""
    return FormatError(f"{path} is damaged: {problem}; restore it from a copy", **where)


def locked() -> sqlite3.OperationalError:
    """Return the error that SQLite raises when another lock blocks a call; the pool then repeats the call."""
    return sqlite3.OperationalError(_BUSY[0])


def of_bytes(error: UnicodeDecodeError) -> sqlite3.DatabaseError:
    """Return SQLite's error whose text Python could not decode, because it has a damaged name of the schema."""
    return sqlite3.DatabaseError(error.object.decode(errors="backslashreplace"))


def replaced(path: str, lost: str | None) -> StoreUnusableError:
    """Return the error for every call after a file of an open database was deleted or replaced."""
    return StoreUnusableError(
        f"{lost or path} was deleted or replaced while this process had the database {path} open; this object no longer "
        "reads or writes anything, and recently acknowledged commits may be missing. Close every repository of this "
        "process that uses the database (or end the process), open it again, and run `hbasemk check`."
    )


def other_name(path: str) -> StoreUnusableError:
    """Return the error for a file that is open by another name."""
    found = os.stat(path)
    return StoreUnusableError(
        f"{path} is the same file as a database that is open by another name (it has {found.st_nlink} hard links; its inode is "
        f"{found.st_ino}). Each name has its own log beside it, and the commits in one log are lost for the other name. Use "
        f"the same name everywhere (to find all names: find FOLDER -inum {found.st_ino}), or copy the file."
    )


def unreachable(path: str, error: OSError) -> StoreError:
    """Return the error for a file that the operating system does not let this user open."""
    if error.errno in _TOO_MANY:
        return _too_many_files(path)
    return StoreUnusableError(
        f"{path} cannot be reached or opened ({error.strerror}); check that it is a file, and that user {files.me()} may read "
        "it and the files beside it, and enter its folder"
    )


def _too_many_files(path: str) -> StoreNotAppliedError:
    return StoreNotAppliedError(
        f"{path} cannot be opened, because too many files are open; nothing was written. Close some, or raise the limit "
        "(ulimit -n)."
    )


def _are_too_many_open() -> bool:
    """Return whether the process can open few files or none: SQLite does not say why it could not open one."""
    with contextlib.ExitStack() as opened:
        try:
            for _ in range(NEEDED):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            return error.errno in _TOO_MANY
    return False


def replaced_meanwhile(path: str, lost: str | None, why: str) -> StoreUnknownError:
    """Return the error for the write that discovered the replaced file."""
    if lost is None:
        return StoreUnknownError(f"a write to the database {path} may be lost: {why}")
    return StoreUnknownError(
        f"{lost or path} was deleted or replaced while this process wrote to the database {path}; it is not known whether "
        "the write is in the database that others see. Close every repository of this process that uses the database, "
        "open it again, and run `hbasemk check`."
    )


class ForeignFilesError(StoreUnusableError):
    """Files beside the database belong to another user, perhaps only temporarily."""


def foreign(path: str, names: list[str], error: OSError | None) -> ForeignFilesError:
    """Return the error for a log or an index that this user may not write, and that cannot be replaced."""
    why = f"they cannot be replaced ({error})" if error is not None else "another process has the database open"
    reference = f"--reference={path}"
    return ForeignFilesError(
        f"user {files.me()} may not write to {', '.join(map(files.described, names))}, which belong to the database "
        f"{files.described(path)}; {why}. End the processes that use the database, or run as root: "
        f"chown {reference} {' '.join(names)} && chmod {reference} {' '.join(names)}"
    )


def read_only(path: str, reason: str) -> StoreUnusableError:
    """Return the error for a write to a file that could only be read when it was opened."""
    return StoreUnusableError(
        f"{path} is open for reading only: {reason}; nothing was written. Change that, and open the repository again."
    )


def needs_a_writer(path: str, reason: str, text: str) -> StoreUnusableError:
    """Return the error for a database that this user can read only after another user has completed it."""
    return StoreUnusableError(
        f"{path} cannot be read now without writing to it ({text}), and {reason}. Let a user who may write open the "
        "repository once (`hbasemk status`), and try again."
    )


def translate(error: sqlite3.Error, path: str, *, committing: bool) -> StoreError:
    """Translate an error of SQLite into a store error; ``committing``: a write's COMMIT raised it."""
    text = str(error)
    lacks = files.lacking(path)
    if _says(error, _FULL) or (not committing and files.SPACE in lacks and _says(error, _FAILED)):
        return StoreNotAppliedError(
            f"no space is left to write to {path} ({text}); nothing was written. Free some space."
        )
    if lacks and not committing and is_not_opened(error):
        return StoreNotAppliedError(
            f"no file can be created beside {path} ({text}): its file system has {' and '.join(lacks)} left; nothing was "
            "written. Remove some files."
        )
    if _says(error, *_DAMAGED):
        # The URL may name a file that must not be moved.
        end = "Check the URL; if it names the right file, end" if _says(error, _NO_DATABASE) else "End"
        return FormatError(
            f"{path} is not a SQLite database or is damaged ({text}). {end} all processes that use it, move it and its -wal "
            "and -shm away, and then restore it from a copy: beside the log of another file, the copy is damaged too"
        )
    if is_not_opened(error) and not committing and _are_too_many_open():
        return _too_many_files(path)
    if _says(error, *_FORBIDDEN):
        return StoreUnusableError(
            f"{path} cannot be opened or written ({text}); check that its folder exists, and that this user may write "
            "to the file and to the folder"
        )
    if committing:
        advice = "Free some space" if files.SPACE in lacks else "Check the disk"
        return StoreUnknownError(
            f"the commit to {path} failed ({text}); it is not known whether it was applied. {advice}."
        )
    if _says(error, _FAILED):
        return StoreNotAppliedError(f"reading or writing {path} failed ({text}); nothing was written. Check the disk.")
    return StoreUnusableError(f"{path} cannot be used ({type(error).__name__}: {text})")


def _says(error: sqlite3.Error, *parts: str) -> bool:
    # The texts belong to SQLite's result codes, which Python provides only from 3.11 on.
    low = str(error).lower()
    return any(part in low for part in parts)
