"""Values in JSON exports come back exactly."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbasemk import BlobRef, Json, LimitError
from hbasemk.format import limits
from hbasemk.format.json_number import NUMBER
from hbasemk.format.values import decode, encode
from hbasemk.transfer.json.values import _MARKS, decoder, encode_any, from_json, to_json
from tests.support.json_exports import VALUES


@pytest.mark.parametrize("name", VALUES)
def test_each_value_round_trips_exactly(name: str) -> None:
    text = to_json(VALUES[name])

    assert text.isascii()
    json.loads(text, parse_int=str)
    assert encode(from_json(decoder.decode(text))) == encode(VALUES[name])


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_is_limited_by_its_bytes_only(sign: int) -> None:
    longest = sign << (8 * limits.MAX_VALUE - 10)
    text = to_json(longest)

    assert decode(encode_any(from_json(decoder.decode(text)))) == longest
    with pytest.raises(LimitError, match=f"more than {limits.MAX_VALUE} bytes"):
        encode_any(longest << 1)


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("most", [4300, 640], ids=["usual", "lowest"])
def test_an_integer_within_the_limit_is_written_in_decimal_digits(sign: str, most: int) -> None:
    text = sign + "9" * limits.MAX_DIGITS
    longest = int(text)
    before = sys.get_int_max_str_digits()
    # A program may let Python convert fewer digits.
    sys.set_int_max_str_digits(most)
    try:
        assert to_json(longest) == text
        assert from_json(decoder.decode(text)) == longest
        assert to_json(longest * 10) == f'{{"$integer": "{hex(longest * 10)}"}}'
    finally:
        sys.set_int_max_str_digits(before)


spellings = re.compile(NUMBER, re.ASCII)
scalars = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(),
    st.binary(min_size=32, max_size=32).map(lambda data: BlobRef(data.hex())),
    st.from_regex(spellings, fullmatch=True).map(Json),
)


@given(st.one_of(scalars, st.lists(scalars)))
def test_any_value_round_trips_exactly(value: Any) -> None:
    text = to_json(value)

    json.loads(text, parse_int=str)
    assert encode(from_json(decoder.decode(text))) == encode(value)


def test_common_values_are_written_as_plain_json() -> None:
    assert to_json(["a", 1, 1.5, True]) == '["a", 1, 1.5, true]'
    assert to_json(Json("1.10")) == "1.10"
    assert to_json(Json("1.1")) == '{"$number": "1.1"}'


def test_the_guide_shows_the_form_of_each_value_without_a_json_form() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide.md").read_text()
    shown = [json.loads(found) for found in re.findall(r"^\| `(\{\"\$.*?\})` \|", guide, re.MULTILINE)]

    assert [key for one in shown for key in one] == list(_MARKS)
    values = [from_json(one) for one in shown]
    assert repr(values[2]) == "nan"
    del values[2]
    blob = BlobRef("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert values == [b"\x00\xff", blob, -0xFF, Json("1.5"), "\ud83d\ude00"]
