"""The files of one SQLite database: their names, their identities, and who may write them.

When a process closes any descriptor of such a file, it drops all POSIX locks that it holds on the file, including
those of SQLite's connections. So a process that has the database open must inspect these files with ``stat`` only.
Here only :func:`replace_foreign` opens a file.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import zlib
from typing import Final

from hbasemk.store.abc import FileIdentity

_log = logging.getLogger("hbasemk")

LOG: Final = "-wal"
INDEX: Final = "-shm"
JOURNAL: Final = "-journal"
SUFFIXES: Final = ("", LOG, INDEX, JOURNAL)
"""The database itself, the write-ahead log, its index in shared memory, and the journal of a database without a log."""

SPACE: Final = "no space"
INODES: Final = "no inodes"
LEAST_SPACE: Final = 64 * 1024
"""Bytes that suffice for the first part of the log's index."""

_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def real_path(path: str) -> str:
    """Return the path without symbolic links: SQLite puts the other files beside the target of a link."""
    return os.path.realpath(path)


def identity(path: str) -> FileIdentity | None:
    """Return device and inode of a file, or None if it does not exist; raises OSError if that cannot be determined."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def name_number(path: str) -> int:
    """Return a number below 2**32 for the place of the log beside a path: the file's name and the inode of its folder.

    Hard links of one file have different numbers, and so does a file that is mounted elsewhere without its folder.
    """
    folder, name = os.path.split(path)
    return zlib.crc32(b"%d/%s" % (os.stat(folder).st_ino, os.fsencode(name)))


def other_than_file(path: str) -> str | None:
    """Return what is at a path, with an article, for messages; None if it is a file. Raises OSError."""
    return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))


def may(path: str, how: int) -> bool:
    """Return whether this process's user has an access right, as ``os.access``; follows links."""
    return os.access(path, how, effective_ids=os.access in os.supports_effective_ids)


def described(path: str) -> str:
    """Return a path with its owner and mode, for messages."""
    try:
        found = os.stat(path)
    except OSError as error:
        return f"{path} ({error.strerror})"
    return f"{path} (owner {_user(found.st_uid)}, group {found.st_gid}, mode {found.st_mode & 0o7777:04o})"


def me() -> str:
    """Return this process's user, for messages."""
    return _user(os.geteuid()) if hasattr(os, "geteuid") else "this user"


def _user(number: int) -> str:
    try:
        import pwd

        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except (ImportError, KeyError):
        return str(number)


def read_only_because(path: str) -> str | None:
    """Return why this process's user cannot write to the database at ``path``, or None if it can."""
    if not may(path, os.W_OK):
        if hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY:
            return f"the file system of {path} is mounted read-only"
        return f"user {me()} may not write to {described(path)}"
    missing = [suffix for suffix in (LOG, INDEX) if not os.path.exists(path + suffix)]
    folder = os.path.dirname(path)
    if missing and not may(folder, os.W_OK | os.X_OK):
        return f"user {me()} may not create {' and '.join(path + suffix for suffix in missing)} in {described(folder)}"
    return None


def lacking(path: str) -> list[str]:
    """Return which of :data:`SPACE` and :data:`INODES` is true of the file system of a path, as far as it is known.

    SQLite's errors do not say so when it cannot create or extend the log's index.
    """
    try:
        found = os.statvfs(os.path.dirname(real_path(path)))
    except (AttributeError, OSError):
        return []
    # Some file systems, such as /proc, have no blocks at all, and some do not count inodes.
    space = [SPACE] if found.f_blocks and found.f_bavail * found.f_frsize < LEAST_SPACE else []
    # The log and its index need one each.
    return [*space, INODES] if found.f_files and found.f_favail < 2 else space


def foreign(path: str) -> list[str]:
    """Return the log and the index, as far as they exist and this user may not read and write them."""
    found = [path + suffix for suffix in (LOG, INDEX)]
    return [name for name in found if os.path.exists(name) and not may(name, os.R_OK | os.W_OK)]


def share_with_group(path: str) -> None:
    """Assign the database's group to a log and an index that this user owns, if the group may write to the database."""
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
                    "%s%s cannot be assigned the database's group %s, so other members of the group cannot write (%s); set the "
                    "folder's set-group-id bit",
                    path,
                    suffix,
                    main.st_gid,
                    error,
                )


def replace_foreign(path: str) -> None:
    """Replace a log and an index that this user may not write; only while no process uses the database.

    The log may hold commits, so this copies it; SQLite recreates the index. Raises OSError.
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


class FileList:
    """The existing files of one database. Its path is resolved again only when it leads to another file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._resolved: tuple[FileIdentity, str] | None = None

    def identities(self) -> dict[FileIdentity, str]:
        """Return device and inode of the database's existing files, mapped to their paths."""
        found: dict[FileIdentity, str] = {}
        database = identity(self._path)
        known = self._resolved
        if database is None or known is None or known[0] != database:
            base = real_path(self._path)
            self._resolved = None if database is None else (database, base)
        else:
            base = known[1]
        if database is not None:
            found[database] = base
        for suffix in SUFFIXES[1:]:
            file = identity(base + suffix)
            if file is not None:
                found[file] = base + suffix
        return found
