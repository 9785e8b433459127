"""Locks of an *open file description*: they end when that description is closed, not when the process closes any other.

So they survive what the rest of the process does with the file, unlike the POSIX locks of SQLite (decision 18).
"""

from __future__ import annotations

import errno
import functools
import logging
import os
import struct
import sys
from typing import Final

from hbasemk.store.sqlite import errors

if sys.platform != "win32":
    import fcntl

_log = logging.getLogger("hbasemk")

_set_lock: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform != "win32" else None
_get_lock: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None) if sys.platform != "win32" else None
_BUSY: Final = (errno.EAGAIN, errno.EACCES)
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@functools.lru_cache(maxsize=64)
def _request(kind: int, start: int, length: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)


def lock(descriptor: int | None, kind: int, start: int, length: int) -> bool:
    """Set or release a lock; return False if another lock blocks it."""
    assert _set_lock is not None
    assert descriptor is not None
    try:
        fcntl.fcntl(descriptor, _set_lock, _request(kind, start, length))
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


def unlock(descriptor: int, length: int = 0) -> None:
    """Release the locks of a description on the first bytes of the file; 0: on all bytes."""
    lock(descriptor, fcntl.F_UNLCK, 0, length)


def is_locked_elsewhere(descriptor: int, start: int, length: int) -> bool:
    """Return whether another description holds any lock in a range of bytes."""
    if _get_lock is None or not length:
        return False
    found = fcntl.fcntl(descriptor, _get_lock, _request(fcntl.F_WRLCK, start, length))
    kind: int = struct.unpack_from("h", found)[0]
    return kind != fcntl.F_UNLCK


def lock_if_supported(path: str, descriptor: int, kind: int, start: int, length: int) -> bool:
    """Lock the file at ``path``; return False if such locks are unsupported.

    Raises SQLite's busy error if another lock blocks it.
    """
    if _set_lock is None:
        return False
    try:
        if not lock(descriptor, kind, start, length):
            raise errors.locked()
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _log.debug("%s: the file system does not support locks of open file descriptions (%s)", path, error)
        return False
    return True
