"""Checks of numeric options before a store is opened.

Otherwise a value out of range would fail much later, in a background thread.
"""

from __future__ import annotations

from typing import Final

from hbasemk.errors import InvalidValueError
from hbasemk.format.limits import shown

LONGEST: Final = 1_000_000.0
"""The longest wait in seconds. Clocks, locks and sockets of all operating systems accept it."""
CENTURY: Final = 100 * 366 * 86_400
"""The longest age in seconds."""


def seconds(
    name: str, value: float, *, above_zero: bool = False, most: float = LONGEST, endless: bool = False
) -> float:
    """Return the value if it is a number of seconds from 0 (or above 0) to ``most``; ``endless`` allows infinity.

    Raises InvalidValueError naming the option.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        enough = value > 0 if above_zero else value >= 0
        if enough and (value <= most or (endless and not (isinstance(value, int) and value >= 2**63))):
            return value
    least = "more than 0" if above_zero else "at least 0"
    limit = "" if endless else f" and at most {most:,.0f}"
    raise InvalidValueError(f"{name} must be a number of seconds, {least}{limit}, got {shown(value)}")


def count(name: str, value: int, *, least: int = 0) -> int:
    """Return the value if it is an integer of at least ``least``. Raises InvalidValueError naming the option."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise InvalidValueError(f"{name} must be an int of at least {least}, got {shown(value)}")
