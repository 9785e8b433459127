"""Change texts on an older base: which removals may have been made by the other side, and which conflict."""

from __future__ import annotations

import json

import pytest

from hbasemk import ConflictError
from tests.microkernel.conftest import Cluster

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
def test_a_removal_that_other_operations_lean_on_conflicts_when_both_sides_made_it(mk: Cluster, text: str) -> None:
    base = mk.commit("", TREE)
    head = mk.commit("", '-"/a/b"', base)
    with pytest.raises(ConflictError):
        mk.commit("", text, base)
    assert mk.get_head_revision() == head


def test_removals_of_what_is_gone_are_allowed_beside_unrelated_operations(mk: Cluster) -> None:
    base = mk.commit("", TREE)
    mk.commit("", '-"/a/b"', base)
    made = mk.commit("", '-"/a/b" *"/a/c":"/z" ^"/a/n":1 +"/a/bb":{}', base)
    found = json.loads(mk.get_nodes("/", made, 9))  # type: ignore[arg-type]
    assert found["a"] == {"n": 1, ":childNodeCount": 2, "bb": {":childNodeCount": 0}, "c": {":childNodeCount": 0}}
    assert "z" in found


def test_a_property_that_is_gone_meanwhile_may_be_removed(mk: Cluster) -> None:
    base = mk.commit("", TREE)
    mk.commit("", '^"/p/x":null')
    head = mk.get_head_revision()
    assert mk.commit("", '-"/p/x"', base) == head
    made = mk.commit("", '-"/p/x" -"/p/y"', base)
    assert json.loads(mk.get_nodes("/p", made, 0)) == {":childNodeCount": 0}  # type: ignore[arg-type]
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
