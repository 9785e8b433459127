"""Conversion of property values between JSON and the kernel; numbers keep their exact spelling."""

from __future__ import annotations

import base64
from typing import Final

from hbasemk import jsop
from hbasemk.errors import InvalidValueError, LimitError
from hbasemk.format import limits, values
from hbasemk.format.values import BlobRef, Json
from hbasemk.jsop import Number

BLOB: Final = ":blobId:"
BYTES: Final = ":bytes:"
FLOAT: Final = ":float:"
INTEGER: Final = ":integer:"
JSON: Final = ":json:"


def to_kernel(value: jsop.Value) -> values.PropertyValue:
    """Convert a JSON value for the kernel: a number to the int or float with exactly this spelling, else to ``Json``."""
    if isinstance(value, tuple):
        return [_scalar_to_kernel(element) for element in value]
    return _scalar_to_kernel(value)


def _scalar_to_kernel(value: jsop.Scalar) -> values.Scalar:
    if isinstance(value, Number):
        exact = value.exact
        return Json(value.text) if exact is None else exact
    if isinstance(value, str) and value.startswith(BLOB):
        return BlobRef(value[len(BLOB) :])
    return value


def to_json(value: values.Value) -> jsop.Value:
    """Convert a kernel value to JSON. Bytes, infinite floats, NaN, and stored JSON that is not a number become marked strings.

    So do numbers beyond the limit, which an earlier version stored: formatting such an integer takes quadratic time.
    """
    if isinstance(value, list):
        return tuple(_scalar_to_json(element) for element in value)
    return _scalar_to_json(value)


def to_text(value: values.Value) -> str:
    """Return a kernel value as JSON text; see :func:`to_json`."""
    if isinstance(value, int) and not isinstance(value, bool) and not limits.is_long_int(value):
        # Without a Number in between.
        return jsop.write_value(value)
    return jsop.write_value(to_json(value))


def _scalar_to_json(value: values.Scalar) -> jsop.Scalar:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if limits.is_long_int(value):
            return INTEGER + hex(value)
        return Number(jsop.write_value(value))
    if isinstance(value, float):
        text = repr(value)
        return Number(text) if text[-1].isdigit() else FLOAT + text
    if isinstance(value, BlobRef):
        return BLOB + value.id
    if isinstance(value, Json):
        try:
            return Number(value.text)
        except (InvalidValueError, LimitError):
            # An earlier version stored any text.
            return JSON + value.text
    return BYTES + base64.b64encode(value).decode()
