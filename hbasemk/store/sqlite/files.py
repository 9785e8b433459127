"""The files of one SQLite database: their names and their identities. Nothing here opens a file.

To close any descriptor of such a file drops all POSIX locks that the process holds on it, those of SQLite's
connections too. So a process that has the database open must look at these files with ``stat`` only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from hbasemk.store.abc import FileIdentity

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
