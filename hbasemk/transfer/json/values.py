"""Property values as JSON text and back, exactly, to the last digit and type.

A value without a JSON form is an object with one key: ``$bytes`` (base64), ``$blob`` (an id), ``$float`` (``nan``, ``inf``,
``-inf``). So is a value that would be read as another one: ``$number`` (a kept spelling that a number has anyway), ``$integer``
(more than 4,300 digits; hexadecimal), ``$string`` (base64 of a text in which JSON would join two surrogates).
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quote
from typing import Final, NoReturn

from hbasemk.errors import InvalidValueError, LimitError
from hbasemk.format import exact, limits
from hbasemk.format.limits import shown
from hbasemk.format.values import BlobRef, Json, Scalar, Value, encode
from hbasemk.jsop import Number, write_value

_DIGITS: Final = 300
"""Python converts so many digits whatever its limit is."""
_SHORT: Final = 10**_DIGITS
_is_hexadecimal: Final = re.compile("-?0x[0-9a-fA-F]+").fullmatch
_split_pair: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]").search


def to_json(value: Value) -> str:
    """Return a property value as JSON text in ASCII."""
    if isinstance(value, str) and value.isascii():
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -_SHORT < value < _SHORT:
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(to_json, value))}]"
    if isinstance(value, Json):
        return value.text if _keeps_its_spelling(value.text) else _marked("$number", value.text)
    if isinstance(value, bytes):
        return _marked("$bytes", base64.b64encode(value).decode())
    if isinstance(value, BlobRef):
        return _marked("$blob", value.id)
    if isinstance(value, float) and not math.isfinite(value):
        return _marked("$float", repr(value))
    if isinstance(value, int):
        return _marked("$integer", hex(value)) if limits.is_long_int(value) else write_value(value)
    if isinstance(value, str) and _split_pair(value):
        return _marked("$string", base64.b64encode(value.encode("utf-8", "surrogatepass")).decode())
    return json.dumps(value)


def name_to_json(name: str, path: str) -> str:
    """Return a name of the node at ``path``, of a property or its own, as JSON text in ASCII.

    Raises InvalidValueError for a name in which JSON would join two surrogates: it would be read as another name.
    """
    if not name.isascii() and _split_pair(name):
        raise InvalidValueError(
            f"the node {path!r} cannot be exported: JSON has no form of the name {shown(name)}, because it would join two "
            "surrogates to one character; rename it, or export another subtree"
        )
    return quote(name)


def from_json(parsed: object) -> Value:
    """Return the property value of a JSON value that :data:`decoder` has read.

    A number is the ``int`` or ``float`` that is written with exactly this spelling, or else keeps it (``Json``). Raises
    InvalidValueError for values that no property can hold: null, an array in an array, an object with none of the keys
    above, or with an invalid value for one.
    """
    if isinstance(parsed, list):
        return [_scalar(element) for element in parsed]
    return _scalar(parsed)


def encode_any(value: Value) -> bytes:
    """Encode a property value of an export. An integer may have more digits than a program may store: adjusts can make such ones.

    Raises LimitError for a value that exceeds another limit.
    """
    if not isinstance(value, int) or not limits.is_long_int(value):
        return encode(value)
    if value.bit_length() // 8 + 2 > limits.MAX_VALUE:
        raise LimitError(
            f"an int of {value.bit_length()} bits has more than {limits.MAX_VALUE} bytes, which is the limit"
        )
    return exact.encode(value)


def _keeps_its_spelling(text: str) -> bool:
    try:
        return Number(text).exact is None
    except (InvalidValueError, LimitError):
        # Stored by a version that accepted any text. It is exported; an import reports that it is not a number.
        return False


def _marked(mark: str, text: str) -> str:
    return json.dumps({mark: text})


def _scalar(parsed: object) -> Scalar:
    if isinstance(parsed, (str, bool, int, float)):
        return parsed
    if isinstance(parsed, Number):
        exact = parsed.exact
        return Json(parsed.text) if exact is None else exact
    if isinstance(parsed, dict) and len(parsed) == 1:
        ((mark, inside),) = parsed.items()
        if mark in _MARKS and isinstance(inside, str):
            try:
                return _MARKS[mark](inside)
            except LimitError:
                raise
            except (ValueError, KeyError):
                raise InvalidValueError(f"{mark} cannot hold {inside[:80]!r}") from None
    raise InvalidValueError(f"a property cannot hold {'null' if parsed is None else shown(parsed)}")


def _from_hexadecimal(text: str) -> int:
    # The function int also takes other texts.
    if not _is_hexadecimal(text):
        raise ValueError
    return int(text, 16)


_MARKS: Final[dict[str, Callable[[str], Scalar]]] = {
    "$bytes": lambda inside: base64.b64decode(inside, validate=True),
    "$blob": BlobRef,
    "$float": lambda inside: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[inside],
    "$integer": _from_hexadecimal,
    "$number": lambda inside: Json(Number(inside).text),
    "$string": lambda inside: base64.b64decode(inside, validate=True).decode("utf-8", "surrogatepass"),
}


def refuse_constant(name: str) -> NoReturn:
    """Raise InvalidValueError for ``NaN`` and ``Infinity``, which Python's ``json`` reads, but JSON does not have."""
    raise InvalidValueError(f"{name} is not JSON; expected a finite number")


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _DIGITS and text != "-0" else Number(text)


def exact_float(text: str) -> float | None:
    """Return the ``float`` that is written with this spelling; None if there is none."""
    real = float(text)
    return real if repr(real) == text else None


def _real(text: str) -> float | Number:
    real = exact_float(text)
    return Number(text) if real is None else real


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidValueError("an object has a name twice")
    return found


decoder: Final = json.JSONDecoder(
    parse_int=_integer, parse_float=_real, parse_constant=refuse_constant, object_pairs_hook=_object
)
"""Reads JSON; a number becomes the ``int`` or ``float`` that is written with this spelling, or else a :class:`Number`. Raises
InvalidValueError for an object with a name twice."""
