"""A number of things has their name in the singular if it is one."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk import FormatError, InvalidValueError
from hbasemk.format import changes, revisions, schema
from hbasemk.format.plural import counted
from hbasemk.jsop.builder import JsonBuilder
from hbasemk.kernel.collection import retention
from hbasemk.kernel.reading.child_count import Memo
from hbasemk.store.abc import Cell


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, "node"), "0 nodes"),
        ((1, "node"), "1 node"),
        ((2, "node"), "2 nodes"),
        ((1, "child", "children"), "1 child"),
        ((2, "child", "children"), "2 children"),
    ],
)
def test_a_number_has_its_noun(arguments: tuple[Any, ...], text: str) -> None:
    assert counted(*arguments) == text


def test_one_byte_is_not_called_bytes() -> None:
    with pytest.raises(ValueError, match="^1 byte is not a multiple of 8"):
        revisions.from_bytes(b"x")
    with pytest.raises(ValueError, match="^9 bytes are not a multiple of 8"):
        revisions.from_bytes(bytes(9))
    with pytest.raises(FormatError, match=r"is damaged \(1 byte\)"):
        Memo.decode(b"x", "/a")
    with pytest.raises(FormatError, match=r"are damaged \(1 byte: b'x'\)"):
        changes.decode([Cell(schema.DATA, schema.CHANGES, 1, b"x")])


def test_one_open_object_is_not_called_objects() -> None:
    builder = JsonBuilder()
    builder.begin_object()
    with pytest.raises(InvalidValueError, match="unfinished: 1 object or array is open"):
        builder.text()
    builder.begin_object("a")
    with pytest.raises(InvalidValueError, match="unfinished: 2 objects and arrays are open"):
        builder.text()


def test_one_second_is_not_called_seconds() -> None:
    with pytest.raises(InvalidValueError, match="or forever, got 1 s; nothing was changed"):
        retention.check(1000)
    with pytest.raises(InvalidValueError, match="or forever, got 1.5 s; nothing was changed"):
        retention.check(1500)
