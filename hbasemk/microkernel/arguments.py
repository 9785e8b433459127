"""Checks of arguments: an error names the argument of the wrong type or size before the call does anything.

The interface comes from Java, whose compiler makes these checks. Integers have 64 bits as there.
"""

from __future__ import annotations

from typing import Any, Final

from hbasemk.errors import InvalidRevisionError, InvalidValueError
from hbasemk.format import limits, paths, revisions

LEAST: Final = -(2**63)
MOST: Final = 2**63 - 1


def text(value: object, name: str) -> str:
    """Return the value if it is a string; raise TypeError otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {_kind(value)}")
    return paths.plain(value)


def text_or_none(value: object, name: str) -> str | None:
    """Return the value if it is a string or None; raise TypeError otherwise."""
    return None if value is None else text(value, name)


def note_of(message: object) -> str:
    """Return a commit message, empty for None; raise TypeError or LimitError for an invalid one."""
    return limits.check_message(text_or_none(message, "message") or "")


def revision_of(value: str, name: str) -> int:
    """Parse a revision id; raise InvalidRevisionError that names the argument."""
    try:
        return revisions.from_text(value)
    except InvalidRevisionError as error:
        raise InvalidRevisionError(f"{name}: {error.message}") from None


def whole(value: object, name: str) -> int:
    """Return the value if it is a 64-bit integer; raise TypeError or InvalidValueError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {_kind(value)}")
    if not LEAST <= value <= MOST:
        raise InvalidValueError(
            f"{name} of {value.bit_length()} bits is out of range; expected an integer from {LEAST} to {MOST}"
        )
    return value


def stream(value: Any, name: str) -> None:
    """Raise TypeError unless the value has a method ``read``."""
    if not callable(getattr(value, "read", None)):
        raise TypeError(f"{name} must be a binary stream with a method read, not {_kind(value)}")


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
