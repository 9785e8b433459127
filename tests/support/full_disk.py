"""A disk that has no space left, or none for a large file."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

import pytest

from hbasemk.blobs import RepositoryBlobs


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse to make a file larger than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def no_space() -> Iterator[None]:
    """Let an export find the disk full when it has begun to write a file whose content is a blob."""

    def stream(*_: object) -> Iterator[bytes]:
        yield b"x"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RepositoryBlobs, "stream", stream)
        yield
