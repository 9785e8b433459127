"""Filters of ``get_nodes``: the meaning of their lists and of globs."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from hbasemk import JsopError
from hbasemk.microkernel.filters import Filter, Globs
from tests.support.microkernel import Cluster


@pytest.mark.parametrize(
    ("chosen", "properties", "children"),
    [
        ("", {"a", "b", ":childNodeCount"}, {"x", "y"}),
        ("{}", {"a", "b", ":childNodeCount"}, {"x", "y"}),
        ('{"nodes":[]}', {"a", "b", ":childNodeCount"}, set()),
        ('{"nodes":["-x"]}', {"a", "b", ":childNodeCount"}, set()),
        ('{"nodes":["*","-x"]}', {"a", "b", ":childNodeCount"}, {"y"}),
        ('{"properties":[]}', set(), {"x", "y"}),
        ('{"properties":["-a"]}', set(), {"x", "y"}),
        ('{"properties":["*","-a"]}', {"b", ":childNodeCount"}, {"x", "y"}),
        ('{"properties":[":childNodeCount"],"nodes":["x","z"]}', {":childNodeCount"}, {"x"}),
    ],
)
def test_only_included_and_not_excluded_names_are_returned(
    mk: Cluster, chosen: str, properties: set[str], children: set[str]
) -> None:
    mk.commit("", '+"/f":{"a":1,"b":2,"x":{},"y":{}}')
    found: dict[str, Any] = json.loads(mk.get_nodes("/f", None, 0, 0, -1, chosen))  # type: ignore[arg-type]
    assert {name for name, value in found.items() if not isinstance(value, dict)} == properties
    assert {name for name, value in found.items() if isinstance(value, dict)} == children
    assert found.get(":childNodeCount", 2) == 2


@pytest.mark.parametrize(
    ("glob", "takes", "leaves"),
    [
        ("a*c", ["ac", "abc", "a*c", "acc", "a\nc"], ["a", "c", "ab", "bac"]),
        ("aa*aa", ["aaaa", "aaaaa"], ["aaa", "aa"]),
        ("*b*", ["b", "abc", "bb"], ["", "a"]),
        (r"a\*c", ["a*c"], ["abc", r"a\*c", "ac"]),
        (r"\-a", ["-a"], ["a", r"\-a"]),
        (r"a\b", [r"a\b"], ["ab", "b"]),
        (r"a\-b", [r"a\-b"], ["a-b"]),
        ("\\", ["\\"], [""]),
        (r"\d", [r"\d"], ["d", "1"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_globs(glob: str, takes: list[str], leaves: list[str]) -> None:
    globs = Globs((glob,))
    assert [name for name in takes if not globs.takes(name)] == []
    assert [name for name in leaves if globs.takes(name)] == []
    excluded = Globs(("*", "-" + glob))
    assert [name for name in takes if excluded.takes(name)] == []


def test_a_backslash_reaches_properties_whose_name_has_one(mk: Cluster) -> None:
    mk.commit("", r'+"/f":{"a\\b":1,"ab":2}')
    chosen = json.dumps({"properties": [r"a\b"]})
    assert json.loads(mk.get_nodes("/f", None, 0, 0, -1, chosen)) == {r"a\b": 1}  # type: ignore[arg-type]


def test_many_wildcards_match_like_a_regular_expression_in_few_steps() -> None:
    letters = ["a", "b", "*"]
    for size in range(5):
        for glob in ("".join(one) for one in itertools.product(letters, repeat=size)):
            pattern = re.compile(glob.replace("*", ".*"))
            globs = Globs((glob,))
            for length in range(5):
                for name in ("".join(one) for one in itertools.product("ab", repeat=length)):
                    assert globs.takes(name) == bool(pattern.fullmatch(name)), (glob, name)


def test_a_glob_that_would_make_a_regular_expression_backtrack_is_matched() -> None:
    # With backtracking this would never end.
    assert not Globs(("*a*" * 40 + "*b",)).takes("a" * 2000)


def test_only_globs_without_wildcards_name_a_property() -> None:
    assert Globs((":hash",)).names(":hash")
    assert not Globs(("*", ":h*")).names(":hash")
    assert not Globs((":hash", "-:h*")).names(":hash")
    assert Filter(None).takes_node("any")


@pytest.mark.parametrize("globs", ["{}", "1", '"a*"', "true", "[1]"])
def test_the_error_for_globs_that_are_no_array_of_strings_says_so(mk: Cluster, globs: str) -> None:
    """For an object it said: a filter has no member 'nodes', only 'nodes' and 'properties'."""
    for name in ("nodes", "properties"):
        with pytest.raises(JsopError, match=f"'{name}' of a filter must be an array of strings"):
            mk.get_nodes("/", filter=f'{{"{name}":{globs}}}')
    with pytest.raises(JsopError, match="a filter has no member 'paths', only 'nodes' and 'properties'"):
        mk.get_nodes("/", filter=f'{{"paths":{globs}}}')
