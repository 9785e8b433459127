"""Decoded values equal the encoded ones exactly, with their types."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbasemk import BlobRef, FormatError, InvalidValueError, Json, MicroKernel, Repository
from hbasemk.format import values
from hbasemk.format.json_number import NUMBER
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from hbasemk.transfer.json.values import to_json

TEXT = st.text(st.characters(codec=None))
SCALARS = st.one_of(
    TEXT,
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(),
    st.builds(BlobRef, st.text("0123456789abcdef", min_size=64, max_size=64)),
    st.builds(Json, st.from_regex(NUMBER, fullmatch=True)),
)


def same(left: object, right: object) -> bool:
    """Compare values so that 1, 1.0 and True differ, also in lists."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@given(st.one_of(SCALARS, st.lists(SCALARS)))
def test_round_trip_is_exact(value: values.Value) -> None:
    assert same(values.decode(values.encode(value)), value)


@pytest.mark.parametrize("value", [42, 42.0, "42", [42], True, [True], b"42", Json("42"), 0, -1, 255, -256, 10**40])
def test_equal_looking_values_keep_their_types(value: values.Value) -> None:
    assert same(values.decode(values.encode(value)), value)


def test_special_floats_survive() -> None:
    assert math.isnan(values.decode(values.encode(math.nan)))  # type: ignore[arg-type]
    assert values.decode(values.encode(-math.inf)) == -math.inf
    assert math.copysign(1, values.decode(values.encode(-0.0))) == -1  # type: ignore[arg-type]


def test_no_value_looks_like_the_tombstone() -> None:
    for value in ("", 0, 0.0, False, b"", [], Json("0")):
        assert values.encode(value) != values.TOMBSTONE


@pytest.mark.parametrize("value", [None, {}, {1}, object(), [[1]], [None], 1j])
def test_unsupported_type_is_rejected(value: object) -> None:
    with pytest.raises(InvalidValueError):
        values.encode(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "a property cannot hold NoneType None; .* To remove a property, unset it.$"),
        ([1, None], "an array cannot hold NoneType None; expected a str, int, float, bool, bytes, BlobRef or Json.$"),
        ({"a": 1}, "a property cannot hold dict .* Store nested data in child nodes, or as JSON in a str.$"),
        ([{"a": 1}], "an array cannot hold dict .* Store nested data in child nodes, or as JSON in a str.$"),
        ([[1]], "an array cannot hold another one: .* Store nested data in child nodes, or as JSON in a str.$"),
        ({1}, "a property cannot hold set \\{1\\}; .* or a list of these.$"),
    ],
)
def test_an_unsupported_type_is_shown_with_what_to_do(value: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        values.encode(value)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x63x", b"\x03abc", b"\x09\x00\x00\x00\x09a", b"\x02", b"\x09\x00"])
def test_damaged_bytes_raise_format_error(data: bytes) -> None:
    with pytest.raises(FormatError, match="cannot be decoded"):
        values.decode(data)


@given(st.binary())
def test_any_bytes_decode_or_raise_format_error(data: bytes) -> None:
    try:
        values.decode(data)
    except FormatError:
        return


def test_json_reads_its_text() -> None:
    assert Json("1.10").value == 1.1


NO_NUMBERS = [
    "{nope",
    "",
    " 1",
    "1 ",
    "1\n",
    "01",
    "+1",
    "1.",
    ".5",
    "1e",
    "NaN",
    "Infinity",
    "\u0661",
    "true",
    '"1"',
    "[1]",
    "{}",
]


@pytest.mark.parametrize("text", [*NO_NUMBERS, None, 1, b"1"], ids=repr)
def test_json_other_than_a_number_is_rejected_before_any_write(text: Any, real_store: MemoryStore) -> None:
    store = CountingStore(real_store)
    with Repository(store, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
        store.take()
        for value in (Json(text), [Json("1"), Json(text)]):
            with pytest.raises(InvalidValueError, match="JSON number"):
                repo.run(lambda tx, value=value: tx.set("/a", "p", value))
            with pytest.raises(InvalidValueError, match="JSON number"):
                repo.run(lambda tx, value=value: tx.add("/b", {"p": value}))
        assert {method for method, _ in store.take()} <= {"read", "scan"}


def test_json_numbers_are_readable_in_every_interface(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        before = repo.head
        repo.run(lambda tx: tx.add("/a", {"p": Json("1.10"), "q": [Json("1e3"), Json("-0")]}))
        assert dict(repo.head["/a"]) == {"p": Json("1.10"), "q": [Json("1e3"), Json("-0")]}
        mk = MicroKernel(repo)
        assert '"p":1.10,"q":[1e3,-0]' in str(mk.get_nodes("/a"))
        assert "1.10" in mk.diff(before.revision, repo.head.revision)
        (change,) = [change for change in repo.diff(before) if change.path == "/a"]
        assert change.after == dict(repo.head["/a"])
        assert [to_json(value) for value in repo.head["/a"].values()] == ["1.10", "[1e3, -0]"]
