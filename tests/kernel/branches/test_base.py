"""The base of a branch: the exact snapshot of trunk on which it was built, in every process."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest

from hbasemk import Change, MicroKernel, Repository
from hbasemk.store.memory import MemoryStore
from tests.support.repositories import Instances, instances


@pytest.fixture(params=["one order", "orders of instances"])
def opened(request: pytest.FixtureRequest) -> Iterator[Instances]:
    """Opens instances on one repository, whose store orders all commits or not, as SQLite and HBase."""
    shared = MemoryStore(transactions=request.param == "one order")
    with instances(lambda: copy.copy(shared)) as made:
        yield made


def draft(repo: Repository, other: Repository) -> str:
    """Begin a branch on a snapshot whose revision has a lower id than another one in it; return its newest revision."""
    repo.run(lambda tx: tx.add("/a", {"title": "old"}))
    other.refresh()
    other.run(lambda tx: tx.add("/lower"))
    # This commit has the higher id, and is visible in its process before the lower one.
    with repo.transaction("higher", base=repo.head) as tx:
        tx.add("/higher")
    repo.refresh()
    branch = repo.branch("draft")
    branch.run(lambda tx: tx.set("/a", "title", "new"))
    return branch.revision


def test_every_process_sees_only_the_changes_of_the_branch(opened: Instances) -> None:
    one, two = opened(), opened()
    revision = draft(one, two)
    one.run(lambda tx: tx.add("/later"))
    changes = [Change("/a", {"title": "old"}, {"title": "new"})]
    for repo in (one, two, opened()):
        branch = repo.resume_branch(revision)
        assert branch.base.children("/") == ["a", "higher", "lower"]
        assert list(repo.diff(branch.base, branch.head)) == changes
        assert [change.path for change in repo.diff(branch.base)] == ["/later"]


def test_the_microkernel_shows_only_the_changes_of_the_branch_by_its_base(opened: Instances) -> None:
    one, two = opened(), opened()
    revision = draft(one, two)
    one.run(lambda tx: tx.add("/later"))
    for repo in (one, two, opened()):
        (found,) = repo.branches()
        kernel = MicroKernel(repo)
        assert kernel.diff(found.base, revision) == '^"/a/title":"new"'
        assert kernel.diff(revision, found.base) == '^"/a/title":"old"'
        repo.refresh()
        assert kernel.diff(None, revision) == '-"/later"\n^"/a/title":"new"'


def test_the_journal_up_to_a_branch_has_every_revision_that_the_branch_contains(opened: Instances) -> None:
    one, two = opened(), opened()
    first = one.head.revision
    revision = draft(one, two)
    one.run(lambda tx: tx.add("/later"))
    for repo in (one, two, opened()):
        repo.refresh()
        entries = json.loads(MicroKernel(repo).get_journal(first, revision))
        changes = sorted(entry["changes"] for entry in entries[1:])
        added = ['+"/a":{"title":"old"}', '+"/higher":{}', '+"/lower":{}']
        assert changes == [*added, '^"/a/title":"new"']


def test_a_rebase_changes_the_base(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a"))
    branch = repo.branch()
    assert branch.base == repo.head
    branch.run(lambda tx: tx.add("/a/b"))
    repo.run(lambda tx: tx.add("/c"))
    assert branch.base.children("/") == ["a"]
    branch.rebase()
    assert branch.base == repo.head
    assert [change.path for change in repo.diff(branch.base, branch.head)] == ["/a/b"]
    branch.merge()
    assert branch.base.children("/") == ["a", "c"]
