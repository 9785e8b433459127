"""The markers of a rebase: a conflict is recorded wherever the branch changed the tree, and no value is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import BranchError, ConflictError, Transaction
from hbasemk.branch import Branch
from hbasemk.format import limits
from tests.support.repositories import Instances

Change = Callable[[Transaction], object]


def rebased(opened: Instances, before: Change, mine: Change, theirs: Change) -> tuple[Branch, list[str]]:
    """Return a branch that conflicts with trunk, and the markers of its rebase."""
    repo = opened()
    repo.run(before)
    branch = repo.branch()
    branch.run(mine)
    repo.run(theirs)
    with pytest.raises(ConflictError):
        branch.merge()
    return branch, branch.rebase()


def shown(branch: Branch) -> dict[str, dict[str, Any]]:
    return {node.path: dict(node) for node in branch.head.walk() if ":conflict" in node.path}


@pytest.mark.parametrize(
    ("before", "marker"),
    [
        (lambda tx: tx.add("/a", {"p": 1, ":conflict": "x"}), "/:conflict"),
        (
            lambda tx: (tx.add("/a", {"p": 1}), tx.add("/a/:conflict", {"changeChangedProperty": 1})),
            "/a/:conflict",
        ),
        (
            lambda tx: (
                tx.add("/a", {"p": 1}),
                tx.add("/a/:conflict"),
                tx.add("/a/:conflict/changeChangedProperty"),
                tx.add("/a/:conflict/changeChangedProperty/p"),
            ),
            "/a/:conflict",
        ),
    ],
    ids=["the name of the marker", "the kind", "the property"],
)
def test_a_name_that_is_taken_moves_the_marker(opened: Instances, before: Change, marker: str) -> None:
    branch, markers = rebased(opened, before, lambda tx: tx.set("/a", "p", "mine"), lambda tx: tx.set("/a", "p", 3))
    assert markers == [marker]
    assert shown(branch)[f"{marker}/changeChangedProperty-2"] == {":path": "/a", "p": "mine"}
    assert branch.head["/a"]["p"] == 3
    with pytest.raises(BranchError, match="conflict markers"):
        branch.merge()
    branch.run(lambda tx: (tx.remove(f"{marker}/changeChangedProperty-2"), tx.set("/a", "p", 4)))
    branch.run(lambda tx: tx.remove(marker) if marker == "/:conflict" else None)
    branch.merge()


def test_moved_markers_of_several_nodes_are_kept_apart_through_two_rebases(opened: Instances) -> None:
    repo = opened()
    # "!" sorts before, and "z" after the marker.
    paths = ("/!/x", "/z/x", "/z/y")
    repo.run(lambda tx: [tx.add(path) for path in ("/!", "/z")])
    repo.run(lambda tx: [tx.add(path, {"p": 0, "q": 0, ":conflict": 1}) for path in paths])
    repo.run(lambda tx: [tx.set(path, ":conflict", 1) for path in ("/!", "/z")])
    branch = repo.branch()
    branch.run(lambda tx: [tx.set(path, "p", path) for path in paths[1:]])
    repo.run(lambda tx: [tx.set(path, "p", 1) for path in paths[1:]])
    assert branch.rebase() == ["/:conflict"]
    branch.run(lambda tx: [tx.set(path, "q", path) for path in paths])
    repo.run(lambda tx: [tx.set(path, "q", 1) for path in paths])
    assert branch.rebase() == ["/:conflict"]
    kept = [found for path, found in shown(branch).items() if path.startswith("/:conflict/changeChangedProperty-")]
    assert sorted(kept, key=lambda one: str(one[":path"])) == [
        {":path": "/!/x", "q": "/!/x"},
        {":path": "/z/x", "p": "/z/x", "q": "/z/x"},
        {":path": "/z/y", "p": "/z/y", "q": "/z/y"},
    ]


def test_the_marker_of_a_node_moves_too_and_a_later_one_replaces_it(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.add("/a", {":conflict": 1}), tx.add("/a/b")))
    branch = repo.branch()
    branch.run(lambda tx: (tx.set("/a/b", "p", 1), tx.add("/a/b/below")))
    repo.run(lambda tx: tx.remove("/a/b"))
    assert branch.rebase() == ["/:conflict"]
    holder = "/:conflict/changeDeletedNode-2"
    assert shown(branch) == {
        "/:conflict": {},
        holder: {":path": "/a/b"},
        f"{holder}/b": {"p": 1},
        f"{holder}/b/below": {},
    }
    repo.run(lambda tx: tx.add("/a/b", {"again": 1}))
    branch.rebase()
    branch.run(lambda tx: tx.set("/a/b", "p", 2))
    repo.run(lambda tx: tx.remove("/a/b"))
    assert branch.rebase() == ["/:conflict"]
    assert shown(branch) == {"/:conflict": {}, holder: {":path": "/a/b"}, f"{holder}/b": {"again": 1, "p": 2}}


@pytest.mark.parametrize("levels", [limits.MAX_DEPTH, limits.MAX_DEPTH - 1])
def test_the_marker_of_the_deepest_node_is_higher(opened: Instances, levels: int) -> None:
    deepest = "/n" * levels
    branch, markers = rebased(
        opened,
        lambda tx: [tx.add("/n" * level) for level in range(1, levels + 1)],
        lambda tx: tx.set(deepest, "p", "mine"),
        lambda tx: tx.set(deepest, "p", 3),
    )
    assert markers == ["/n" * (limits.MAX_DEPTH - 2) + "/:conflict"]
    assert shown(branch)[markers[0] + "/addExistingProperty-2"] == {":path": deepest, "p": "mine"}


def test_the_marker_of_a_node_with_the_longest_path_is_higher(opened: Instances) -> None:
    path = "/" + "x" * (limits.MAX_PATH - 1)
    branch, markers = rebased(
        opened, lambda tx: tx.add(path), lambda tx: tx.set(path, "p", "mine"), lambda tx: tx.set(path, "p", 3)
    )
    assert markers == ["/:conflict"]
    assert shown(branch)["/:conflict/addExistingProperty-2"] == {":path": path, "p": "mine"}


def test_a_property_with_a_long_name_is_changed_and_marked_on_a_branch(opened: Instances) -> None:
    # A child of this name would have a path that is too long.
    path, name = "/" + "x" * 20_000, "n" * 20_000
    branch, markers = rebased(
        opened, lambda tx: tx.add(path), lambda tx: tx.set(path, name, "mine"), lambda tx: tx.set(path, name, 3)
    )
    assert markers == [path + "/:conflict"]
    assert shown(branch)[markers[0] + "/addExistingProperty"] == {name: "mine"}


def test_a_conflict_that_fits_nowhere_says_what_to_do(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.set("/", ":conflict", 1), tx.set("/", "p", 1)))
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/", "p", "mine"))
    repo.run(lambda tx: tx.set("/", "p", 3))
    before = branch.revision
    with pytest.raises(BranchError, match="Rename such a property on trunk") as raised:
        branch.rebase()
    assert raised.value.path == "/"
    assert branch.revision == before
    assert [one.revision for one in repo.branches()] == [before]
    # Do what the error says.
    repo.run(lambda tx: tx.unset("/", ":conflict"))
    assert branch.rebase() == ["/:conflict"]
    assert shown(branch)["/:conflict/changeChangedProperty"] == {"p": "mine"}


def test_a_conflict_that_fits_nowhere_because_of_the_branch_says_so(opened: Instances) -> None:
    """The error advised to rename the property on trunk, which has none."""
    repo = opened()
    repo.run(lambda tx: tx.add("/a"))
    branch = repo.branch()
    branch.run(lambda tx: (tx.remove("/a"), tx.set("/", ":conflict", 1)))
    repo.run(lambda tx: tx.remove("/a"))
    with pytest.raises(BranchError, match="Rename such a property on trunk, and on the branch if it is there"):
        branch.rebase()
    # Do what the error says.
    branch.run(lambda tx: (tx.unset("/", ":conflict"), tx.set("/", "mine", 1)))
    assert branch.rebase() == ["/:conflict"]


@pytest.mark.parametrize(
    "mine",
    [lambda tx: tx.unset("/a", "p"), lambda tx: (tx.set("/a", "p", 1), tx.unset("/a", "p"))],
    ids=["unset", "set and unset"],
)
def test_an_unset_of_an_absent_property_that_trunk_added_is_marked(opened: Instances, mine: Change) -> None:
    branch, markers = rebased(opened, lambda tx: tx.add("/a"), mine, lambda tx: tx.set("/a", "p", "theirs"))
    assert markers == ["/a/:conflict"]
    assert shown(branch)["/a/:conflict/deleteAddedProperty"] == {"p": "theirs"}
    branch.run(lambda tx: (tx.remove(markers[0]), tx.unset("/a", "p")))
    branch.merge()
    assert branch.head.children("/a") == []


def test_the_error_of_a_merge_says_what_to_do_with_a_node_that_only_looks_like_a_marker(opened: Instances) -> None:
    repo = opened()
    branch = repo.branch()
    branch.run(lambda tx: tx.add("/:conflict", {"mine": 1}))
    with pytest.raises(BranchError, match="your own node, move it away from the name ':conflict' on the branch"):
        branch.merge()
    branch.run(lambda tx: tx.move("/:conflict", "/mine"))
    branch.merge()
    repo.run(lambda tx: tx.move("/mine", "/:conflict"))
    changing = repo.branch()
    changing.run(lambda tx: tx.set("/:conflict", "mine", 2))
    changing.merge()
    assert dict(repo.head["/:conflict"]) == {"mine": 2}
