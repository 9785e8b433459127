"""What hbasemk accepts at most, in one place, and how an error message shows a value of any size.

Readers of text check these limits while they read, before they build anything from the part that is too large. The
limits hold for what is written. What an earlier version stored beyond them stays readable.
"""

from __future__ import annotations

import reprlib
from typing import Final

from hbasemk.errors import LimitError
from hbasemk.store.abc import Limits

MAX_DEPTH: Final = 1000
"""Levels below the root that a new node may be at: a chain of nodes has paths of quadratic size in all."""
MAX_PATH: Final = Limits().row_key - 2
"""Bytes of a path in UTF-8; its row key has two more."""
MAX_NAME: Final = MAX_PATH - 1
"""Bytes of a name in UTF-8."""
MAX_PATHS: Final = 128 * 1024 * 1024
"""Bytes of the paths of all nodes that one commit adds, and of all relative paths in a change text: below a long path,
each few characters of a text would else take 32 KiB."""
MAX_CHANGES: Final = 64 * 1024 * 1024
"""Bytes that the journal may keep of one commit, deflated: some millions of nodes, about a million of random names."""
MAX_DIGITS: Final = 4300
"""Digits of an integer, and characters of a JSON number, without the sign: as many as Python converts by itself, because
that takes quadratic time."""
MAX_VALUE: Final = Limits().cell
"""Bytes of a stored property value."""
MAX_MESSAGE: Final = 64 * 1024
"""Bytes of a commit's message in UTF-8; every poll of every process reads it."""
MAX_FILTER: Final = 64 * 1024
"""Characters of a filter of ``get_nodes``."""
MAX_GLOBS: Final = 1000
"""Globs of one list in a filter of ``get_nodes``; each name is compared with each of them."""

_BEYOND: Final = 10**MAX_DIGITS
_LONGEST_SHOWN: Final = 80
_SHOWN_BITS: Final = 256


class _Short(reprlib.Repr):
    """Like ``repr``, but bounded in time and length: no huge int is converted, no deep list followed."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = _LONGEST_SHOWN

    def repr_str(self, x: str, level: int) -> str:  # noqa: ARG002
        return repr(x) if len(x) <= _LONGEST_SHOWN else f"{x[: _LONGEST_SHOWN - 20]!r}… ({len(x)} characters)"

    def repr_bytes(self, x: bytes, level: int) -> str:  # noqa: ARG002
        return repr(x) if len(x) <= _LONGEST_SHOWN else f"{x[: _LONGEST_SHOWN - 20]!r}… ({len(x)} bytes)"

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002
        return repr(x) if x.bit_length() <= _SHOWN_BITS else f"an int of {x.bit_length()} bits"


shown: Final = _Short().repr
"""The value for an error message, in some hundred characters at most."""


def is_long_int(value: int) -> bool:
    """Whether an integer has more than :data:`MAX_DIGITS` digits. Takes no time that grows with it."""
    return not -_BEYOND < value < _BEYOND


def is_long_number(text: str) -> bool:
    """Whether the text of a number has more than :data:`MAX_DIGITS` characters, its sign aside."""
    return len(text) - text.startswith("-") > MAX_DIGITS


def size(text: str) -> int:
    """How many bytes a name or path has."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def check_message(message: str) -> str:
    """The message of a commit itself; raises TypeError and LimitError."""
    if not isinstance(message, str):
        raise TypeError(f"message must be a str, got {type(message).__name__} {shown(message)}")
    if len(message) > MAX_MESSAGE or size(message) > MAX_MESSAGE:
        raise LimitError(
            f"the message {shown(message)} has {size(message)} bytes; at most {MAX_MESSAGE} are possible. Keep long texts in a "
            "property or a blob."
        )
    return message
