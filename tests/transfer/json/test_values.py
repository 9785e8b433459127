"""Values in JSON exports come back exactly."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbasemk import BlobRef, Json
from hbasemk.format.json_number import NUMBER
from hbasemk.format.values import encode
from hbasemk.transfer.json.values import decoder, from_json, to_json
from tests.support.json_exports import VALUES


@pytest.mark.parametrize("name", VALUES)
def test_each_value_round_trips_exactly(name: str) -> None:
    text = to_json(VALUES[name])

    assert text.isascii()
    json.loads(text, parse_int=str)
    assert encode(from_json(decoder.decode(text))) == encode(VALUES[name])


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
