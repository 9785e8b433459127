"""An extent: a set of trunk revisions, as everything committed up to one id and some ids above it.

Instances see revisions in different orders, so a single id cannot say what a reader has seen. An extent can, in every
instance and permanently. Its text form is the token with which a watch resumes.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from hbasemk.errors import InvalidRevisionError
from hbasemk.kernel.settings import Settings

PREFIX: Final = "w1."
"""The kind and the format version of the text."""
_DEFLATED: Final = b"\x01"
_PLAIN: Final = b"\x00"


class Extent(NamedTuple):
    """All trunk revisions committed up to ``floor``, and the greater ids in ``above``."""

    floor: int
    above: frozenset[int] = frozenset()

    @classmethod
    def of(cls, floor: int, ids: Iterable[int]) -> Extent:
        """Create an extent from a floor and any ids; ids up to the floor are left out."""
        return cls(floor, frozenset(one for one in ids if one > floor))

    def __contains__(self, revision: object) -> bool:
        """Return whether the extent contains a committed trunk revision."""
        return isinstance(revision, int) and (revision <= self.floor or revision in self.above)

    def to_token(self, settings: Settings) -> str:
        """Return the extent as text for URLs, files and shells; it is short if ``above`` is empty."""
        ids = b"".join(one.to_bytes(8, "big") for one in (self.floor, *sorted(self.above)))
        packed = zlib.compress(ids, 9)
        body = _DEFLATED + packed if len(packed) < len(ids) else _PLAIN + ids
        data = _check_sum(body, settings) + body
        return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    @classmethod
    def from_token(cls, text: str, settings: Settings, location: str) -> Extent:
        """Parse a token of :meth:`to_token`; raise InvalidRevisionError if it is damaged or from another repository."""
        advice = "Resume with the exact text that a watch on this repository returned, or with a revision id."
        shown = text if len(text) <= 80 else text[:77] + "..."
        encoded = text[len(PREFIX) :]
        try:
            if not text.startswith(PREFIX) or not encoded.isascii():
                raise ValueError
            data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise InvalidRevisionError(f"{shown!r} is neither a resume token nor a revision id. {advice}") from None
        if len(data) < 5 + 8 or data[:4] != _check_sum(data[4:], settings):
            raise InvalidRevisionError(
                f"the resume token {shown!r} is damaged, or belongs to another repository than {location}. {advice}"
            )
        ids = zlib.decompress(data[5:]) if data[4:5] == _DEFLATED else data[5:]
        numbers = [int.from_bytes(ids[at : at + 8], "big") for at in range(0, len(ids), 8)]
        return cls.of(numbers[0], numbers[1:])


def _check_sum(body: bytes, settings: Settings) -> bytes:
    """Return a checksum that covers the first revision's id and the epoch, so that repositories differ."""
    identity = settings.root_revision.to_bytes(8, "big") + settings.epoch_ms.to_bytes(8, "big", signed=True)
    return zlib.crc32(body, zlib.crc32(identity)).to_bytes(4, "big")
