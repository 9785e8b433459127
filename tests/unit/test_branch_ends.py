"""Branches that end, or go on, while somebody else merges, rebases or reads them: told to everybody, nothing by halves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk import BranchError, Repository
from hbasemk.kernel import schema
from hbasemk.store.abc import Scan, scan_all
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Instances, tree

READING = ("read", "nodes")
WRITING = ("write", "nodes")


def meanwhile(store: FaultyStore, when: tuple[str, str], do: Callable[[], object]) -> None:
    """Have something done just before the next call of a kind; writing at one moment is a kind of writing."""

    def before(call: Call) -> None:
        if (call.method.removesuffix("_if"), call.table) == when:
            store.before = None
            do()

    store.before = before


def heads(repo: Repository) -> list[bytes]:
    """What is told of the heads of all branches, oldest branch first."""
    rows = scan_all(repo.store, schema.JOURNAL, Scan(None, None, 1000, columns=(schema.BRANCH_HEAD,)))
    return [cell.value for row in rows for cell in row.cells]


def live(repo: Repository) -> list[str]:
    """The newest revisions of the branches that have not ended."""
    return [head.hex() for head in heads(repo) if len(head) == 8]


@pytest.mark.parametrize("how", ["merge", "rebase"])
def test_a_branch_swept_while_it_is_read_is_not_merged_or_rebased_in_part(opened: Instances, how: str) -> None:
    store = FaultyStore(opened.new_store())
    repo, other = opened(store), opened()
    repo.run(lambda tx: tx.add("/a"))
    branch = repo.branch()
    branch.run(lambda tx: [tx.add(f"/a/{number}") for number in range(3)])
    repo.run(lambda tx: tx.add("/b"))
    meanwhile(store, READING, lambda: other.sweep_branches(0))
    with pytest.raises(BranchError, match="abandoned"):
        getattr(branch, how)()
    assert store.before is None
    assert tree(other) == {"/": {}, "/a": {}, "/b": {}}
    assert live(other) == []


@pytest.mark.parametrize("when", [READING, WRITING])
def test_a_commit_to_a_branch_during_its_rebase_makes_that_fail(opened: Instances, when: tuple[str, str]) -> None:
    store = FaultyStore(opened.new_store())
    repo, other = opened(store), opened()
    repo.run(lambda tx: tx.add("/a"))
    branch = repo.branch()
    branch.run(lambda tx: tx.add("/a/mine"))
    repo.run(lambda tx: tx.add("/b"))
    others = other.branch(revision=branch.revision)
    before = branch.revision
    meanwhile(store, when, lambda: others.run(lambda tx: tx.add("/a/others")))
    with pytest.raises(BranchError, match=f"goes on at {others.revision[:4]}"):
        branch.rebase()
    assert branch.revision == before
    assert live(repo) == [others.revision]
    others.merge()
    assert tree(repo).keys() == {"/", "/a", "/b", "/a/mine", "/a/others"}


@pytest.mark.parametrize("when", [READING, WRITING])
def test_a_commit_to_a_branch_during_its_merge_is_told(opened: Instances, when: tuple[str, str]) -> None:
    store = FaultyStore(opened.new_store())
    repo, other = opened(store), opened()
    repo.run(lambda tx: tx.add("/a"))
    branch = repo.branch()
    branch.run(lambda tx: tx.add("/a/mine"))
    others = other.branch(revision=branch.revision)
    meanwhile(store, when, lambda: others.run(lambda tx: tx.add("/a/others")))
    if when == READING:
        with pytest.raises(BranchError, match="is not the newest of its branch: its branch goes on at"):
            branch.merge()
        assert tree(other).keys() == {"/", "/a"}
        others.merge()
        assert tree(other).keys() == {"/", "/a", "/a/mine", "/a/others"}
        return
    with pytest.raises(BranchError, match="is merged into trunk as .*, but .* goes on at") as told:
        branch.merge()
    assert others.revision in str(told.value)
    assert repo.refresh().revision in str(told.value)
    assert tree(other).keys() == {"/", "/a", "/a/mine"}
    assert live(repo) == [others.revision]


def test_changes_after_an_empty_merge_are_merged(opened: Instances) -> None:
    repo = opened()
    with repo.branch() as branch:
        branch.merge()
        branch.run(lambda tx: tx.add("/x"))
    assert tree(repo).keys() == {"/", "/x"}
    with repo.branch() as branch:
        branch.run(lambda tx: tx.add("/y"))
        first = branch.revision
        branch.run(lambda tx: tx.remove("/y"))
        branch.merge()
        branch.reset(first)
    assert tree(repo).keys() == {"/", "/x", "/y"}
    with repo.branch() as branch:
        branch.run(lambda tx: tx.add("/z"))
        branch.merge()
    assert repo.refresh().revision == branch.merged
