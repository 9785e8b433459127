"""Bases of changes: only trunk snapshots of the same repository object are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

import hbasemk
from hbasemk import BranchError, NodeExistsError, NodeNotFoundError, Repository, Snapshot, Transaction
from hbasemk.errors import ClosedError
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddEncoded, Increment
from hbasemk.kernel.commit.staging import Staging
from hbasemk.repository import instance_of
from hbasemk.snapshot import view_of
from tests.support.forked import in_a_child
from tests.support.repositories import Instances, problems


def test_trunk_commit_on_a_branch_view_is_rejected(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/n", {"c": 1}))
    branch = repo.branch()
    branch.run(lambda tx: (tx.add("/br"), tx.set("/n", "c", 100)))
    with pytest.raises(BranchError, match="the base of a trunk commit must be a trunk revision") as caught:
        repo.transaction(base=branch.head)
    assert caught.value.revision == branch.revision
    instance = instance_of(repo)
    view = view_of(instance, branch.head)
    for change in (AddEncoded("/br/child", {}), Increment("/n", "c", 1)):
        with pytest.raises(BranchError, match=branch.revision):
            instance.commit_on(view, OperationList([change]), "")
    assert repo.refresh()["/n"]["c"] == 1
    assert "/br" not in repo.head


def test_snapshot_of_another_repository_is_rejected_as_base(opened: Instances) -> None:
    one, other = opened(), opened()
    one.run(lambda tx: tx.add("/n", {"c": 0}))
    other.refresh()
    first, second = one.transaction(base=one.head), other.transaction(base=other.head)
    first.add("/x")
    second.set("/n", "c", 50)
    first.commit()
    second.commit()
    stale = one.head
    assert stale["/n"]["c"] == 0
    other.refresh()
    branch = other.branch()
    for use in (
        lambda: other.transaction(base=stale),
        lambda: other.branch(base=stale),
        lambda: branch.rebase(stale),
        lambda: list(other.diff(stale)),
        lambda: list(other.diff(other.head, stale)),
        lambda: list(hbasemk.diff(stale, other.head)),
    ):
        with pytest.raises(ValueError, match="belongs to another Repository object"):
            use()
    base = other.at(stale.revision)
    with other.transaction(base=base) as tx:
        tx.set("/n", "other", 1)
    assert other.head["/n"]["c"] == 50


def test_snapshot_of_the_parent_process_is_rejected_as_base(tmp_path: Path) -> None:
    with hbasemk.connect(f"sqlite:///{tmp_path / 'content.db'}", poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/n", {"c": 0}))
        parents = repo.head

        def work() -> None:
            with pytest.raises(ValueError, match="before a fork"):
                repo.transaction(base=parents)
            again: Snapshot = repo.at(parents.revision)
            with repo.transaction(base=again) as tx:
                tx.increment("/n", "c")
            repo.close()

        in_a_child(work)
        assert repo.refresh()["/n"]["c"] == 1
        assert problems(repo) == []


def test_transaction_has_its_revision_after_every_kind_of_commit(opened: Instances) -> None:
    repo: Repository = opened()
    transactions: list[hbasemk.Transaction] = []

    def change(tx: hbasemk.Transaction) -> str:
        transactions.append(tx)
        tx.add("/a")
        return "done"

    assert repo.run(change) == "done"
    assert transactions[-1].revision == repo.head.revision
    with repo.transaction() as tx:
        tx.add("/b")
    assert tx.revision == repo.head.revision


def test_property_is_read_by_path_and_name(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.set("/", "n", "the root's"), tx.add("/m", {"n": 1})))
    with repo.transaction() as tx:
        assert tx["/m", "n"] == 1
        for wrong in ("/n", "/node", ("/m",)):
            with pytest.raises(TypeError, match=r"properties\(path\)"):
                tx[wrong]  # type: ignore[index]


def test_abandoning_a_branch_affects_no_other_branch(opened: Instances) -> None:
    repo = opened()
    kept, given_up = repo.branch(), repo.branch()
    given_up.run(lambda tx: tx.add("/gone"))
    kept.run(lambda tx: tx.add("/kept"))
    given_up.abandon()
    for use in (given_up.abandon, given_up.merge, lambda: given_up.run(lambda tx: tx.add("/more"))):
        with pytest.raises(BranchError, match="abandoned"):
            use()
    kept.merge()
    assert repo.refresh().children("/") == ["kept"]
    assert len(repo.sweep_branches(0)) == 2
    assert repo.refresh().children("/") == ["kept"]


def test_a_transaction_that_failed_once_commits_nothing(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/from", {"n": 5}))

    def half_a_move(tx: Transaction) -> None:
        tx.increment("/from", "n", -5)
        tx.increment("/to", "n", 5)
        with pytest.raises(NodeNotFoundError, match="/to"):
            tx.get("/from", "n")
        tx.set("/from", "touched", True)

    with pytest.raises(NodeNotFoundError, match="/to"):
        repo.run(half_a_move)
    with pytest.raises(NodeNotFoundError, match="/to"), repo.transaction() as tx:
        half_a_move(tx)
    branch = repo.branch()
    with pytest.raises(NodeNotFoundError, match="/to"):
        branch.run(half_a_move)
    branch.abandon()
    tx = repo.transaction()
    tx.add("/from")
    for _ in range(2):
        with pytest.raises(NodeExistsError):
            tx.exists("/")
    with pytest.raises(NodeExistsError):
        tx.commit()
    assert tx.revision is None
    assert dict(repo.refresh()["/from"]) == {"n": 5}


def test_a_transaction_that_was_interrupted_commits_nothing(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"n": 1}))
    with pytest.raises(ClosedError, match="interrupted"), repo.transaction() as tx:
        tx.set("/a", "n", 2)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Staging, "apply", interrupted)
            tx.get("/a", "n")
        with pytest.raises(ClosedError, match="begin another"):
            tx.get("/a", "n")
    assert repo.refresh()["/a"]["n"] == 1


def interrupted(*_: object) -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt
