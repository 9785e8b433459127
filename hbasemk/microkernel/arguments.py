"""Checks of arguments: one of the wrong type or size is told by its name, before anything is done.

The interface was made in a language whose compiler sees to that; numbers are its 64-bit ones.
"""

from __future__ import annotations

from typing import Any, Final

from hbasemk.errors import InvalidRevisionError
from hbasemk.format import limits, revisions

LEAST: Final = -(2**63)
MOST: Final = 2**63 - 1


def text(value: object, name: str) -> str:
    """The value, which must be a string; raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {_kind(value)}")
    return value


def text_or_none(value: object, name: str) -> str | None:
    """The value, which must be a string or None; raises TypeError."""
    return None if value is None else text(value, name)


def note_of(message: object) -> str:
    """The message of a commit, none for None; raises TypeError and LimitError."""
    return limits.check_message(text_or_none(message, "message") or "")


def revision_of(value: str, name: str) -> int:
    """The id of the value, which must be a revision in text form; raises InvalidRevisionError naming the argument."""
    try:
        return revisions.from_text(value)
    except InvalidRevisionError as error:
        raise InvalidRevisionError(f"{name}: {error.message}") from None


def whole(value: object, name: str) -> int:
    """The value, which must be a whole number of 64 bits; raises TypeError and ValueError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {_kind(value)}")
    if not LEAST <= value <= MOST:
        raise ValueError(f"{name} of {value.bit_length()} bits is out of range: it must be from {LEAST} to {MOST}")
    return value


def stream(value: Any, name: str) -> None:
    """Raises TypeError unless the value can be read from."""
    if not callable(getattr(value, "read", None)):
        raise TypeError(f"{name} must be a binary stream with a method read, not {_kind(value)}")


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
