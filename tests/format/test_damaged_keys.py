"""Names and row keys that are not UTF-8 are damage, and reading them says so."""

from __future__ import annotations

import pytest

from hbasemk.errors import FormatError
from hbasemk.format import paths


def test_a_damaged_row_key_is_a_format_error() -> None:
    with pytest.raises(FormatError, match=r"row key b'\\x00\\x01/\\xff'.*hbasemk check"):
        paths.path_of(b"\x00\x01/\xff")
    assert paths.path_of(paths.key("/\ud800\u00e9")) == "/\ud800\u00e9"


def test_a_damaged_name_is_a_format_error() -> None:
    with pytest.raises(FormatError, match=r"b'\\xff' is not UTF-8.*hbasemk check"):
        paths.decode(b"\xff")
    assert paths.decode(paths.encode("\ud800")) == "\ud800"
