"""The files that this process's connections to one database have open, and how it detects their replacement."""

from __future__ import annotations

import itertools
import os
from typing import Final

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import FileIdentity
from hbasemk.store.sqlite import errors, files

CHECK_EVERY: float = 1.0
"""Seconds after which a read checks the files again; a write always checks them."""
USED: Final = ("", files.LOG, files.INDEX)

_openings = itertools.count(1)
"""Numbers the times at which guards of this process opened a database's files."""


class UsedFiles:
    """The files of the database at ``path`` with this identity, from the first connection to the last."""

    def __init__(self, path: str, identity: FileIdentity) -> None:
        self._path = path
        self._identity = identity
        self._checked_at = 0.0
        self._unchanged = (0, 0)
        self._expected: list[tuple[str, FileIdentity]] = []
        self.opening = 0
        """The number of the latest opening of the files; never repeated in this process."""
        self.lost: str | None = None
        """The path of a file that was replaced or deleted; no connection may be used after that."""

    # --- recording -------------------------------------------------------------------------------------------

    @property
    def has_log(self) -> bool:
        """Whether the log and its index are recorded."""
        return len(self._expected) == len(USED)

    @property
    def log(self) -> FileIdentity | None:
        """The identity of the log, if it is recorded."""
        expected = self._expected
        return expected[1][1] if len(expected) == len(USED) else None

    def record_without_log(self) -> None:
        """Record the identity and state of a database file without a log."""
        if not self._expected:
            self._expected = [(self._path, self._identity)]
            found = os.stat(self._path)
            self._unchanged = found.st_mtime_ns, found.st_size
            self.opening = next(_openings)

    def find(self) -> list[tuple[str, FileIdentity]]:
        """Return the database, its log and its index, for :meth:`record`; raises SQLite's busy error if one is missing."""
        expected = [(self._path, self._identity)]
        for suffix in (files.LOG, files.INDEX):
            identity = files.identity(self._path + suffix)
            if identity is None:
                raise errors.locked()
            expected.append((self._path + suffix, identity))
        return expected

    def record(self, expected: list[tuple[str, FileIdentity]]) -> None:
        """Record which files the first connection with a log has opened."""
        self.opening = next(_openings)
        self._expected = expected

    def forget(self) -> None:
        """Forget the files after the last connection is closed."""
        self._expected = []
        self.lost = None

    # --- detecting replaced files ------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise StoreUnusableError if a path no longer leads to the file that the connections have open."""
        if self.lost is None:
            for path, identity in self._expected:
                try:
                    found = os.stat(path)
                except (FileNotFoundError, NotADirectoryError):
                    self.lost = path
                    break
                except OSError as error:
                    raise errors.unreachable(path, error) from error
                if found.st_ino != identity[1] or found.st_dev != identity[0]:
                    self.lost = path
                    break
            else:
                return
        raise errors.replaced(self._path, self.lost)

    def is_check_due(self, now: float) -> bool:
        """Return whether :meth:`check_sometimes` would check the files; it always does after a loss."""
        return self.lost is not None or now - self._checked_at >= CHECK_EVERY

    def check_sometimes(self, now: float) -> None:
        """Call :meth:`check` unless it succeeded within the last :data:`CHECK_EVERY` seconds; for reads."""
        if self.is_check_due(now):
            self._checked_at = now
            self.check()

    def check_written(self) -> None:
        """Call :meth:`check` after a write that may be lost; raises StoreUnknownError instead."""
        try:
            self.check()
        except StoreUnusableError as error:
            raise errors.replaced_meanwhile(self._path, self.lost, str(error)) from error

    def is_frozen(self) -> bool:
        """Return whether the database is unchanged since the first connection without a log.

        A writer creates a log before anything else. The log cannot vanish meanwhile: that takes the exclusive lock.
        """
        if os.path.exists(self._path + files.LOG):
            return False
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return (found.st_mtime_ns, found.st_size) == self._unchanged
