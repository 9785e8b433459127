"""Harder rebases: existing markers, and names that would be both a property and a child."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hbasemk import BranchError, ConflictError
from hbasemk.branch import Branch
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.microkernel import Cluster
from tests.support.repositories import Instances


def shown(mk: Cluster, path: str, at: str) -> Any:
    """Return a whole subtree; fails on duplicate keys."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        assert len(found) == len(pairs), pairs
        found.pop(":childNodeCount", None)
        return found

    return json.loads(str(mk.get_nodes(path, at, 20, 0, -1, None)), object_pairs_hook=once)


def test_a_branch_with_markers_is_rebased_again(mk: Cluster) -> None:
    mk.commit("", '+"/x":{"p":1,"q":1}')
    branch = mk.commit("", '^"/x/p":2', mk.branch())
    mk.commit("", '^"/x/p":3')
    branch = mk.rebase(branch)
    branch = mk.commit("", '^"/x/q":2', branch)
    mk.commit("", '^"/x/q":3')
    branch = str(mk.rebase(branch))
    kept = {":conflict": {"changeChangedProperty": {"p": 2, "q": 2}}, "p": 3, "q": 3}
    assert shown(mk, "/x", branch) == kept
    # Again, with no new change on either side of the conflicts.
    mk.commit("", '+"/elsewhere":{}')
    branch = str(mk.rebase(branch))
    assert shown(mk, "/x", branch) == kept
    mk.merge(mk.commit("", '-"/x/:conflict" ^"/x/q":4', branch))
    assert shown(mk, "/x", str(mk.get_head_revision())) == {"p": 3, "q": 4}


def test_a_later_marker_of_the_same_node_takes_the_place_of_the_earlier(mk: Cluster) -> None:
    mk.commit("", '+"/x":{"a":{"old":{"deep":{}}}}')
    branch = mk.commit("", '^"/x/a/p":1 +"/x/a/first":{}', mk.branch())
    mk.commit("", '-"/x/a"')
    branch = str(mk.rebase(branch))
    mk.commit("", '+"/x/a":{"again":{}}')
    branch = mk.commit("", '^"/x/a/p":2', str(mk.rebase(branch)))
    mk.commit("", '-"/x/a"')
    branch = str(mk.rebase(branch))
    assert shown(mk, "/x", branch) == {":conflict": {"changeDeletedNode": {"a": {"again": {}, "p": 2}}}}


@pytest.mark.parametrize(
    ("before", "ours", "theirs", "expected"),
    [
        ("{}", '^"/a/x":1', '+"/a/x":{}', {"x": {}, ":conflict": {"addExistingProperty": {"x": 1}}}),
        ("{}", '+"/a/x":{"k":{}}', '^"/a/x":1', {"x": 1, ":conflict": {"addExistingNode": {"x": {"k": {}}}}}),
        (
            '{"x":1}',
            '^"/a/x":null +"/a/x":{"mine":1}',
            '^"/a/x":9',
            {
                "x": 9,
                ":conflict": {"deleteChangedProperty": {"x": 1}, "addExistingNode": {"x": {"mine": 1}}},
            },
        ),
        (
            '{"x":{"k":1}}',
            '-"/a/x" ^"/a/x":1',
            '^"/a/x/k":9',
            {
                "x": {"k": 9},
                ":conflict": {"deleteChangedNode": {"x": {"k": 1}}, "addExistingProperty": {"x": 1}},
            },
        ),
        ('{"x":{"k":1}}', '-"/a/x" ^"/a/x":1', '^"/a/else":9', {"x": 1, "else": 9}),
        ('{"x":1}', '^"/a/x":null +"/a/x":{}', '^"/a/else":9', {"x": {}, "else": 9}),
        (
            '{"x":1}',
            '^"/a/x":2',
            '^"/a/x":null +"/a/x":{}',
            {"x": {}, ":conflict": {"changeDeletedProperty": {"x": 2}}},
        ),
    ],
)
def test_a_name_stays_a_property_or_a_child(
    mk: Cluster, before: str, ours: str, theirs: str, expected: dict[str, Any]
) -> None:
    mk.commit("", f'+"/a":{before}')
    branch = mk.commit("", ours, mk.branch())
    mk.commit("", theirs)
    branch = str(mk.rebase(branch))
    assert shown(mk, "/a", branch) == expected
    if ":conflict" in expected:
        branch = mk.commit("", '-"/a/:conflict"', branch)
    mk.merge(branch)
    expected = {name: value for name, value in expected.items() if name != ":conflict"}
    assert shown(mk, "/a", str(mk.get_head_revision())) == expected


def test_a_node_that_replaces_one_that_trunk_changed_is_marked(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"old": 1}))
    branch = repo.branch()
    branch.run(lambda tx: (tx.remove("/a"), tx.add("/a", {"new": "mine"}), tx.add("/a/below")))
    repo.run(lambda tx: tx.set("/a", "x", 2))
    assert branch.rebase() == ["/:conflict"]
    found = {node.path: dict(node) for node in branch.head.walk()}
    assert found["/a"] == {"old": 1, "x": 2}
    assert found["/:conflict/deleteChangedNode/a"] == {"old": 1}
    assert found["/:conflict/addExistingNode/a"] == {"new": "mine"}
    assert "/:conflict/addExistingNode/a/below" in found


def test_a_deep_new_chain_is_rebased_in_few_calls(opened: Instances) -> None:
    store = CountingStore(opened.new_store())
    repo = opened(store)
    branch = repo.branch()
    deep = 200
    branch.run(lambda tx: [tx.add("/n" * level) for level in range(1, deep + 1)])
    repo.run(lambda tx: tx.add("/elsewhere"))
    store.take()
    assert branch.rebase() == []
    assert sum(store.take().values()) < 30
    assert "/n" * deep in branch.head


def test_a_branch_is_rebased_to_a_larger_view_at_the_same_revision(opened: Instances) -> None:
    store = FaultyStore(opened.new_store())
    first, slow, other = opened(), opened(store), opened()
    first.run(lambda tx: tx.add("/c", {"n": 0, "m": 0}))
    other.refresh()
    branches: list[Branch] = []

    def before(call: Call) -> None:
        if call.method in ("write_if", "write") and call.table == "nodes":
            # The slow writer has its id and continues. A higher id commits first, and a branch begins on that one only.
            store.before = None
            first.run(lambda tx: tx.set("/c", "m", 1))
            branches.append(first.branch())
            branches[0].run(lambda tx: tx.set("/c", "n", 7))

    store.before = before
    slow.run(lambda tx: tx.set("/c", "n", 1))
    other.refresh()
    assert dict(other.head["/c"]) == {"n": 1, "m": 1}
    # Where the store orders all writes, the revision that commits last is also the last in every view.
    assert (other.head.revision == first.head.revision) != store.supports_transactions
    branch = other.resume_branch(branches[0].revision)
    with pytest.raises(ConflictError):
        branch.merge()
    assert branch.rebase() == ["/c/:conflict"]
    assert branch.revision != branches[0].revision
    stands = branch.revision
    assert branch.rebase() == ["/c/:conflict"]
    assert branch.revision == stands
    branch.run(lambda tx: (tx.remove("/c/:conflict"), tx.set("/c", "n", 7)))
    branch.merge()
    assert dict(first.refresh()["/c"]) == {"n": 7, "m": 1}


def test_a_rebase_lists_exactly_the_markers_that_a_merge_refuses(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.add("/a", {"n": 0}), tx.add("/a/:conflict", {"trunk's": 1})))
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/a/:conflict", "trunk's", 2))
    repo.run(lambda tx: tx.add("/b"))
    assert branch.rebase() == []
    branch.run(lambda tx: tx.set("/a", "n", 1))
    repo.run(lambda tx: tx.set("/a", "n", 2))
    assert branch.rebase() == ["/a/:conflict"]
    with pytest.raises(BranchError, match="conflict markers"):
        branch.merge()
    branch.run(lambda tx: tx.remove("/a/:conflict/changeChangedProperty"))
    branch.merge()
    assert dict(repo.refresh()["/a/:conflict"]) == {"trunk's": 2}


def test_a_rebase_does_not_list_markers_inside_of_others(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/m", {"x": 0}))
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/m", "x", "mine"))
    repo.run(lambda tx: tx.set("/m", "x", 1))
    assert branch.rebase() == ["/m/:conflict"]
    repo.run(lambda tx: tx.remove("/m"))
    markers = branch.rebase()
    assert markers == ["/:conflict"]
    branch.run(lambda tx: [tx.remove(marker) for marker in markers])
    branch.merge()
    assert repo.refresh().children("/") == []
