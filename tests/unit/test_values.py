"""Values come back exactly as what they were."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbasemk import BlobRef, FormatError, InvalidValueError, Json
from hbasemk.kernel import values

TEXT = st.text(st.characters(codec=None))
SCALARS = st.one_of(
    TEXT,
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(),
    st.builds(BlobRef, st.text("0123456789abcdef")),
    st.builds(Json, TEXT),
)


def same(left: object, right: object) -> bool:
    """Equality that tells 1, 1.0 and True apart, in lists too."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@given(st.one_of(SCALARS, st.lists(SCALARS)))
def test_round_trip_is_exact(value: values.Value) -> None:
    assert same(values.decode(values.encode(value)), value)


@pytest.mark.parametrize("value", [42, 42.0, "42", [42], True, [True], b"42", Json("42"), 0, -1, 255, -256, 10**40])
def test_look_alikes_stay_apart(value: values.Value) -> None:
    assert same(values.decode(values.encode(value)), value)


def test_special_floats_survive() -> None:
    assert math.isnan(values.decode(values.encode(math.nan)))  # type: ignore[arg-type]
    assert values.decode(values.encode(-math.inf)) == -math.inf
    assert math.copysign(1, values.decode(values.encode(-0.0))) == -1  # type: ignore[arg-type]


def test_no_value_looks_like_the_tombstone() -> None:
    for value in ("", 0, 0.0, False, b"", [], Json("")):
        assert values.encode(value) != values.TOMBSTONE


@pytest.mark.parametrize("value", [None, {}, {1}, object(), [[1]], [None], 1j])
def test_what_has_no_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidValueError):
        values.encode(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x63x", b"\x03abc", b"\x09\x00\x00\x00\x09a", b"\x02", b"\x09\x00"])
def test_damaged_bytes_are_told(data: bytes) -> None:
    with pytest.raises(FormatError, match="cannot be decoded"):
        values.decode(data)


@given(st.binary())
def test_any_bytes_either_decode_or_are_told(data: bytes) -> None:
    try:
        values.decode(data)
    except FormatError:
        return


def test_json_reads_its_text() -> None:
    assert Json("1.10").value == 1.1
