"""How a journal row begins: undecided, with a nonce that tells whose it is, what it is built on, and its message.

A cell cannot be empty, so a message that is nothing but NULs gets one more.
"""

from __future__ import annotations

from typing import Final

from hbasemk.format import limits, paths, schema
from hbasemk.store.abc import NewCell

_NUL: Final = b"\x00"


def begin(nonce: bytes, base: int, message: str) -> list[NewCell]:
    """The cells that the row of every new revision has, on trunk and on branches."""
    return [
        NewCell(*schema.COMMITTED, schema.NO),
        NewCell(*schema.ABORT, schema.NO),
        NewCell(*schema.NONCE, nonce),
        NewCell(*schema.BASE, schema.revision_key(base)),
        NewCell(*schema.MESSAGE, encode_message(message)),
    ]


def encode_message(message: str) -> bytes:
    """The stored bytes of a message."""
    data = paths.encode(limits.check_message(message))
    return data if data.strip(_NUL) else data + _NUL


def decode_message(data: bytes) -> str:
    """The inverse of :func:`encode_message`; of no bytes, none."""
    return paths.decode(data if data.strip(_NUL) else data[1:])
