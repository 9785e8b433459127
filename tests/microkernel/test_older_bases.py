"""Change texts on an older base: removals that trunk revision as well, and removals that conflict."""

from __future__ import annotations

import json
import sys
from types import FrameType

import pytest

from hbasemk import ConflictError, MicroKernel
from tests.support.microkernel import Cluster
from tests.support.repositories import Instances

TREE = '+"/a":{"b":{"q":1},"c":{}} +"/p":{"x":1,"y":2}'


@pytest.mark.parametrize(
    "text",
    [
        '-"/a/b" *"/a":"/z"',
        '-"/a/b" >"/a":"/z"',
        '*"/a":"/z" -"/a/b"',
        '-"/a/b" +"/a/b":{}',
        '-"/a/b" ^"/a/b":1',
        '-"/a/b" >"/a/c":"/a/b"',
        '-"/a/b" +"/a/b":{} +"/a/b/new":{}',
        '^"/a/b/q":2 -"/a/b"',
        '>"/a":"/z" +"/a":{"b":{}} -"/a/b"',
    ],
)
def test_a_removal_on_both_sides_conflicts_if_other_operations_depend_on_it(mk: Cluster, text: str) -> None:
    base = mk.commit("", TREE)
    head = mk.commit("", '-"/a/b"', base)
    with pytest.raises(ConflictError):
        mk.commit("", text, base)
    assert mk.get_head_revision() == head


def test_removals_of_missing_nodes_are_allowed_beside_unrelated_operations(mk: Cluster) -> None:
    base = mk.commit("", TREE)
    mk.commit("", '-"/a/b"', base)
    revision = mk.commit("", '-"/a/b" *"/a/c":"/z" ^"/a/n":1 +"/a/bb":{}', base)
    found = json.loads(mk.get_nodes("/", revision, 9))  # type: ignore[arg-type]
    assert found["a"] == {"n": 1, ":childNodeCount": 2, "bb": {":childNodeCount": 0}, "c": {":childNodeCount": 0}}
    assert "z" in found


def test_a_property_that_trunk_removed_can_be_removed_again(mk: Cluster) -> None:
    base = mk.commit("", TREE)
    mk.commit("", '^"/p/x":null')
    head = mk.get_head_revision()
    assert mk.commit("", '-"/p/x"', base) == head
    revision = mk.commit("", '-"/p/x" -"/p/y"', base)
    assert json.loads(mk.get_nodes("/p", revision, 0)) == {":childNodeCount": 0}  # type: ignore[arg-type]
    gone = mk.commit("", '-"/p"')
    assert mk.commit("", '-"/p/y"', base) == gone
    with pytest.raises(ConflictError):
        mk.commit("", '-"/p/y" ^"/p/z":1', base)


def test_a_property_that_changed_meanwhile_or_became_a_node_conflicts(mk: Cluster) -> None:
    base = mk.commit("", TREE)
    mk.commit("", '^"/p/x":5 ^"/p/y":null +"/p/y":{}')
    for text in ('-"/p/x"', '-"/p/y"', '-"/p/y" ^"/p/y":3', '-"/p/y" +"/p/y":{}'):
        with pytest.raises(ConflictError):
            mk.commit("", text, base)


def calls_for(mk: MicroKernel, count: int) -> int:
    """Return how many functions a commit calls whose text removes and sets as many things, all removed on trunk before."""
    names = range(count)
    nodes = ",".join(f'"n{number}":{{}}' for number in names)
    base = mk.commit("", f'+"/a":{{{nodes}}} +"/b":{{}}')
    removals = "".join(f'-"/a/n{number}"' for number in names)
    mk.commit("", removals)
    calls = 0

    def count_call(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    text = removals + "".join(f'^"/b/p{number}":1' for number in names)
    sys.setprofile(count_call)
    try:
        mk.commit("", text, base)
    finally:
        sys.setprofile(None)
    mk.commit("", '-"/a" -"/b"')
    return calls


def test_the_work_grows_with_the_text_not_with_its_square(opened: Instances) -> None:
    mk = MicroKernel(opened())
    assert calls_for(mk, 800) < 6 * calls_for(mk, 200)
