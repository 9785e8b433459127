"""Numbers of the settings row in a form that no version of hbasemk writes: they are damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hbasemk import FormatError
from hbasemk.format import schema
from hbasemk.kernel import schema_version
from hbasemk.kernel.collection import retention
from hbasemk.kernel.settings import Settings, format_change
from hbasemk.store.abc import Cell, Row
from hbasemk.store.memory import MemoryStore


@pytest.mark.parametrize("value", ["\uff11\uff12", "1_2", " 12 ", "+12", "12", 12.0, True, None, [12]])
@pytest.mark.parametrize("name", ["format", "epochMs", "maxClockSkewMs", "leaseMs"])
def test_a_setting_that_is_not_an_integer_of_json_is_damage(name: str, value: Any) -> None:
    store = MemoryStore()
    fields = json.loads(Settings(format=1).encode())
    assert Settings.decode(json.dumps(fields).encode(), store) == Settings(format=1)
    damaged = json.dumps({**fields, name: value}).encode()
    with pytest.raises(FormatError, match="the settings of the repository at memory are damaged"):
        Settings.decode(damaged, store)
    # An open instance does not take damage for another format.
    assert (
        format_change(Row(schema.SETTINGS_ROW, (Cell(*schema.SETTINGS, 1, damaged),)), store) is None
        or name != "format"
    )


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
