"""Exact numbers: the sums of adjusted properties (``docs/decisions/0035-adjust.md``).

An exact number is an ``int``, or a ``Fraction`` whose denominator is a power of two. Every finite float is one, and so is
every sum of such numbers. So sums do not depend on the order of their terms.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, TypeAlias, Union

from hbasemk.errors import FormatError, LimitError
from hbasemk.format import limits, values
from hbasemk.format.json_number import number_of

Exact: TypeAlias = Union[int, Fraction]  # noqa: UP007 - evaluated at run time on 3.10

ZERO: Final = b"\x02\x00"
"""The stored value 0, with which the first adjust of a property creates it."""
_INTEGER, _FLOAT, _JSON, _FRACTION = b"\x02", b"\x03", b"\x07", b"\x0a"


def of_number(number: int | float | Fraction) -> Exact:
    """Return a finite number as an exact number."""
    if isinstance(number, int):
        return number
    ratio = Fraction(number)
    return ratio.numerator if ratio.denominator == 1 else ratio


def of_value(data: bytes) -> Exact | None:
    """Return the exact number of an encoded property value; None if it is not a finite number."""
    kind = data[:1]
    if kind == _INTEGER and len(data) > 1:
        return int.from_bytes(data[1:], "big", signed=True)
    if kind not in (_FLOAT, _JSON):
        return None
    value: object = values.decode(data)
    if isinstance(value, values.Json):
        value = number_of(value.text)
    return of_number(value) if isinstance(value, (int, float)) and -math.inf < value < math.inf else None


def add(data: bytes, by: Exact) -> bytes:
    """Return an encoded value plus ``by``, in the kind of the value; a value that is not a number stays as it is.

    An int reads as an int while the result is whole, else as a float. A float reads as a float. A result beyond the range
    of a float reads as an int. Rounds once.
    """
    if not by:
        return data
    if type(by) is int and data[:1] == _INTEGER and len(data) > 1:
        # Nearly all are such numbers.
        return _encode_int(int.from_bytes(data[1:], "big", signed=True) + by)
    before = of_value(data)
    if before is None:
        return data
    after = of_number(before + by)
    if isinstance(after, int) and _is_whole(data):
        return _encode_int(after)
    try:
        return values.encode(float(after))
    except OverflowError:
        return _encode_int(round(after))


def _is_whole(data: bytes) -> bool:
    return data[:1] == _INTEGER or (data[:1] == _JSON and data[1:].lstrip(b"-").isdigit())


def _encode_int(number: int) -> bytes:
    # Without the limit of digits, which applies to what a caller writes: a sum must stay readable.
    return _INTEGER + number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def encode(number: Exact) -> bytes:
    """Return the stored bytes: an integer as property values hold it, or ``0a``, the exponent and the mantissa."""
    if type(number) is int:
        # Nearly all are; a look at the class Fraction takes longer than the encoding.
        return _encode_int(number)
    number = of_number(number)
    if isinstance(number, int):
        return _encode_int(number)
    exponent = number.denominator.bit_length() - 1
    if exponent > 0xFFFF:
        raise LimitError(f"a number with {exponent} binary digits after the point cannot be stored")
    return _FRACTION + exponent.to_bytes(2, "big") + _encode_int(number.numerator)[1:]


def decode(data: bytes) -> Exact:
    """Decode stored bytes; raise FormatError if they are damaged."""
    if data[:1] == _INTEGER and len(data) > 1:
        return int.from_bytes(data[1:], "big", signed=True)
    if data[:1] == _FRACTION and len(data) > 3:
        return Fraction(int.from_bytes(data[3:], "big", signed=True), 1 << int.from_bytes(data[1:3], "big"))
    raise FormatError(
        f"{limits.shown(data[:40])} is not an exact number; it is damaged or was written by a newer version"
    )
