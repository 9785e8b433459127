"""A change without net effect creates no revision, even if it moves nodes back and forth."""

from __future__ import annotations

import pytest

from hbasemk import ConflictError
from tests.support.microkernel import Cluster

TREE = '+"/a":{"p":1} +"/b":{"c":{"n":1.10}}'
WITHOUT_EFFECT = [
    '-"/a" +"/a":{"p":1}',
    '>"/b":"/z" >"/z":"/b"',
    '-"/b" +"/b":{"c":{"n":1.10}}',
    '*"/a":"/x" -"/a" >"/x":"/a" ^"/b/p":1 ^"/b/p":null',
]


@pytest.mark.parametrize("text", WITHOUT_EFFECT)
def test_a_text_that_restores_the_tree_returns_the_head(mk: Cluster, text: str) -> None:
    base = mk.commit("", TREE)
    assert mk.commit("", text) == base
    assert mk.commit("", text, base) == base
    head = mk.commit("", '+"/elsewhere":{}')
    assert mk.commit("", text, base) == head == mk.get_head_revision()
    branch = mk.commit("", '^"/a/p":2', mk.branch(base))
    text = text.replace('"p":1', '"p":2')
    assert mk.commit("", text, branch) == branch


@pytest.mark.parametrize("text", ['-"/a" +"/a":{"p":2}', '-"/b" +"/b":{"c":{"n":1.1}}', '-"/b" +"/b":{}', '>"/b":"/z"'])
def test_a_text_that_restores_another_node_creates_a_revision(mk: Cluster, text: str) -> None:
    base = mk.commit("", TREE)
    assert mk.commit("", text) == mk.get_head_revision() != base


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ('^"/a/p":2', '-"/a" +"/a":{"p":1}'),
        ('-"/a"', '-"/a" +"/a":{"p":1}'),
        ('+"/b/c/d":{}', '>"/b":"/z" >"/z":"/b"'),
    ],
)
def test_restoring_a_value_that_trunk_changed_since_the_base_conflicts(mk: Cluster, theirs: str, ours: str) -> None:
    base = mk.commit("", TREE)
    head = mk.commit("", theirs)
    with pytest.raises(ConflictError):
        mk.commit("", ours, base)
    assert mk.get_head_revision() == head


def test_merging_a_branch_that_restores_the_tree_returns_the_head(mk: Cluster) -> None:
    mk.commit("", TREE)
    branch = mk.commit("", '-"/a"', mk.branch())
    branch = mk.commit("", '+"/a":{"p":1}', branch)
    head = mk.commit("", '+"/elsewhere":{}')
    assert mk.merge(branch) == head == mk.get_head_revision()
    other = mk.commit("", '-"/a"', mk.branch())
    other = mk.commit("", '+"/a":{"p":2}', other)
    assert mk.merge(other) == mk.get_head_revision() != head
