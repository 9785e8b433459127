"""Numbers, nodes and operations as values."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from dataclasses import FrozenInstanceError

import pytest

from hbasemk import InvalidValueError, LimitError
from hbasemk.format import limits
from hbasemk.jsop import (
    AddNode,
    JsonBuilder,
    JsonNode,
    Number,
    Remove,
    SetProperty,
    parse,
    parse_node,
    write,
    write_node,
)

DEPTH = limits.MAX_DEPTH - 1


def chain(depth: int, bottom: JsonNode) -> JsonNode:
    for _ in range(depth):
        bottom = JsonNode({"p": "x"}, {"c": bottom})
    return bottom


# --- numbers ---


@pytest.mark.parametrize("text", ["", "01", "1.", ".5", "+1", "1e", "NaN", "0x1", " 1", "1\n", "\u0661", "-", 1, None])
def test_texts_that_are_not_numbers_are_rejected(text: object) -> None:
    with pytest.raises(InvalidValueError, match="not a JSON number"):
        Number(text)  # type: ignore[arg-type]


def test_numbers_are_equal_when_they_are_spelled_alike() -> None:
    assert Number("1.10") == Number("1.10")
    assert len({Number("1.1"), Number("1.10"), Number("1.10"), Number("11e-1")}) == 3
    assert Number("1") not in [1, 1.0, "1"]


@pytest.mark.parametrize(
    ("text", "whole", "real"),
    [("42", 42, 42.0), ("-0", 0, 0.0), ("1.9", 1, 1.9), ("-1.9", -1, -1.9), ("1e3", 1000, 1e3)],
)
def test_numbers_convert(text: str, whole: int, real: float) -> None:
    assert int(Number(text)) == whole
    assert float(Number(text)) == real


def test_numbers_out_of_range() -> None:
    assert float(Number("1e999")) == float("inf")
    with pytest.raises(OverflowError):
        int(Number("1e999"))
    with pytest.raises(LimitError, match="at most 4300"):
        Number("9" * 4301)


@pytest.mark.parametrize(
    ("text", "exact"),
    [("42", 42), ("-7", -7), ("1.5", 1.5), ("1e+22", 1e22), ("-0.0", -0.0), ("0", 0)]
    + [(text, None) for text in ("-0", "1.10", "1e3", "1E+22", "1e999", "0.1000000000000000055")],
)
def test_the_number_that_is_written_with_exactly_this_spelling(text: str, exact: float | None) -> None:
    found = Number(text).exact
    assert (type(found), repr(found)) == (type(exact), repr(exact))


def test_the_longest_whole_number_has_an_exact_value() -> None:
    assert Number("-" + "9" * 4300).exact == -(10**4300) + 1


# --- nodes ---


def test_node_equality_ignores_the_order() -> None:
    assert parse_node('{"a":1,"b":{"c":{},"d":[1]},"e":{}}') == parse_node('{"e":{},"b":{"d":[1],"c":{}},"a":1}')


@pytest.mark.parametrize(
    "other",
    [
        '{"a":2,"b":{"c":{}}}',
        '{"b":{"c":{}}}',
        '{"a":1,"b":{}}',
        '{"a":1,"b":{"c":{"x":1}}}',
        '{"a":1,"d":{"c":{}}}',
        "{}",
    ],
)
def test_nodes_differ(other: str) -> None:
    node = parse_node('{"a":1,"b":{"c":{}}}')
    assert node != parse_node(other)
    assert parse_node(other) != node
    assert node != {"a": 1}


def test_nodes_that_share_a_subtree_are_equal() -> None:
    shared = parse_node('{"a":{"p":1}}')
    assert JsonNode({}, {"x": shared}) == JsonNode({}, {"x": shared})


def test_true_is_not_the_number_one() -> None:
    assert parse_node('{"a":true}') != parse_node('{"a":1}')


def test_walk_gives_parents_first_and_siblings_in_order() -> None:
    node = parse_node('{"b":{"x":{},"p":1,"w":{}},"a":{}}')
    assert [path for path, _ in node.walk("/")] == ["/", "/b", "/b/x", "/b/w", "/a"]
    walked = dict(node.walk("/r"))
    assert list(walked) == ["/r", "/r/b", "/r/b/x", "/r/b/w", "/r/a"]
    assert walked["/r/b"].properties == {"p": Number("1")}


@pytest.mark.parametrize("text", ["{}", '{"p":1}', '{"a":{"b":{},"c":{"d":{},"p":[true]}},"e":{},"f":{"g":{}}}'])
def test_nodes_can_be_pickled_and_copied(text: str) -> None:
    node = parse_node(text)
    for again in (pickle.loads(pickle.dumps(node)), copy.deepcopy(node), copy.copy(node)):
        assert again == node
        assert again is not node
        assert write_node(again) == write_node(node)


def test_a_deep_copy_shares_nothing() -> None:
    node = parse_node('{"a":{"p":1}}')
    again = copy.deepcopy(node)
    again.children["a"].properties["p"] = True
    assert node == parse_node('{"a":{"p":1}}')


def test_operations_compare_without_their_offsets_and_are_frozen() -> None:
    assert Remove("/a", 3) == Remove("/a", 4)
    assert Remove("/a") != Remove("/b")
    assert SetProperty("/a", "b", True) != SetProperty("/a", "b", Number("1"))
    operation = AddNode("/a", JsonNode())
    with pytest.raises(FrozenInstanceError):
        operation.path = "/b"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(parse('+"/a":{"b":{}}-"/c"'))) == parse('+"/a":{"b":{}}-"/c"')


# --- deep nesting ---


@pytest.fixture
def _little_stack() -> object:
    """Whatever recursed once a level would fail."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(250)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("_little_stack")
def test_deep_nodes_are_read_written_compared_pickled_and_freed() -> None:
    text = '{"p":"x","c":' * DEPTH + '{"q":1.10}' + "}" * DEPTH
    node = parse_node(text)
    assert write_node(node) == text
    operations = parse(f'+"/a":{text}')
    assert operations == [AddNode("/a", node)]
    assert write(operations) == f'+"/a":{text}'
    assert node == chain(DEPTH, JsonNode({"q": Number("1.10")}))
    assert node != chain(DEPTH, JsonNode({"q": Number("1.1")}))
    assert sum(1 for _ in node.walk("/")) == DEPTH + 1
    assert len(repr(node)) < 200
    assert len(repr(operations)) < 300
    assert pickle.loads(pickle.dumps(operations)) == operations
    assert copy.deepcopy(node) == node
    del node, operations
    gc.collect()


@pytest.mark.usefixtures("_little_stack")
def test_much_deeper_nodes_too() -> None:
    depth = 100 * DEPTH
    node = JsonNode()
    for _ in range(depth):
        node = JsonNode({}, {"c": node})
    assert len(write_node(node)) == 6 * depth + 2
    assert node == pickle.loads(pickle.dumps(node))
    del node
    gc.collect()


def test_the_builder_nests_as_deeply() -> None:
    build = JsonBuilder()
    build.begin_object()
    for _ in range(DEPTH):
        build.begin_object("c")
    for _ in range(DEPTH + 1):
        build.end()
    assert build.text() == '{"c":' * DEPTH + "{}" + "}" * DEPTH


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a":[' * 100_000, "{" * 100_000])
def test_deep_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="at offset"):
        parse('+"/a":' + text)
