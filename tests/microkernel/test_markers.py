"""Nodes named ``:conflict`` prevent a merge if the branch added them, but not if trunk has them."""

from __future__ import annotations

import json

import pytest

from hbasemk import BranchError
from tests.support.microkernel import Cluster


def test_a_conflict_node_of_trunk_may_be_changed_and_moved_past(mk: Cluster) -> None:
    mk.commit("", '+"/x":{":conflict":{"k":1,"c":{}},"p":1}')
    branch = mk.commit("", '^"/x/:conflict/k":2 -"/x/:conflict/c" ^"/x/p":2', mk.branch())
    mk.merge(branch)
    assert json.loads(str(mk.get_nodes("/x/:conflict", None, 9))) == {"k": 2, ":childNodeCount": 0}
    mk.merge(mk.commit("", '-"/x/:conflict"', mk.branch()))
    assert not mk.node_exists("/x/:conflict")


def test_markers_below_a_conflict_node_of_trunk_are_markers_too(mk: Cluster) -> None:
    mk.commit("", '+"/x":{":conflict":{},"p":1}')
    branch = mk.commit("", '^"/x/p":2', mk.branch())
    mk.commit("", '^"/x/p":3')
    branch = mk.rebase(branch)
    with pytest.raises(BranchError, match="/x/:conflict"):
        mk.merge(branch)
    branch = mk.commit("", '-"/x/:conflict/changeChangedProperty" ^"/x/p":4', branch)
    mk.merge(branch)
    assert json.loads(str(mk.get_nodes("/x", None, 0)))["p"] == 4


def test_a_conflict_node_that_was_put_in_the_place_of_trunks_is_a_marker(mk: Cluster) -> None:
    mk.commit("", '+"/x":{":conflict":{}}')
    branch = mk.commit("", '-"/x/:conflict" +"/x/:conflict":{"mine":1}', mk.branch())
    with pytest.raises(BranchError, match="/x/:conflict"):
        mk.merge(branch)
