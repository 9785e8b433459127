"""The repository's own files, which imports and exports must neither read as content nor replace.

Closing any descriptor of such a file drops all locks of the process on it, including SQLite's, and commits may then get
lost. So these files are recognised by device and inode before they are opened, under any name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import BinaryIO, TypeAlias

from hbasemk.errors import InvalidValueError
from hbasemk.opening import open_store
from hbasemk.store.abc import FileIdentity

OwnFiles: TypeAlias = Callable[[], Mapping[FileIdentity, str]]
"""Returns the files of the repository that exist now; ask again for each file, since SQLite makes and removes them."""

REASON = "is a file of this repository"


def of(url: str) -> OwnFiles:
    """Return the function that lists the local files of the repository at ``url``. Opens nothing.

    Raises InvalidValueError for a URL that cannot be read.
    """
    if url.partition(":")[0].lower() != "sqlite":
        return dict
    return open_store(url)[0].files


def is_own(status: os.stat_result, own: Mapping[FileIdentity, str]) -> bool:
    """Return whether a file is one of these."""
    return (status.st_dev, status.st_ino) in own


def refuse(where: str | os.PathLike[str], url: str, use: str) -> None:
    """Raise InvalidValueError if the path ``where`` leads to a file of the repository at ``url``.

    ``use`` names the intended use. A missing path is accepted: opening it raises the right error.
    """
    try:
        status = os.stat(where)
    except OSError:
        return
    _refuse(os.fspath(where), status, url, use)


def refuse_open(file: BinaryIO, name: str, url: str, use: str) -> None:
    """Raise InvalidValueError if an open file is one of the repository's; an object without a descriptor is not."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return
    _refuse(name, status, url, use)


def open_other(where: str | os.PathLike[str], url: str, use: str) -> BinaryIO:
    """Open a file for reading, but none of the repository's, also in a process that uses the repository.

    Raises InvalidValueError for a file of the repository, and OSError.
    """
    refuse(where, url, use)
    number = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    # If the file was replaced since, it stays open for the life of the process, because closing it drops SQLite's locks.
    _refuse(os.fspath(where), os.fstat(number), url, use)
    return os.fdopen(number, "rb")


def _refuse(name: str, status: os.stat_result, url: str, use: str) -> None:
    found = of(url)().get((status.st_dev, status.st_ino))
    if found is not None:
        raise InvalidValueError(
            f"{name!r} cannot be {use}: it is {found!r}, a file of this repository, and opening it in a process that uses "
            "the repository destroys data. Use another file; to copy a repository, use `sqlite3 FILE '.backup COPY'`."
        )
