"""Changes of numbers: what an increment or an adjust makes of a property, and which ones are rejected."""

from __future__ import annotations

from typing import Final

from hbasemk.errors import InvalidChangeError, LimitError
from hbasemk.format import exact, limits, schema, values
from hbasemk.format.exact import Exact
from hbasemk.format.json_number import number_of
from hbasemk.format.limits import shortened
from hbasemk.format.node import decode_property, encode_property, exact_number
from hbasemk.format.values import Json, Value
from hbasemk.store.abc import Limits

LONGEST_QUALIFIER: Final = Limits().row_key
_LONG: Final = 1700
"""Encoded numbers up to this size have fewer digits than the limit."""
_SMALL: Final = 1 << 63
"""An amount below this one makes an encoded number longer by at most one byte; an absent one gets at most nine."""
_SHORT: Final = 1000
"""A name with fewer characters is not too long to be adjusted: each takes at most 4 bytes."""
_INFINITE: Final = (float("inf"), float("-inf"))


def incremented(path: str, name: str, data: bytes | None, amount: int | float) -> bytes:
    """Return the encoded sum of a property (None: absent, which counts as 0) and an amount.

    A Json number counts as the int or float that it spells; an amount of 0 keeps its spelling. Raises InvalidChangeError if the
    property or the amount is not a number, or the property is a Json number beyond the range of a float. Raises LimitError if
    the sum has too many digits.
    """
    found = 0 if data is None else decode_property(path, name, data)
    if isinstance(found, Json) and data is not None and not amount:
        return data
    current = _plain_number(found)
    if current is None:
        raise InvalidChangeError(
            f"property {limits.shown(name)} of {shortened(path)} cannot be incremented: its value must be a number, got "
            f"{limits.shown(found)}",
            path=path,
        )
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise InvalidChangeError(
            f"property {limits.shown(name)} of {shortened(path)} cannot be incremented by {limits.shown(amount)}: the "
            "amount must be a number",
            path=path,
        )
    try:
        total = current + amount
    except OverflowError:
        what = "the amount" if isinstance(amount, int) else "its value"
        raise InvalidChangeError(
            f"property {limits.shown(name)} of {shortened(path)} cannot be incremented by "
            f"{limits.shown(amount)}: {what} is an integer too large to convert to a float",
            path=path,
        ) from None
    return encode_property(path, name, total)


def _plain_number(value: Value) -> int | float | None:
    """Return a number as an int or float; None for other values, and for a Json number beyond the range of a float."""
    if isinstance(value, Json):
        number = number_of(value.text)
        return None if number in _INFINITE else number
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def adjustment(path: str, name: str, data: bytes | None, by: int | float) -> Exact:
    """Return the exact amount by which a property (None: absent) is adjusted.

    Raises InvalidChangeError if one of them is not a finite number, and LimitError if the name is too long to be adjusted or
    the amount has too many digits.
    """
    is_usual = len(name) < _SHORT and (data is None or exact_number(path, name, data) is not None)
    if is_usual and type(by) is int and -_SMALL < by < _SMALL:
        # Nearly all adjusts.
        return by
    if limits.size(name) + schema.SLOT_HEAD > LONGEST_QUALIFIER:
        raise LimitError(
            f"property {limits.shown(name)} of {shortened(path)} cannot be adjusted: its name has {limits.size(name)} bytes, at "
            f"most {LONGEST_QUALIFIER - schema.SLOT_HEAD} are possible",
            path=path,
            name=name,
        )
    if type(by) is not int and (
        isinstance(by, bool) or not isinstance(by, (int, float)) or by != by or by in _INFINITE
    ):
        raise InvalidChangeError(
            f"property {limits.shown(name)} of {shortened(path)} cannot be adjusted by {limits.shown(by)}: the "
            "amount must be an int or a finite float",
            path=path,
        )
    if data is not None and exact_number(path, name, data) is None:
        found = decode_property(path, name, data)
        raise InvalidChangeError(
            f"property {limits.shown(name)} of {shortened(path)} cannot be adjusted: its value must be a finite number, got the "
            f"{type(found).__name__} {limits.shown(found)}",
            path=path,
        )
    amount = by if isinstance(by, int) else exact.of_number(by)
    if isinstance(amount, int) and limits.is_long_int(amount):
        raise LimitError(
            f"property {limits.shown(name)} of {shortened(path)} cannot be adjusted by {limits.shown(amount)}: the amount has "
            f"more than {limits.MAX_DIGITS} digits, which is the limit",
            path=path,
            name=name,
        )
    return amount


def may_be_long(before: bytes | None, amount: Exact) -> bool:
    """Return whether an encoded number (None: absent) plus an amount may have so many digits that it needs a check."""
    is_short = type(amount) is int and -_SMALL <= amount < _SMALL
    return not is_short or (before is not None and len(before) >= _LONG)


def check_sum(path: str, name: str, before: bytes | None, after: bytes | None) -> None:
    """Raise LimitError if an adjust gives a number with too many digits, and more than it had before.

    Concurrent adjusts may have given it too many. An adjust towards 0 makes it better.
    """
    if after is not None and len(after) > _LONG:
        value = values.decode(after)
        found = None if before is None else values.decode(before)
        # Adjusts that add up to 0 leave a number in its original spelling.
        if (
            isinstance(value, int)
            and limits.is_long_int(value)
            and not (isinstance(found, int) and abs(value) < abs(found))
        ):
            encode_property(path, name, value)
