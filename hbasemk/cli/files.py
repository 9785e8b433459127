"""Files and folders on disk as parameters of commands, and standard input in the place of a file."""

from __future__ import annotations

import sys
from typing import Any, BinaryIO, Final

import click

STREAM: Final = "-"
"""The argument that names standard input or output; ``./-`` names a file."""


class DiskPath(click.Path):
    """The path of a file or folder, as it was given. An empty text, as of a variable that is not set, is a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("expected a path, got an empty text; use . for the current folder", param, ctx)
        return str(super().convert(value, param, ctx))


def standard_input(expected: str, otherwise: str = "a file as the argument") -> BinaryIO:
    """Return the bytes of standard input. If it is closed, raise a usage error: expected this there, or otherwise that."""
    if sys.stdin is None:
        raise click.UsageError(f"standard input is closed; expected {expected} there, or {otherwise}")
    return sys.stdin.buffer
