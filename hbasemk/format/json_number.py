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
"""Python converts texts of so many digits to ``int`` whatever ``sys.set_int_max_str_digits`` says."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was spelled: ``Number("1.10")`` and ``Number("1.1")`` are different.

    ``int()`` and ``float()`` work on it as they do on the number: ``int`` cuts off a fraction, and raises OverflowError
    beyond the range of a float unless the spelling has digits only; ``float`` rounds, and is infinite beyond its range.
    Raises InvalidValueError for a text that is no JSON number, and LimitError for one of more than 4300 characters.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or _is_number(self.text) is None:
            raise InvalidValueError(f"{limits.shown(self.text)} is no JSON number")
        if limits.is_long_number(self.text):
            raise LimitError(long_number(self.text))

    def __int__(self) -> int:
        return _to_int(self.text) if self.text.lstrip("-").isdigit() else int(float(self.text))

    def __float__(self) -> float:
        return float(self.text)

    @property
    def exact(self) -> int | float | None:
        """The ``int`` or ``float`` that is written with exactly this spelling; None if none is (``1.10``, ``1e3``)."""
        if self.text.lstrip("-").isdigit():
            # Of the spellings that the grammar has for an integer, only this one is not how Python writes it.
            return None if self.text == "-0" else _to_int(self.text)
        real = float(self.text)
        return real if math.isfinite(real) and repr(real) == self.text else None


def _to_int(text: str) -> int:
    return int(text) if len(text) <= _ALWAYS else int(Decimal(text))


def long_number(text: str) -> str:
    """What is wrong with the text of a number beyond the limit."""
    return (
        f"the number {text[:20]}… has {len(text)} characters; at most {limits.MAX_DIGITS} are possible. Keep longer ones as "
        "strings."
    )
