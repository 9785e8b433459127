"""The contract of the MicroKernel interface: branches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hbasemk import BranchError, ConflictError
from tests.support.microkernel import Cluster, nodes


def test_a_branch_is_private_until_it_is_merged_as_a_whole(mk: Cluster) -> None:
    base = str(mk.get_head_revision())
    root = str(mk.branch(base))
    one = str(mk.commit("", '+"/branch":{}', root))
    two = str(mk.commit("", '+"/branch/foo":{}', one))
    mk.commit("", '+"/trunk":{}')
    assert not mk.node_exists("/branch")
    assert mk.node_exists("/branch/foo", two)
    assert not mk.node_exists("/branch/foo", one)
    assert not mk.node_exists("/trunk", two)
    assert two not in str(mk.get_revision_history(0, -1))
    merged = str(mk.merge(two, "merged"))
    assert merged == mk.get_head_revision()
    assert mk.node_exists("/branch/foo")
    assert mk.node_exists("/trunk")
    entry = json.loads(mk.get_journal(merged, merged))[0]  # type: ignore[arg-type]
    assert entry["msg"] == "merged"
    assert entry["changes"].replace(" ", "").strip() == '+"/branch":{"foo":{}}'
    along = json.loads(mk.get_journal(one, two))  # type: ignore[arg-type]
    assert [(entry["id"], entry["branchRootId"]) for entry in along] == [(one, base), (two, base)]
    assert mk.node_exists("/branch/foo", two)


def test_a_branch_changes_and_removes(mk: Cluster) -> None:
    mk.commit("", '+"/t":{"p1":1,"p2":2,"c":{"g":{}}}')
    branch = str(mk.branch())
    branch = str(mk.commit("", '^"/t/p1":"new" ^"/t/p2":null ^"/t/p3":3 -"/t/c"', branch))
    mk.commit("", '+"/t/other":{} ^"/t/p4":4')
    mk.merge(branch)
    assert nodes(mk, "/t") == {"p1": "new", "p3": 3, "p4": 4, ":childNodeCount": 1, "other": {":childNodeCount": 0}}


def test_a_conflicting_merge_raises_and_leaves_both_sides(mk: Cluster) -> None:
    mk.commit("", '+"/t":{"p":1}')
    branch = str(mk.commit("", '^"/t/p":"branch" +"/mine":{}', mk.branch()))
    mk.commit("", '^"/t/p":"trunk"')
    head = mk.get_head_revision()
    with pytest.raises(ConflictError):
        mk.merge(branch)
    assert mk.get_head_revision() == head
    assert not mk.node_exists("/mine")
    assert nodes(mk, "/t", branch)["p"] == "branch"
    rebased = str(mk.rebase(branch))
    assert rebased != branch
    with pytest.raises(BranchError, match="conflict markers"):
        mk.merge(rebased)
    cleaned = mk.commit("", '-"/t/:conflict"', rebased)
    mk.merge(cleaned)
    assert nodes(mk, "/t")["p"] == "trunk"
    assert mk.node_exists("/mine")


def test_a_branch_without_net_change_leaves_the_head(mk: Cluster) -> None:
    head = mk.get_head_revision()
    branch = mk.commit("", '+"/c":{}', mk.branch())
    branch = mk.commit("", '-"/c"', branch)
    assert mk.merge(branch) == head == mk.get_head_revision()


def test_wrong_revisions_for_branches_are_named_in_errors(mk: Cluster) -> None:
    trunk = str(mk.get_head_revision())
    root = str(mk.branch())
    first = str(mk.commit("", '+"/b":{}', root))
    second = str(mk.commit("", '+"/b/c":{}', first))
    other = str(mk.branch())
    for call in (
        lambda: mk.branch(first),
        lambda: mk.merge(trunk),
        lambda: mk.rebase(trunk),
        lambda: mk.reset(trunk, trunk),
        lambda: mk.commit("", '+"/x":{}', first),
        lambda: mk.merge(first),
        lambda: mk.reset(second, trunk),
        lambda: mk.reset(second, other),
        lambda: mk.get_journal(first, trunk),
        lambda: mk.get_journal(other, second),
    ):
        with pytest.raises(BranchError):
            call()
    assert nodes(mk, "/b", second) == {":childNodeCount": 1, "c": {":childNodeCount": 0}}
    mk.merge(second)
    for call in (lambda: mk.merge(second), lambda: mk.commit("", '+"/x":{}', second)):
        with pytest.raises(BranchError, match="merged"):
            call()


def test_reset_returns_a_branch_to_an_earlier_revision(mk: Cluster) -> None:
    root = str(mk.branch())
    first = str(mk.commit("", '+"/r":{"p":1}', root))
    second = str(mk.commit("", '^"/r/p":2 +"/r/c":{}', first))
    assert mk.reset(second, second) == second
    back = str(mk.reset(second, first))
    assert nodes(mk, "/r", back) == {"p": 1, ":childNodeCount": 0}
    third = mk.commit("", '^"/r/p":3', back)
    mk.merge(third)
    assert nodes(mk, "/r") == {"p": 3, ":childNodeCount": 0}


REBASES = [
    # branch, trunk, the marker's owner, the marker, the branch's tree afterwards
    ('^"/x/y/q":42', '^"/x/y/q":99', "/x/y", {"addExistingProperty": {"q": 42}}, ("q", 99)),
    ('^"/x/y/p":99', '^"/x/y/p":null', "/x/y", {"changeDeletedProperty": {"p": 99}}, ("p", None)),
    ('^"/x/y/p":null', '^"/x/y/p":99', "/x/y", {"deleteChangedProperty": {"p": 42}}, ("p", 99)),
    ('^"/x/y/p":41', '^"/x/y/p":99', "/x/y", {"changeChangedProperty": {"p": 41}}, ("p", 99)),
    ('^"/x/y/p":null', '^"/x/y/p":null', "/x/y", {"deleteDeletedProperty": {"p": 42}}, ("p", None)),
    ('+"/x/a":{}', '+"/x/a":{"b":{}}', "/x", {"addExistingNode": {"a": {}}}, None),
    ('-"/x/y"', '^"/x/y/p":1', "/x", {"deleteChangedNode": {"y": {"p": 42}}}, ("p", 1)),
    ('^"/x/r":42', '-"/x"', "/", {"changeDeletedNode": {"x": {"r": 42, "y": {"p": 42}}}}, None),
    ('+"/x/y/new":{}', '-"/x/y"', "/x", {"changeDeletedNode": {"y": {"p": 42, "new": {}}}}, None),
    ('-"/x/y"', '-"/x/y"', "/x", {"deleteDeletedNode": {"y": {"p": 42}}}, None),
]


def plain(found: Any) -> Any:
    """A tree without its counts."""
    if not isinstance(found, dict):
        return found
    return {name: plain(value) for name, value in found.items() if name != ":childNodeCount"}


@pytest.mark.parametrize(
    ("ours", "theirs", "owner", "marker", "left"), REBASES, ids=[next(iter(row[3])) for row in REBASES]
)
def test_rebase_takes_trunks_side_and_marks_the_conflict(
    mk: Cluster, ours: str, theirs: str, owner: str, marker: dict[str, Any], left: tuple[str, Any] | None
) -> None:
    mk.commit("", '+"/x":{"y":{"p":42}}')
    branch = mk.commit("", ours, mk.branch())
    mk.commit("", theirs)
    branch = str(mk.rebase(branch))
    assert plain(nodes(mk, owner.rstrip("/") + "/:conflict", branch)) == marker
    if left is not None:
        assert nodes(mk, "/x/y", branch).get(left[0]) == left[1]


def test_rebase_without_conflict_takes_both_sides(mk: Cluster) -> None:
    mk.commit("", '+"/x":{"y":{"p":42}}')
    branch = mk.commit("", '^"/x/q":43 +"/x/new":{"deep":{"er":{}}} -"/x/y"', mk.branch())
    head = mk.commit("", '^"/x/p":42 +"/x/trunk":{}')
    branch = mk.rebase(branch, head)
    assert mk.rebase(branch, head) == branch
    expected = {"p": 42, "q": 43, "trunk": {}, "new": {"deep": {"er": {}}}}
    assert plain(nodes(mk, "/x", str(branch))) == expected
    mk.merge(branch)
    assert plain(nodes(mk, "/x")) == expected


def test_the_same_change_on_both_sides_is_not_a_conflict(mk: Cluster) -> None:
    mk.commit("", '+"/x":{"p":1}')
    branch = mk.commit("", '^"/x/p":2 +"/x/same":{"k":1}', mk.branch())
    mk.commit("", '^"/x/p":2 +"/x/same":{"k":1}')
    branch = mk.rebase(branch)
    assert not mk.node_exists("/x/:conflict", branch)
    assert mk.merge(branch) == mk.get_head_revision()
