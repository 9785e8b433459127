"""Random operations, nodes and texts: writing and reading undo each other, and a second reader agrees."""

from __future__ import annotations

import json
import os
import random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hbasemk.jsop import (
    AddNode,
    ChangedSubtree,
    Copy,
    JsonNode,
    Move,
    Number,
    Operation,
    Remove,
    SetProperty,
    Value,
    parse,
    parse_node,
    parse_value,
    quote,
    write,
    write_node,
    write_value,
)
from hbasemk.jsop.strings import join_surrogates
from tests.fuzz import jsop
from tests.support import naive_jsop

# A slow machine is no failure.
PATIENT = settings(deadline=None)
ANYTHING = st.characters(codec=None)
TEXTS = st.text(ANYTHING, max_size=10).map(join_surrogates)
NAMES = (
    st.text(
        st.one_of(st.sampled_from('ab:."\\'), st.characters(codec=None, exclude_characters="/")), min_size=1, max_size=4
    )
    .map(join_surrogates)
    .filter(lambda name: name not in {".", ".."})
)
# What stands on both sides of a slash never joins, so a path of names in normal form is in normal form.
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,9})?([eE][-+]?[0-9]{1,4})?", fullmatch=True).map(Number)
SCALARS = st.one_of(TEXTS, st.booleans(), NUMBERS)
VALUES: st.SearchStrategy[Value] = st.one_of(SCALARS, st.lists(SCALARS, max_size=4).map(tuple))


def _node(members: dict[str, Value | JsonNode]) -> JsonNode:
    return JsonNode(
        {name: value for name, value in members.items() if not isinstance(value, JsonNode)},
        {name: value for name, value in members.items() if isinstance(value, JsonNode)},
    )


NODES: st.SearchStrategy[JsonNode] = st.recursive(
    st.just(JsonNode()), lambda below: st.dictionaries(NAMES, st.one_of(VALUES, below), max_size=4).map(_node)
)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(AddNode, PATHS, NODES),
    st.builds(SetProperty, st.one_of(st.just("/"), PATHS), NAMES, st.one_of(st.none(), VALUES)),
    st.builds(Remove, PATHS),
    st.builds(Move, PATHS, PATHS),
    st.builds(Copy, st.one_of(st.just("/"), PATHS), PATHS),
    st.builds(ChangedSubtree, PATHS),
)


@PATIENT
@given(st.lists(OPERATIONS, max_size=5))
def test_written_operations_are_read_back_the_same(operations: list[Operation]) -> None:
    text = write(operations)
    text.encode()
    assert parse(text, changed_subtrees=True) == operations
    assert naive_jsop.plain(parse(text, changed_subtrees=True)) == naive_jsop.read(text, "", True)


@PATIENT
@given(VALUES)
def test_values_read_back_the_same(value: Value) -> None:
    assert parse_value(write_value(value)) == value


@PATIENT
@given(NODES)
def test_nodes_read_back_the_same_in_the_same_order(node: JsonNode) -> None:
    again = parse_node(write_node(node))
    assert again == node
    assert [path for path, _ in again.walk("/")] == [path for path, _ in node.walk("/")]


@PATIENT
@given(st.text(ANYTHING))
@example("\ud83d\ude00")
def test_a_quoted_string_means_itself_to_any_reader(text: str) -> None:
    quoted = quote(text)
    quoted.encode()
    assert parse_value(quoted) == json.loads(quoted) == join_surrogates(text)
    assert parse_value(json.dumps(text)) == join_surrogates(text)


def _as_python(value: Any) -> Any:
    if isinstance(value, Number):
        return float(value)
    return [_as_python(item) for item in value] if isinstance(value, tuple) else value


@PATIENT
@given(st.dictionaries(NAMES, st.one_of(TEXTS, st.booleans(), st.floats(allow_nan=False, allow_infinity=False))))
def test_json_of_the_standard_library_is_read(members: dict[str, Any]) -> None:
    for text in (json.dumps(members), json.dumps(members, ensure_ascii=False, indent=1)):
        assert {name: _as_python(value) for name, value in parse_node(text).properties.items()} == members


@PATIENT
@given(st.lists(st.sampled_from(jsop.TOKENS), max_size=12).map("".join), st.sampled_from(jsop.ROOTS), st.booleans())
def test_any_text_is_rejected_or_parsed_like_by_a_second_reader(text: str, root: str, changed_subtrees: bool) -> None:
    jsop.check(text, root, changed_subtrees)


def test_mutated_texts_are_rejected_or_parsed_like_by_a_second_reader() -> None:
    """``HBASEMK_FUZZ_INPUTS`` is how many are tried, ``HBASEMK_FUZZ_SEED`` repeats a run."""
    inputs = int(os.environ.get("HBASEMK_FUZZ_INPUTS", "20000"))
    seed = int(os.environ.get("HBASEMK_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    figures = jsop.run(inputs, seed)
    print(f"seed {seed}: {figures}")
    assert inputs // 20 < figures.accepted < inputs
