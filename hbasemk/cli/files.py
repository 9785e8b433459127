"""Files and folders on disk as parameters of commands, and standard input in the place of a file."""

from __future__ import annotations

import sys
from typing import Any, BinaryIO, Final

import click

STREAM: Final = "-"
"""The argument that names standard input or output; ``./-`` names a file."""


class DiskPath(click.Path):
    """The path of a file or folder, as it was given. An empty text, as of a variable that is not set, is a usage error.

    So is the path of a folder, such as ``x/``, where a file is expected.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("expected a path, got an empty text; use . for the current folder", param, ctx)
        if not self.dir_okay:
            require_file_name(str(value))
        return str(super().convert(value, param, ctx))


def require_file_name(path: str) -> None:
    """Raise a usage error for a path that can only name a folder."""
    if path.endswith(("/", "/.", "/..")) or path in (".", ".."):
        raise click.UsageError(
            f"expected a file, got {path!r}, which names a folder; leave out what follows the last name"
        )


class NamedReader:
    """A binary stream to read whose errors name it; those of reads name no file by themselves."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def read(self, size: int = -1) -> bytes:
        """Read as the stream does; raise OSError that names it."""
        try:
            return self._stream.read(size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from error


def standard_input(expected: str, otherwise: str = "a file as the argument") -> BinaryIO:
    """Return the bytes of standard input. If it is closed, raise a usage error: expected this there, or otherwise that."""
    if sys.stdin is None:
        raise click.UsageError(f"standard input is closed; expected {expected} there, or {otherwise}")
    return sys.stdin.buffer
