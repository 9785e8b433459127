"""Repositories: their creation, their background thread, and what their size costs."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hbasemk
import hbasemk.format.revisions
from hbasemk import FormatError, InvalidValueError, Repository, Settings, StoreUnusableError
from hbasemk.format import schema
from hbasemk.repository import instance_of
from hbasemk.store.abc import CellVersion, Column, Delete, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Instances, problems, tree


def test_the_background_thread_sees_commits_of_others() -> None:
    one = hbasemk.connect("memory://seen", poll_interval=0.01)
    two = hbasemk.connect("memory://seen", poll_interval=0.01)
    with one, two:
        one.run(lambda tx: tx.add("/a"))
        assert instance_of(two).wait_for(lambda: "/a" in two.head, 60)
        assert problems(two) == []


def test_the_background_thread_continues_after_an_outage(
    real_store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore(real_store)
    calls: list[Call] = []

    def away(call: Call) -> None:
        calls.append(call)
        raise hbasemk.StoreNotAppliedError("the store is away")

    with Repository(store, poll_interval=0.01, retry_timeout=0.3) as repo:
        store.before = away
        deadline = time.monotonic() + 60
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(hbasemk.StoreNotAppliedError):
            repo.refresh()
        store.before = None
        repo.run(lambda tx: tx.add("/back"))
        assert "/back" in repo.head
    assert "failed; retrying" in caplog.records[0].getMessage()


def test_two_instances_that_create_the_same_repository_concurrently_share_it(opened: Instances) -> None:
    made: list[Repository] = []
    threads = [threading.Thread(target=lambda: made.append(opened(opened.new_store()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len({instance_of(repo).settings for repo in made}) == 1
    for number, repo in enumerate(made):
        repo.run(lambda tx, number=number: tx.add(f"/n{number}"))
    assert len({str(tree(repo)) for repo in made}) == 1


def test_a_creation_that_was_interrupted_is_completed_by_the_next() -> None:
    class Stop(Exception):
        pass

    for steps in range(12):
        shared = MemoryStore()
        store = FaultyStore(shared)
        left = iter(range(steps))

        def before(call: Call, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise Stop

        store.before = before
        with contextlib.suppress(Stop):
            Repository(store, poll_interval=0, owns_store=False).close()
        with Repository(shared, poll_interval=0, owns_store=False) as repo:
            repo.run(lambda tx: tx.add("/a"))
            assert tree(repo) == {"/": {}, "/a": {}}
            assert problems(repo) == []


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(("column", "name"), [(schema.SETTINGS, "settings"), (schema.WATERMARK, "watermark")])
def test_no_repository_is_created_over_revisions_without_settings(create: bool, column: Column, name: str) -> None:
    store = MemoryStore()
    with Repository(store, poll_interval=0, owns_store=False) as repo:
        repo.run(lambda tx: tx.add("/a"))
    (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(column,))])
    (cell,) = row.cells
    store.delete(schema.CLUSTER, [Delete(row.key, [CellVersion(*column, cell.timestamp)])])
    with pytest.raises(FormatError, match=f"has revisions, but no {name}.*restore the tables from a copy"):
        Repository(store, poll_interval=0, owns_store=False, create=create)
    store.write(schema.CLUSTER, [Put(row.key, [NewCell(*column, cell.value)])])
    with Repository(store, poll_interval=0, owns_store=False) as repo:
        assert tree(repo) == {"/": {}, "/a": {}}


def test_create_false_creates_no_repository(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(StoreUnusableError):
        hbasemk.connect(f"sqlite:///{path}", create=False)
    assert not path.exists()


def test_a_newer_format_is_rejected_by_name() -> None:
    store = MemoryStore()
    Repository(store, poll_interval=0, owns_store=False, settings=Settings(epoch_ms=1_600_000_000_000)).close()
    newer = b'{"format": 99, "epochMs": 0, "maxClockSkewMs": 1, "leaseMs": 1, "rootRevision": "0000000000000000"}'
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, newer)])])
    with pytest.raises(FormatError, match="format 99"):
        Repository(store, poll_interval=0)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "content.db",
        "mysql://x",
        "sqlite://content.db",
        "sqlite:///",
        "sqlite:///x?durable=perhaps",
        "sqlite:///x?unknown=1",
        "memory://x?prefix=1",
        "hbase://",
        "hbase://host:port/",
        "hbase://host/path",
        "hbase://host/?prefix=a b",
        "hbase://host/?timeout=soon",
        "memory://?poll_interval=often",
    ],
)
def test_an_invalid_url_is_named_in_the_error(url: str) -> None:
    with pytest.raises(InvalidValueError):
        hbasemk.connect(url)


def test_snapshots_are_mappings() -> None:
    with hbasemk.connect("memory://", poll_interval=0) as repo:
        repo.run(lambda tx: (tx.add("/a", {"list": [1, 2]}), tx.add("/a/b"), tx.add("/c")))
        head = repo.head
        assert list(head) == ["/", "/a", "/c", "/a/b"]
        assert len(head) == 4
        assert "/a" in head
        assert "/none" not in head
        assert head.get("/none") is None
        assert head == repo.at(head.revision)
        node = head["/a"]
        assert dict(node) == {"list": [1, 2]}
        for taken in (node["list"], dict(node.items())["list"], next(iter(node.values()))):
            taken.append(3)  # type: ignore[union-attr]
            assert head["/a"]["list"] == node["list"] == [1, 2]
        assert (node.name, node.path, node.children, node.child("b").path) == ("a", "/a", ["b"], "/a/b")
        with pytest.raises(KeyError):
            node["none"]
        assert [one.path for one in head.walk("/", depth=1)] == ["/", "/a", "/c"]
        assert head.children("/", after="a", limit=1) == ["c"]
        assert problems(repo) == []


def test_a_repository_in_an_argument_of_another_process_says_what_to_pass_instead() -> None:
    """``multiprocessing`` with "spawn" said: cannot pickle '_thread.RLock' object."""
    repo = hbasemk.connect("memory://")
    with (
        repo,
        pytest.raises(TypeError, match=r"cannot pickle <Repository memory.*; pass its URL, and call hbasemk\.connect"),
    ):
        pickle.dumps(repo)


@pytest.mark.parametrize(
    "part",
    [
        lambda repo: repo.head,
        lambda repo: repo.head["/"],
        lambda repo: repo.transaction(),
        lambda repo: repo.branch(),
        lambda repo: repo.watch("/"),
        lambda repo: repo.checkpoint(60),
        lambda repo: repo.blobs,
    ],
    ids=["snapshot", "node", "transaction", "branch", "watch", "checkpoint", "blobs"],
)
def test_a_part_of_a_repository_in_an_argument_of_another_process_says_what_to_pass_instead(
    part: Callable[[hbasemk.Repository], object],
) -> None:
    """A pool of processes said of a node or a snapshot: cannot pickle '_thread.RLock' object."""
    with hbasemk.connect("memory://", poll_interval=0) as repo:
        one = part(repo)
        with pytest.raises(TypeError, match=r"cannot pickle .*memory.*; pass .* URL.* call hbasemk\.connect"):
            pickle.dumps(one)
        # A copy stays in this process.
        assert type(copy.copy(one)) is type(one)


def test_errors_can_be_pickled() -> None:
    with hbasemk.connect("memory://", poll_interval=0) as repo:
        with pytest.raises(hbasemk.NodeNotFoundError) as caught:
            repo.head["/none"]
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.path, str(again)) == ("/none", str(caught.value))


@pytest.mark.slow
@pytest.mark.proof
def test_a_folder_of_a_hundred_thousand_children(opened: Instances) -> None:
    repo, other = opened(), opened()
    repo.run(lambda tx: tx.add("/f"))
    for at in range(0, 100_000, 10_000):
        repo.run(lambda tx, at=at: [tx.add(f"/f/{number:06}") for number in range(at, at + 10_000)])
    head = other.refresh()
    names = head.children("/f")
    assert len(names) == 100_000
    assert names == sorted(names)
    assert head.children("/f", after="050000", limit=3) == ["050001", "050002", "050003"]
    paged: list[str] = []
    while page := head.children("/f", after=paged[-1] if paged else None, limit=30_000):
        paged += page
    assert paged == names


def test_start_up_does_not_grow_with_the_age_of_the_repository(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"n": 0}))
    for _ in range(1200):
        repo.run(lambda tx: tx.increment("/a", "n"))
    journal = instance_of(repo).journal
    moved = instance_of(repo).recovery.advance()
    assert moved is not None
    assert moved.revision == journal.highest_seen
    later = opened()
    assert len(instance_of(later).journal) == 0
    assert later.head["/a"]["n"] == 1200
    assert later.at(hbasemk.format.revisions.to_text(list(journal)[600]))["/a"]["n"] == 600


@pytest.mark.parametrize("before", [True, False])
def test_a_commit_that_was_interrupted_after_its_decision_is_visible_to_its_process(
    opened: Instances, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    repository = opened()
    repository.run(lambda tx: tx.add("/a", {"n": 0}))
    journal = instance_of(repository).journal
    append = journal.append_local

    def interrupted(*arguments: Any) -> bool:
        monkeypatch.setattr(journal, "append_local", append)
        if not before:
            append(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(journal, "append_local", interrupted)
    with pytest.raises(KeyboardInterrupt):
        repository.run(lambda tx: tx.set("/a", "n", 1))
    assert repository.head["/a"]["n"] == 1
    with repository.transaction() as tx:
        tx.increment("/a", "n")
    assert repository.head["/a"]["n"] == 2


def test_a_program_reads_the_settings_of_a_repository(real_store: MemoryStore) -> None:
    wanted = Settings(epoch_ms=1_500_000_000_000, lease_ms=20_000)
    with Repository(real_store, settings=wanted, poll_interval=0), Repository(real_store, poll_interval=0) as repo:
        found = repo.settings
    assert (found.epoch_ms, found.lease_ms, found.max_clock_skew_ms) == (1_500_000_000_000, 20_000, 5_000)
    assert found.ids_end_ms == wanted.ids_end_ms


def test_each_object_names_its_place_in_the_repository(real_store: MemoryStore) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        head = repo.head.revision
        branch = repo.branch("draft")
        assert repr(repo.head) == f"<Snapshot {head}>"
        assert repr(branch) == f"<Branch {branch.revision}>"
        with repo.transaction("first") as tx:
            assert repr(tx) == f"<Transaction 'first' on {head}>"
        assert repr(repo.blobs) == f"<RepositoryBlobs of {real_store.location}>"
        assert repr(hbasemk.MicroKernel(repo)) == f"<MicroKernel of {repo!r}>"
