"""Resume tokens: their exact text, and texts that are not tokens of the repository."""

from __future__ import annotations

import base64
import zlib

import pytest

from hbasemk.errors import InvalidRevisionError
from hbasemk.format.extent import Extent
from hbasemk.kernel.journal import resume_token
from hbasemk.kernel.settings import Settings

SETTINGS = Settings(root_revision=0x0102030405060708)
PLAIN = "w1.p94n0wABAgMEBQYHCA"
"""A token with one id."""
DEFLATED = "w1.nYMe9QF42mNgAANBCMWgBKWNAQKeAGc"
"""A token with three ids, deflated."""


@pytest.mark.parametrize("above", [(), (0x22, 0x33), tuple(range(0x100, 0x200))], ids=len)
def test_a_token_round_trips(above: tuple[int, ...]) -> None:
    extent = Extent.of(0x11, above)
    text = resume_token.to_text(extent, SETTINGS)
    assert text.startswith("w1.")
    assert resume_token.from_text(text, SETTINGS, "here") == extent


def test_tokens_of_earlier_versions_stay_valid() -> None:
    assert resume_token.from_text(DEFLATED, SETTINGS, "here") == Extent(0x11, (0x22, 0x33))
    assert resume_token.from_text(PLAIN, SETTINGS, "here") == Extent(0x0102030405060708)
    assert resume_token.to_text(Extent(0x0102030405060708), SETTINGS) == PLAIN


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00", b"\x00" + bytes(9), b"\x00" + b"\xff" * 8, b"\x01", b"\x01no", b"\x01" + zlib.compress(b"1234567")],
)
def test_a_token_with_a_valid_checksum_around_other_bytes_is_rejected(body: bytes) -> None:
    data = resume_token._check_sum(body, SETTINGS) + body
    text = resume_token.PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    with pytest.raises(InvalidRevisionError, match="is damaged, or belongs to another repository than here"):
        resume_token.from_text(text, SETTINGS, "here")
