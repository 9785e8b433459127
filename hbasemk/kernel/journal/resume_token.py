"""The resume token of a watch: an extent as text for URLs, files and shells."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Final

from hbasemk.errors import InvalidRevisionError
from hbasemk.format import revisions
from hbasemk.format.extent import Extent
from hbasemk.kernel.settings import Settings

PREFIX: Final = "w1."
"""The kind and the format version of the text."""
_DEFLATED: Final = b"\x01"
_PLAIN: Final = b"\x00"


def to_text(extent: Extent, settings: Settings) -> str:
    """Return the token of an extent; it is short if ``above`` is empty."""
    ids = revisions.to_bytes(extent.ids)
    packed = zlib.compress(ids, 9)
    body = _DEFLATED + packed if len(packed) < len(ids) else _PLAIN + ids
    data = _check_sum(body, settings) + body
    return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_text(text: str, settings: Settings, location: str) -> Extent:
    """Parse a token of :func:`to_text`; raise InvalidRevisionError if it is damaged or from another repository."""
    advice = "Resume with the exact text that a watch on this repository returned, or with a revision id."
    shown = text if len(text) <= 80 else text[:77] + "..."
    encoded = text[len(PREFIX) :]
    try:
        if not text.startswith(PREFIX) or not encoded.isascii():
            raise ValueError
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidRevisionError(f"{shown!r} is neither a resume token nor a revision id. {advice}") from None
    try:
        if data[:4] != _check_sum(data[4:], settings):
            raise ValueError
        floor, *above = revisions.from_bytes(zlib.decompress(data[5:]) if data[4:5] == _DEFLATED else data[5:])
    except (ValueError, zlib.error):
        raise InvalidRevisionError(
            f"the resume token {shown!r} is damaged, or belongs to another repository than {location}. {advice}"
        ) from None
    return Extent.of(floor, above)


def _check_sum(body: bytes, settings: Settings) -> bytes:
    """Return a checksum that covers the first revision's id and the epoch, so that repositories differ."""
    identity = settings.root_revision.to_bytes(8, "big") + settings.epoch_ms.to_bytes(8, "big", signed=True)
    return zlib.crc32(body, zlib.crc32(identity)).to_bytes(4, "big")
