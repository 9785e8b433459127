"""A revision's message as the value of a cell, which cannot be empty: one that is nothing but NULs gets one more."""

from __future__ import annotations

from typing import Final

from hbasemk.kernel import paths

_NUL: Final = b"\x00"


def encode(message: str) -> bytes:
    """The stored bytes of a message."""
    data = paths.encode(message)
    return data if data.strip(_NUL) else data + _NUL


def decode(data: bytes) -> str:
    """The inverse of :func:`encode`; of no bytes, none."""
    return paths.decode(data if data.strip(_NUL) else data[1:])
