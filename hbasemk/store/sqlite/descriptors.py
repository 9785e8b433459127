"""This process's own descriptors of database files: closing one drops the POSIX locks of every user of the file.

So a descriptor is closed only while nothing else in this process has its file open. Until then it stays parked, without
locks, and serves the next user of the file (decision 18).
"""

from __future__ import annotations

import os
import sys
import threading

from hbasemk.store.abc import FileIdentity
from hbasemk.store.sqlite import errors

if sys.platform != "win32":
    import fcntl

_lock = threading.Lock()
_parked: list[int] = []
"""Descriptors without locks that must stay open, because other users of the file in this process may hold locks."""


def open_file(path: str, flags: int, identity: FileIdentity) -> int:
    """Return a descriptor of the file at a path; raises SQLite's busy error if the file has another identity."""
    with _lock:
        for descriptor in _parked:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) == identity and _flags(descriptor) == flags:
                _parked.remove(descriptor)
                return descriptor
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != identity:
        close([descriptor])
        raise errors.locked()
    return descriptor


def close(descriptors: list[int]) -> None:
    """Close descriptors, now or later: not while something else in this process may hold locks on their files."""
    with _lock:
        waiting, _parked[:] = [*_parked, *descriptors], []
        for descriptor in waiting:
            found = os.fstat(descriptor)
            if _is_open_elsewhere((found.st_dev, found.st_ino), waiting):
                _parked.append(descriptor)
            else:
                os.close(descriptor)


def is_locked() -> bool:
    """Return whether some thread, perhaps this one, is just opening or closing a descriptor."""
    if not _lock.acquire(blocking=False):
        return True
    _lock.release()
    return False


def after_fork() -> None:
    """Renew the lock in a forked child, where a thread of the parent may hold it."""
    global _lock
    _lock = threading.Lock()


def _is_open_elsewhere(identity: FileIdentity, ours: list[int]) -> bool:
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return False
    for name in names:
        if int(name) in ours:
            continue
        try:
            found = os.stat(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == identity:
            return True
    return False


def _flags(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_RDWR | os.O_RDONLY | os.O_WRONLY)
