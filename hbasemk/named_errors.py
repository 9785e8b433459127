"""Errors of files that name the file."""

from __future__ import annotations

import os


def naming(error: OSError, path: str | bytes | os.PathLike[str]) -> OSError:
    """Return the same error about ``path``. Errors of an open file name none, and others a temporary file."""
    if error.errno is None:
        return error
    return OSError(error.errno, error.strerror, os.fsdecode(path))
