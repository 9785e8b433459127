"""What the JSOP writer and the JSON builder write, and what they refuse to."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from hbasemk import InvalidPathError, InvalidValueError
from hbasemk.jsop import (
    AddNode,
    ChangedSubtree,
    Copy,
    JsonBuilder,
    JsonNode,
    Move,
    Number,
    Operation,
    Remove,
    SetProperty,
    parse_value,
    quote,
    write,
    write_node,
    write_value,
)


def test_one_operation_a_line_without_white_space() -> None:
    node = JsonNode(
        {"p": (Number("1.10"), "x", True), "q": "y"}, {"c": JsonNode(), "d": JsonNode({}, {"e": JsonNode()})}
    )
    operations: list[Operation] = [
        AddNode("/a", node),
        SetProperty("/", "p", False),
        SetProperty("/a", "q", None),
        SetProperty("/a", "r", ()),
        Remove("/b"),
        Move("/c", "/d"),
        Copy("/", "/e"),
        ChangedSubtree("/f"),
    ]
    assert write(operations).splitlines() == [
        '+"/a":{"p":[1.10,"x",true],"q":"y","c":{},"d":{"e":{}}}',
        '^"/p":false',
        '^"/a/q":null',
        '^"/a/r":[]',
        '-"/b"',
        '>"/c":"/d"',
        '*"/":"/e"',
        '^"/f":{}',
    ]


def test_no_operations_are_the_empty_text() -> None:
    assert write([]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", '""'),
        ('"\\/\b\f\n\r\t', r'"\"\\/\b\f\n\r\t"'),
        ("\x00\x1f\x7f", '"\\u0000\\u001f\x7f"'),
        ("é😀\u2028", '"é😀\u2028"'),
        ("\ud800", r'"\ud800"'),
        ("é\udfff\ud800\n", r'"é\udfff\ud800\n"'),
        ("\ud83d\ude00", '"😀"'),
        (True, "true"),
        (False, "false"),
        (Number("1e3"), "1e3"),
        (42, "42"),
        (1.5, "1.5"),
        (1e22, "1e+22"),
        ((), "[]"),
        (["a", 1, Number("1.0")], '["a",1,1.0]'),
    ],
)
def test_values(value: object, text: str) -> None:
    assert write_value(value) == text  # type: ignore[arg-type]
    text.encode()
    assert write_value(parse_value(text)) == text


def test_whole_numbers_up_to_the_limit() -> None:
    for digits in (600, 700, 4000, 4299):
        assert write_value(-(10**digits)) == "-1" + "0" * digits
    assert write_value(10**4300 - 1) == "9" * 4300
    for beyond in (10**4300, -(10**4300)):
        with pytest.raises(InvalidValueError, match="at most 4300 digits"):
            write_value(beyond)


@pytest.mark.parametrize(
    "value", [None, math.nan, math.inf, b"x", object(), {}, [None], [[1]], [(1,)], [math.inf], {1}]
)
def test_an_invalid_value_is_not_written(value: object) -> None:
    with pytest.raises(InvalidValueError, match="cannot be written"):
        write_value(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "operation",
    [
        AddNode("/", JsonNode()),
        AddNode("a", JsonNode()),
        SetProperty("/a", "", True),
        SetProperty("/a", "b/c", True),
        SetProperty("a", "b", True),
        Remove("/a/"),
        Move("/a", ""),
        Copy("/a/../b", "/c"),
        ChangedSubtree("b"),
    ],
)
def test_an_invalid_path_is_not_written(operation: Operation) -> None:
    with pytest.raises(InvalidPathError):
        write([operation])


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_an_invalid_name_is_not_written(name: str) -> None:
    with pytest.raises(InvalidPathError):
        write_node(JsonNode({name: True}))
    with pytest.raises(InvalidPathError):
        write_node(JsonNode({}, {name: JsonNode()}))


def test_a_name_is_a_property_or_a_child_never_both() -> None:
    with pytest.raises(InvalidValueError, match="'a'"):
        write_node(JsonNode({}, {"x": JsonNode({"a": True}, {"a": JsonNode()})}))


def test_an_invalid_operation_is_not_written() -> None:
    with pytest.raises(TypeError, match="expected AddNode, SetProperty, Remove, Move, Copy or ChangedSubtree$"):
        write(['-"/a"'])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("node", "shown"), [({}, "dict {}"), (None, "NoneType None"), (7, "int 7"), (["x"], r"list \['x'\]")]
)
def test_a_node_of_another_type_is_not_written(node: Any, shown: str) -> None:
    """It was an AttributeError."""
    build = JsonBuilder()
    for call in (
        lambda: write_node(node),
        lambda: write_node(JsonNode({}, {"a": JsonNode({}, {"b": node})})),
        lambda: write([AddNode("/a", node)]),
        lambda: build.node(node),
    ):
        with pytest.raises(TypeError, match=f"a node must be a JsonNode, not {shown}$"):
            call()


def test_a_path_of_another_type_is_not_written() -> None:
    """The path of a removal was an AttributeError, unlike those of the other operations."""
    wrong: Any = None
    for operation in (Remove(wrong), SetProperty(wrong, "p", "x"), Move(wrong, "/a"), AddNode(wrong, JsonNode())):
        with pytest.raises(InvalidPathError, match="None is not a valid path"):
            write([operation])


def test_quoted_text_is_valid_json() -> None:
    everything = "".join(map(chr, range(0x3000))) + "\ud800x\udfff\U0010ffff"
    assert json.loads(quote(everything)) == everything


# --- the builder ---


def test_the_builder_keeps_the_order_of_the_calls() -> None:
    build = JsonBuilder()
    build.begin_array()
    build.begin_object()
    build.value("x\n", "id")
    build.value(12, "ts")
    build.value(None, "msg")
    build.begin_object("a")
    build.end()
    build.node(JsonNode({"p": Number("1.0")}), "b")
    build.json("[null]", "c")
    build.begin_array("d")
    build.end()
    build.end()
    build.value([True])
    build.begin_object()
    build.end()
    build.end()
    assert build.text() == '[{"id":"x\\n","ts":12,"msg":null,"a":{},"b":{"p":1.0},"c":[null],"d":[]},[true],{}]'


@pytest.mark.parametrize("names", [[], ["a"], ["a", 'b"\n', "\ud800"]])
def test_many_empty_objects_are_written_as_single_ones(names: list[str]) -> None:
    texts = set()
    for at_once in (True, False):
        build = JsonBuilder()
        build.begin_object()
        build.value(1, "before")
        if at_once:
            build.empty_objects(names)
        for name in () if at_once else names:
            build.begin_object(name)
            build.end()
        build.value(2, "after")
        build.end()
        texts.add(build.text())
    assert len(texts) == 1


def test_a_single_value_is_a_text() -> None:
    build = JsonBuilder()
    build.value("x")
    assert build.text() == '"x"'


def test_the_builder_rejects_invalid_calls() -> None:
    build = JsonBuilder()
    with pytest.raises(InvalidValueError, match="unfinished"):
        build.text()
    with pytest.raises(InvalidValueError, match="no object or array is open"):
        build.end()
    with pytest.raises(InvalidValueError, match="without a name"):
        build.begin_object("a")
    build.begin_object()
    with pytest.raises(InvalidValueError, match="of an object needs a name"):
        build.value(1)
    with pytest.raises(InvalidValueError):
        build.value(math.nan, "a")
    with pytest.raises(InvalidValueError, match="unfinished"):
        build.text()
    build.begin_array("a")
    with pytest.raises(InvalidValueError, match="must not have one"):
        build.begin_array("b")
    build.end()
    build.end()
    with pytest.raises(InvalidValueError, match="one piece"):
        build.value(1)
    assert build.text() == '{"a":[]}'
