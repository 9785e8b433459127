"""The files of one SQLite database: their names, their identities, and who may write them.

To close any descriptor of such a file drops all POSIX locks that the process holds on it, those of SQLite's
connections too. So a process that has the database open must look at these files with ``stat`` only; nothing here but
:func:`replace_foreign` opens a file.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from typing import Final

from hbasemk.store.abc import FileIdentity

_log = logging.getLogger("hbasemk")

LOG: Final = "-wal"
INDEX: Final = "-shm"
JOURNAL: Final = "-journal"
SUFFIXES: Final = ("", LOG, INDEX, JOURNAL)
"""The database itself, the write-ahead log, its index in shared memory, and the journal of a database without a log."""


def real_path(path: str) -> str:
    """The path without symbolic links: SQLite puts the other files beside the file that a link points to."""
    return os.path.realpath(path)


def identity(path: str) -> FileIdentity | None:
    """Device and inode of a file, or None where there is none. Raises OSError when that cannot be found out."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def may(path: str, how: int) -> bool:
    """Whether this process's user may do something with a file, as ``os.access``; follows links."""
    return os.access(path, how, effective_ids=os.access in os.supports_effective_ids)


def described(path: str) -> str:
    """A path with its owner and mode, for messages."""
    try:
        found = os.stat(path)
    except OSError as error:
        return f"{path} ({error.strerror})"
    return f"{path} (owner {_user(found.st_uid)}, group {found.st_gid}, mode {found.st_mode & 0o7777:04o})"


def me() -> str:
    """This process's user, for messages."""
    return _user(os.geteuid()) if hasattr(os, "geteuid") else "this user"


def _user(number: int) -> str:
    try:
        import pwd

        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except (ImportError, KeyError):
        return str(number)


def read_only_because(path: str) -> str | None:
    """Why this process's user cannot write to the database at ``path`` and could at most read it; None: it can."""
    if not may(path, os.W_OK):
        return f"user {me()} may not write to {described(path)}"
    missing = [suffix for suffix in (LOG, INDEX) if not os.path.exists(path + suffix)]
    folder = os.path.dirname(path)
    if missing and not may(folder, os.W_OK | os.X_OK):
        return f"user {me()} may not create {' and '.join(path + suffix for suffix in missing)} in {described(folder)}"
    return None


def foreign(path: str) -> list[str]:
    """The log and the index, if they exist and this user may not read and write them."""
    found = [path + suffix for suffix in (LOG, INDEX)]
    return [name for name in found if os.path.exists(name) and not may(name, os.R_OK | os.W_OK)]


def share_with_group(path: str) -> None:
    """Give the log and the index, if this user's process created them, the group of the database that its group may write."""
    main = os.stat(path)
    if not main.st_mode & 0o020:
        return
    for suffix in (LOG, INDEX):
        found = os.stat(path + suffix)
        if found.st_uid == os.geteuid() and found.st_gid != main.st_gid:
            try:
                os.chown(path + suffix, -1, main.st_gid)
            except PermissionError as error:
                _log.warning(
                    "%s%s cannot have the group %s of the database, so that others of the group cannot write (%s); set the "
                    "folder's set-group-id bit",
                    path,
                    suffix,
                    main.st_gid,
                    error,
                )


def replace_foreign(path: str) -> None:
    """Put files of this user in the place of a log and an index that it may not write. Only while nobody uses the database.

    The log may hold commits, so it is copied; SQLite makes the index anew. Raises OSError.
    """
    for name in foreign(path):
        if name.endswith(LOG) and os.path.getsize(name):
            copy = f"{name}.{os.getpid()}"
            try:
                shutil.copyfile(name, copy)
                shutil.copymode(path, copy)
                with open(copy, "rb") as written:
                    os.fsync(written.fileno())
                os.replace(copy, name)
            except BaseException:
                if os.path.exists(copy):
                    os.unlink(copy)
                raise
        else:
            os.unlink(name)


def names(path: str) -> Iterator[str]:
    """The paths that the files of the database at ``path`` have, whether they exist or not."""
    base = real_path(path)
    for suffix in SUFFIXES:
        yield base + suffix


def identities(path: str) -> dict[FileIdentity, str]:
    """Device and inode of those files that exist, with their paths."""
    found: dict[FileIdentity, str] = {}
    for name in names(path):
        which = identity(name)
        if which is not None:
            found[which] = name
    return found
