"""All limits of hbasemk, and the function that shows values of any size in error messages.

Parsers check these limits while they read, before they build anything from the oversized part. The limits apply to
writes. Data that an earlier version stored beyond them stays readable.
"""

from __future__ import annotations

import reprlib
from typing import Final

from hbasemk.errors import LimitError
from hbasemk.store.abc import Limits

MAX_DEPTH: Final = 1000
"""The deepest level below the root for a new node. The paths of a chain of nodes have quadratic total size."""
MAX_PATH: Final = Limits().row_key - 2
"""Bytes of a path in UTF-8. Its row key has two more."""
MAX_NAME: Final = MAX_PATH - 1
"""Bytes of a name in UTF-8."""
MAX_PATHS: Final = 128 * 1024 * 1024
"""Bytes of the paths of all nodes that one commit adds, and of all relative paths in a change text. Without this limit,
a few characters of text below a long path would take 32 KiB."""
MAX_CHANGES: Final = 64 * 1024 * 1024
"""Bytes of the compressed changes of one commit in the journal: millions of nodes, or about a million random names."""
MAX_DIGITS: Final = 4300
"""Digits of an integer, and characters of a JSON number, without the sign. This is Python's own default limit, because
the conversion takes quadratic time."""
MAX_VALUE: Final = Limits().cell
"""Bytes of a stored property value."""
MAX_MESSAGE: Final = 64 * 1024
"""Bytes of a commit message in UTF-8. Every poll of every process reads it."""
MAX_FILTER: Final = 64 * 1024
"""Characters of a filter of ``get_nodes``."""
MAX_GLOBS: Final = 1000
"""Globs in one list of a ``get_nodes`` filter. Each name is compared with each glob."""

_BEYOND: Final = 10**MAX_DIGITS
_LONGEST_SHOWN: Final = 80
_LONGEST_PATH_SHOWN: Final = 200
_SHOWN_BITS: Final = 256


class _Short(reprlib.Repr):
    """A ``repr`` that is bounded in time and length: it converts no huge int and follows no deep list."""

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
"""Return a value as text for an error message, in at most a few hundred characters."""


def shortened(text: str) -> str:
    """Return a path, or another text that is shown as it is, for an error message; a long one without its middle."""
    if len(text) <= _LONGEST_PATH_SHOWN:
        return text
    part = _LONGEST_PATH_SHOWN // 2 - 10
    return f"{text[:part]}…{text[-part:]} ({len(text)} characters)"


def is_long_int(value: int) -> bool:
    """Return whether an integer has more than :data:`MAX_DIGITS` digits, in constant time."""
    return not -_BEYOND < value < _BEYOND


def is_long_number(text: str) -> bool:
    """Return whether the text of a number has more than :data:`MAX_DIGITS` characters, not counting the sign."""
    return len(text) - text.startswith("-") > MAX_DIGITS


def size(text: str) -> int:
    """Return the size of a name or path in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def check_message(message: str) -> str:
    """Return a commit message if it is valid; otherwise raise TypeError or LimitError."""
    if not isinstance(message, str):
        raise TypeError(f"message must be a str, got {type(message).__name__} {shown(message)}")
    if len(message) * 4 > MAX_MESSAGE and size(message) > MAX_MESSAGE:
        raise LimitError(
            f"the message {shown(message)} has {size(message)} bytes; at most {MAX_MESSAGE} are possible. Store long texts "
            "in a property or a blob."
        )
    return message
