"""The cell ``used`` of a blob: its timestamp says when a writer last used the blob, its value whether it is doomed.

A writer that finds a blob renews the cell. A collector first dooms the blob. Both do so by compare-and-set, so only one of
them succeeds, and each value is different.
"""

from __future__ import annotations

from typing import Final

from hbasemk.format import schema
from hbasemk.store.abc import Column

USED: Final[Column] = (schema.DATA, b"used")
NONCE_BYTES: Final = 8
_ALIVE: Final = b"\x01"
_DOOMED: Final = b"\x02"


def alive(nonce: bytes) -> bytes:
    """Return the value with which a writer uses a blob."""
    return _ALIVE + nonce


def doomed(nonce: bytes) -> bytes:
    """Return the value with which a collector announces that it deletes a blob."""
    return _DOOMED + nonce


def is_doomed(value: bytes | None) -> bool:
    """Return whether a collector is about to delete the blob; None: the cell does not exist."""
    return value is not None and value[:1] == _DOOMED


def is_value(value: bytes) -> bool:
    """Return whether these bytes can be the cell."""
    return len(value) == 1 + NONCE_BYTES and value[:1] in (_ALIVE, _DOOMED)
