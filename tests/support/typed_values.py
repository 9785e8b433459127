"""Property values with their types, and the exact numbers that adjusts see, for models of the tree.

The arithmetic is written a second time here: it shares only the types of values with the real code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

from hbasemk import BlobRef, Json
from tests.support.microkernel_model import Refused

Value: TypeAlias = tuple[str, Any]
"""A property value with its type, so that 1, 1.0, -0.0 and true differ."""
LARGEST: Final = 10**4300
ZERO: Final[Value] = ("int", 0)


def typed(value: Any) -> Value:
    """Return a value with its type."""
    if isinstance(value, list | tuple):
        return "list", tuple(typed(one) for one in value)
    if isinstance(value, float):
        return "float", struct.pack(">d", value)
    if isinstance(value, BlobRef):
        return "blob", value.id
    if isinstance(value, Json):
        return "json", value.text
    return type(value).__name__, value


def all_typed(values: Mapping[str, Any]) -> dict[str, Value]:
    """Return the properties of a node, each with its type."""
    return {key: typed(value) for key, value in values.items()}


def number(value: Value) -> int | float | None:
    """Return a number as an increment sees it; None for another value and a Json number beyond the range of a float."""
    kind, data = value
    if kind == "int":
        return int(data)
    if kind == "float":
        return float(struct.unpack(">d", data)[0])
    if kind == "json":
        real = int(data) if data.lstrip("-").isdigit() else float(data)
        return real if isinstance(real, int) or math.isfinite(real) else None
    return None


def exact(value: Value) -> Fraction | None:
    """Return the exact number that an adjust sees; None for a value that cannot be adjusted."""
    real = number(value)
    return None if real is None or (isinstance(real, float) and not math.isfinite(real)) else Fraction(real)


def plus(value: Value, by: Fraction) -> Value:
    """Return a value after adjusts by a sum, rounded once."""
    before = exact(value)
    if before is None or not by:
        return value
    total = before + by
    is_whole = value[0] == "int" or (value[0] == "json" and value[1].lstrip("-").isdigit())
    if is_whole and total.denominator == 1:
        return "int", int(total)
    try:
        return typed(float(total))
    except OverflowError:
        return "int", round(total)


def check_size(value: Any) -> None:
    """Raise Refused for a number that is too long."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, int) and abs(one) >= LARGEST:
            raise Refused("LimitError")
