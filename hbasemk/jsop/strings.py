"""JSON strings: quoting and surrogates.

A JSON string is a sequence of UTF-16 code units. Its normal form here is a Python string in which each pair of a high and a
low surrogate is the character that it encodes. Every other surrogate stays a lone one.
"""

from __future__ import annotations

import json
import re
from typing import Final

SURROGATE: Final = re.compile("[\ud800-\udfff]")
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode


def join_surrogates(text: str) -> str:
    """Replace each adjacent pair of surrogates with its character; keep lone surrogates."""
    if text.isascii() or SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def quote(text: str) -> str:
    """Write ``text`` as a JSON string in quotes.

    Escapes quotes, backslashes, control characters and lone surrogates, and nothing else. So UTF-8 can always encode the
    result.
    """
    if text.isascii() or SURROGATE.search(text) is None:
        return _encode(text)
    return SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", _encode(join_surrogates(text)))


def printable(text: str) -> str:
    """Escape the unprintable characters of a text for a message."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii") for char in text
    )
