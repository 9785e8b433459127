"""The first cells of a journal row: two flags that say "no", the writer's nonce, the base and the message.

A cell cannot be empty, so a message that is empty or consists only of NULs is stored with one more NUL.
"""

from __future__ import annotations

from typing import Final

from hbasemk.format import limits, paths, schema
from hbasemk.store.abc import NewCell

_NUL: Final = b"\x00"


def begin(nonce: bytes, base: int, message: str) -> list[NewCell]:
    """Return the cells of the row of every new revision, on trunk and on branches."""
    return [
        NewCell(*schema.COMMITTED, schema.NO),
        NewCell(*schema.ABORT, schema.NO),
        NewCell(*schema.NONCE, nonce),
        NewCell(*schema.BASE, schema.revision_key(base)),
        NewCell(*schema.MESSAGE, encode_message(message)),
    ]


def encode_message(message: str) -> bytes:
    """Return the stored bytes of a message."""
    data = paths.encode(limits.check_message(message))
    return data if data.strip(_NUL) else data + _NUL


def decode_message(data: bytes) -> str:
    """Decode the bytes of :func:`encode_message`; no bytes give an empty message."""
    return paths.decode(data if data.strip(_NUL) else data[1:])
