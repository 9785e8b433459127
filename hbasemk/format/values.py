"""Typed property values and their bytes: one type byte, then the value.

The round trip is exact: ``42``, ``42.0``, ``"42"``, ``True`` and ``[42]`` keep their types. The type byte 0 alone is the
tombstone of a removed property.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, Union

from hbasemk.errors import FormatError, InvalidValueError, LimitError
from hbasemk.format import limits
from hbasemk.format.json_number import NUMBER, long_number


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A reference to a blob by its ``id``, the SHA-256 of the content in hexadecimal digits."""

    id: str


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON number ``text`` that keeps its exact spelling, such as ``1.10`` or ``1e3``; ``value`` converts it.

    Only numbers can be stored (RFC 8259, without surrounding space). The MicroKernel interface returns them as they were
    written. A commit rejects other texts with InvalidValueError; store those as strings, and large ones as blobs.
    """

    text: str

    @property
    def value(self) -> object:
        """The text as ``int`` or ``float``, as Python's ``json`` reads it."""
        return json.loads(self.text)


Scalar: TypeAlias = Union[str, int, float, bool, bytes, BlobRef, Json]  # noqa: UP007 - evaluated at run time on 3.10
Value: TypeAlias = Union[Scalar, list[Scalar]]  # noqa: UP007
PropertyValue: TypeAlias = Union[Scalar, Sequence[Scalar]]  # noqa: UP007
"""The values that callers may pass: scalars, and lists or tuples of them."""
Encoded: TypeAlias = dict[str, bytes]
"""Properties by name as they are stored, so that 1, 1.0 and true differ."""

TOMBSTONE: Final = b"\x00"
_STRING, _INTEGER, _FLOAT, _FALSE, _TRUE, _BLOB, _JSON, _BYTES, _ARRAY = range(1, 10)
_REFERRING: Final = (bytes([_BLOB]), bytes([_ARRAY]))
_is_number: Final = re.compile(NUMBER).fullmatch
_is_blob_id: Final = re.compile("[0-9a-f]{64}").fullmatch
_ELEMENT: Final = 48
"""Bytes of an element of a decoded array, beyond its encoded bytes."""
_FOUR_BYTES: Final = (0xF0, 0xF1, 0xF2, 0xF3, 0xF4)
"""The first bytes of characters that take four bytes."""
_WORD: Final = 64
_NESTED: Final = "Store nested data in child nodes, or as JSON in a str."
_DOUBLE: Final = struct.Struct(">d")
_LENGTH: Final = struct.Struct(">I")


def encode(value: PropertyValue, *, in_array: bool = False) -> bytes:
    """Encode a value; raise InvalidValueError if its type is not supported, LimitError if it is too large.

    ``in_array``: it is an element of an array.
    """
    if isinstance(value, str):
        # A character takes at most four bytes.
        if len(value) * 4 < limits.MAX_VALUE:
            return b"\x01" + value.encode("utf-8", "surrogatepass")
        if len(value) >= limits.MAX_VALUE:
            raise _too_large(f"a str of {len(value)} characters has more than {limits.MAX_VALUE - 1} bytes")
        text = value.encode("utf-8", "surrogatepass")
        if len(text) >= limits.MAX_VALUE:
            raise _too_large(f"a str of {len(text)} bytes in UTF-8 has more than {limits.MAX_VALUE - 1}")
        return b"\x01" + text
    if isinstance(value, bool):
        return b"\x05" if value else b"\x04"
    if isinstance(value, int):
        bits = value.bit_length()
        if bits > _WORD and limits.is_long_int(value):
            raise LimitError(
                f"an int of {value.bit_length()} bits has more than {limits.MAX_DIGITS} digits, which is the limit: "
                "Python does not convert longer ones to text by default. Store it as bytes, or its digits as a string."
            )
        length = bits // 8 + 1
        # Python is faster without the third argument.
        return b"\x02" + (value.to_bytes(length, "big") if value >= 0 else value.to_bytes(length, "big", signed=True))
    if isinstance(value, float):
        return b"\x03" + _DOUBLE.pack(value)
    if isinstance(value, BlobRef):
        if not isinstance(value.id, str) or not _is_blob_id(value.id):
            raise InvalidValueError(
                "the id of a blob is its SHA-256, a str of 64 hexadecimal digits in lower case, got "
                f"{limits.shown(value.id)}. Write the content as a blob first, and keep the reference that it returns."
            )
        return b"\x06" + value.id.encode()
    if isinstance(value, Json):
        if isinstance(value.text, str) and limits.is_long_number(value.text):
            raise LimitError(long_number(value.text))
        if not isinstance(value.text, str) or not _is_number(value.text):
            raise InvalidValueError(
                f"{limits.shown(value)} is not a JSON number; Json keeps the spelling of numbers only. Store other JSON as "
                "a string."
            )
        return b"\x07" + value.text.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        # The length of a memoryview is not in bytes.
        data = bytes(value)
        if len(data) >= limits.MAX_VALUE:
            raise _too_large(f"{len(data)} bytes are more than {limits.MAX_VALUE - 1}")
        return b"\x08" + data
    if isinstance(value, (list, tuple)) and not in_array:
        return _encode_array(value)
    raise _unsupported(value, in_array)


def _encode_array(value: Sequence[PropertyValue]) -> bytes:
    parts = [bytes([_ARRAY])]
    size = 1
    for element in value:
        if isinstance(element, (list, tuple)):
            raise InvalidValueError(f"an array cannot hold another one: {limits.shown(value)}. {_NESTED}")
        data = encode(element, in_array=True)
        size += 4 + len(data)
        if size > limits.MAX_VALUE:
            raise _too_large(f"a list of {len(value)} elements has more than {limits.MAX_VALUE} bytes")
        parts += (_LENGTH.pack(len(data)), data)
    return b"".join(parts)


def _unsupported(value: object, in_array: bool) -> InvalidValueError:
    holder, last = ("an array", " or Json") if in_array else ("a property", ", Json or a list of these")
    advice = ""
    if isinstance(value, dict):
        advice = f" {_NESTED}"
    elif value is None and not in_array:
        advice = " To remove a property, unset it."
    return InvalidValueError(
        f"{holder} cannot hold {type(value).__name__} {limits.shown(value)}; expected a str, int, float, bool, bytes, "
        f"BlobRef{last}.{advice}"
    )


def _too_large(problem: str) -> LimitError:
    return LimitError(f"{problem}, which is the limit of a property. Store large content as a blob.")


def extra_memory(data: bytes) -> int:
    """Return about how many bytes a value takes in memory when it is decoded, beyond the number of its encoded bytes.

    The first element of an array stands for all of them.
    """
    kind = data[0]
    if kind == _ARRAY:
        return len(data) // (4 + _LENGTH.unpack_from(data, 1)[0]) * _ELEMENT if len(data) > _LENGTH.size else 0
    if kind != _STRING or data.isascii():
        return 0
    # Python stores all characters of a text in as many bytes as the widest one needs.
    return 3 * len(data) if any(first in data for first in _FOUR_BYTES) else len(data)


def decode(data: bytes) -> Value:
    """Decode a stored value; raise FormatError if it is damaged or of an unknown type."""
    try:
        if data[0] == _ARRAY:
            result: list[Scalar] = []
            at, end = 1, len(data)
            while at < end:
                start = at + 4
                at = start + _LENGTH.unpack_from(data, at)[0]
                if at > end:
                    raise ValueError("an array element is cut off")
                result.append(_decode_scalar(data[start:at]))
            return result
        return _decode_scalar(data)
    except (ValueError, IndexError, struct.error) as error:
        raise FormatError(
            f"the stored property value {data[:40]!r} cannot be decoded ({error}); it is damaged or was written by a "
            "newer version of hbasemk"
        ) from error


def _decode_scalar(data: bytes) -> Scalar:
    kind = data[0]
    if kind == _STRING:
        return data[1:].decode("utf-8", "surrogatepass")
    if kind == _INTEGER:
        if len(data) < 2:
            raise ValueError("an integer without digits")
        return int.from_bytes(data[1:], "big", signed=True)
    if kind == _FLOAT:
        number: float = _DOUBLE.unpack(data[1:])[0]
        return number
    if kind in (_FALSE, _TRUE) and len(data) == 1:
        return kind == _TRUE
    if kind == _BLOB:
        return BlobRef(data[1:].decode())
    if kind == _JSON:
        return Json(data[1:].decode("utf-8", "surrogatepass"))
    if kind == _BYTES:
        return bytes(data[1:])
    raise ValueError(f"type byte {kind}")


def blobs_of(data: bytes) -> list[str]:
    """Return the ids of the blobs to which a stored value refers; raise FormatError if it is a damaged array."""
    # Only references and arrays can do so. The type byte avoids decoding other values.
    if data[:1] not in _REFERRING:
        return []
    value = decode(data)
    return [one.id for one in (value if isinstance(value, list) else [value]) if isinstance(one, BlobRef)]
