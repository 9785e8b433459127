"""JSON strings: quoting, and the one place that knows about surrogates.

A JSON string is a sequence of UTF-16 units. Here its normal form is a Python text in which a high surrogate directly
before a low one has become the character that they mean, and every other surrogate stands alone.
"""

from __future__ import annotations

import json
import re
from typing import Final

SURROGATE: Final = re.compile("[\ud800-\udfff]")
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


def join_surrogates(text: str) -> str:
    """The text with each adjacent pair of surrogates replaced by its character; lone surrogates stay."""
    if text.isascii() or SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def quote(text: str) -> str:
    """The text as a JSON string with its quotes.

    Escaped are the quote, the backslash, control characters and lone surrogates; anything else stands for itself, so the
    result can always be encoded as UTF-8.
    """
    if text.isascii() or SURROGATE.search(text) is None:
        return _encode(text)
    return SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", _encode(join_surrogates(text)))


def printable(text: str) -> str:
    """The text for a message: what cannot be printed is shown as an escape."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode("ascii") for one in text
    )
