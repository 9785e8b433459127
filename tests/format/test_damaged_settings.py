"""Numbers of the settings row in a form that no version of hbasemk writes: they are damage."""

from __future__ import annotations

import pytest

from hbasemk import FormatError
from hbasemk.kernel import schema_version
from hbasemk.kernel.collection import retention


@pytest.mark.parametrize(
    "data", [b"6_0000000", b" 60000000", b"60000000 ", b"+60000000", b"-60000000", b"", b"6e4", b"\xff"]
)
def test_a_retention_that_is_not_only_digits_is_damage(data: bytes) -> None:
    assert retention.decode(b"60000000") == 60_000_000
    with pytest.raises(FormatError, match="the retention must be a number of ms"):
        retention.decode(data)


@pytest.mark.parametrize("digits", [b"9223372036854775808", b"9999999999999999999", b"1_0", b"+1", b""])
def test_a_schema_number_above_the_largest_is_damage(digits: bytes) -> None:
    assert schema_version.decode(b"9223372036854775807 nonce") == schema_version.LARGEST
    with pytest.raises(FormatError, match="the schema number must be digits, at most 9223372036854775807, a space"):
        schema_version.decode(digits + b" nonce")
