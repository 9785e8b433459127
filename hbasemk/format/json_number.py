"""JSON numbers that keep their spelling."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from hbasemk.errors import InvalidValueError, LimitError
from hbasemk.format import limits

NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
"""A number in the grammar of JSON (RFC 8259), as a regular expression."""

_is_number: Final = re.compile(NUMBER).fullmatch
_ALWAYS: Final = 640
"""Python converts texts of up to this many digits to ``int``, whatever the value of ``sys.set_int_max_str_digits``."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number with its spelling: ``Number("1.10")`` and ``Number("1.1")`` are different.

    ``int()`` and ``float()`` convert it. ``int`` drops a fraction, and raises OverflowError beyond the range of a float
    unless the spelling has only digits. ``float`` rounds, and is infinite beyond its range. Raises InvalidValueError for
    a text that is not a JSON number, and LimitError for a number with more than 4300 characters.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or _is_number(self.text) is None:
            raise InvalidValueError(f"{limits.shown(self.text)} is not a JSON number; expected text such as '-1.5e3'")
        if limits.is_long_number(self.text):
            raise LimitError(long_number(self.text))

    def __int__(self) -> int:
        return _to_int(self.text) if self.text.lstrip("-").isdigit() else int(float(self.text))

    def __float__(self) -> float:
        return float(self.text)

    @property
    def exact(self) -> int | float | None:
        """The ``int`` or ``float`` whose text has exactly this spelling; None if there is none (``1.10``, ``1e3``)."""
        if self.text.lstrip("-").isdigit():
            # This is the only integer in the JSON grammar that Python spells differently.
            return None if self.text == "-0" else _to_int(self.text)
        real = float(self.text)
        return real if math.isfinite(real) and repr(real) == self.text else None


def number_of(text: str) -> int | float | None:
    """Return the number that a JSON text spells: an ``int`` if it has only digits, else a ``float``, infinite beyond its range.

    None for any other text. An earlier version can have stored such a text, and numbers beyond the limit.
    """
    if _is_number(text) is None:
        return None
    return _to_int(text) if text.lstrip("-").isdigit() else float(text)


def _to_int(text: str) -> int:
    return int(text) if len(text) <= _ALWAYS else int(Decimal(text))


def long_number(text: str) -> str:
    """Return the error message for a number whose text exceeds the limit."""
    return (
        f"the number {text[:20]}… has {len(text)} characters; at most {limits.MAX_DIGITS} are possible. Store longer "
        "numbers as strings."
    )
