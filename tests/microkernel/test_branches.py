"""Branches, diffs, blobs and watches through the Python API, including behaviour across instances."""

from __future__ import annotations

import hashlib
import io
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hbasemk
from hbasemk import BlobRef, BranchError, Change, ConflictError, InvalidValueError, Repository, UnknownRevisionError
from hbasemk.check import IntegrityCheck
from hbasemk.repository import instance_of
from hbasemk.store.abc import Store
from tests.support.repositories import Instances, tree


def test_a_branch_is_merged_at_the_end_of_its_block(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"n": 1}))
    with repo.branch("big change") as branch:
        branch.run(lambda tx: tx.add("/a/b", {"x": 1}))
        branch.run(lambda tx: tx.increment("/a", "n"))
        assert "/a/b" not in repo.head
        assert branch.head["/a"]["n"] == 2
    assert repo.head["/a"]["n"] == 2
    assert repo.head.revision == branch.merged
    assert next(iter(repo.log())).message == "big change"


def test_a_block_that_raises_merges_nothing(opened: Instances) -> None:
    repo = opened()
    with pytest.raises(RuntimeError), repo.branch() as branch:
        branch.run(lambda tx: tx.add("/a"))
        raise RuntimeError
    assert tree(repo) == {"/": {}}


def test_a_branch_resumes_in_another_instance_with_the_same_view_of_trunk(opened: Instances) -> None:
    one = opened()
    one.run(lambda tx: tx.add("/a", {"n": 1}))
    branch = one.branch()
    branch.run(lambda tx: tx.set("/a", "mine", True))
    two = opened()
    two.run(lambda tx: tx.set("/a", "later", True))
    # Its process has ended. A third process resumes, although trunk and the watermark have advanced.
    instance_of(two).recovery.advance()
    three = opened()
    resumed = three.resume_branch(branch.revision)
    assert dict(resumed.head["/a"]) == {"n": 1, "mine": True}
    resumed.run(lambda tx: tx.set("/a", "n", 2))
    with pytest.raises(BranchError, match="continues at"):
        branch.run(lambda tx: tx.set("/a", "n", 3))
    resumed.merge()
    for repo in (one, two, three):
        assert tree(repo)["/a"] == {"n": 2, "mine": True, "later": True}


def test_an_increment_on_a_branch_conflicts_with_one_on_trunk(opened: Instances) -> None:
    repo, other = opened(), opened()
    repo.run(lambda tx: tx.add("/a", {"n": 0}))
    branch = repo.branch()
    branch.run(lambda tx: tx.increment("/a", "n", 10))
    other.run(lambda tx: tx.increment("/a", "n", 1))
    with pytest.raises(ConflictError):
        branch.merge()
    markers = branch.rebase()
    assert markers == ["/a/:conflict"]
    assert branch.head["/a/:conflict/changeChangedProperty"]["n"] == 10
    branch.run(lambda tx: tx.remove("/a/:conflict"))
    branch.run(lambda tx: tx.increment("/a", "n", 10))
    branch.merge()
    assert tree(other)["/a"]["n"] == 11


def test_an_abandoned_branch_is_swept_after_its_retention_time(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: tx.add("/a", {"n": 0}))
    left, merged = repo.branch(), repo.branch()
    left.run(lambda tx: (tx.set("/a", "n", 1), tx.add("/a/x")))
    merged.run(lambda tx: tx.add("/b"))
    merged.merge()
    assert repo.sweep_branches(30 * 86_400) == []
    with pytest.raises(InvalidValueError, match="at most 3,162,240,000, got"):
        repo.sweep_branches(1e10)
    assert repo.sweep_branches(3600) == []
    assert len(repo.sweep_branches(0)) == 2
    assert repo.sweep_branches(0) == []
    other = opened()
    with pytest.raises(UnknownRevisionError):
        other.resume_branch(left.revision)
    with pytest.raises((UnknownRevisionError, BranchError)):
        left.run(lambda tx: tx.add("/late"))
    assert tree(other) == {"/": {}, "/a": {"n": 0}, "/b": {}}


@pytest.mark.parametrize("conflicts", [False, True], ids=["without conflict", "with conflict"])
def test_a_large_branch_is_merged_whole_or_not_at_all_for_every_reader(opened: Instances, conflicts: bool) -> None:
    writer, reader, other = opened(), opened(), opened()
    writer.run(lambda tx: [tx.add("/trunk"), *(tx.add(f"/n{number}", {"v": 0}) for number in range(100))])
    branch = writer.branch()
    for turn in range(100):

        def change(tx: hbasemk.Transaction, turn: int = turn) -> None:
            tx.set(f"/n{turn}", "v", 1)
            for number in range(9):
                tx.add(f"/n{turn}/c{number}", {"turn": turn})

        branch.run(change)
    done = threading.Event()
    seen: list[int] = []
    errors: list[BaseException] = []

    def watch() -> None:
        try:
            while not done.is_set():
                snapshot = reader.refresh()
                paths = [f"/n{number}" for number in range(100)]
                changed = sum(node["v"] for node in snapshot.nodes(paths).values() if node is not None)  # type: ignore[misc]
                assert changed in (0, 100)
                assert len(snapshot.children("/n50")) == (9 if changed else 0)
                seen.append(int(changed))
        except BaseException as error:
            errors.append(error)

    def disturb() -> None:
        try:
            number = 0
            while not done.is_set():
                other.run(lambda tx, number=number: tx.add(f"/trunk/t{number}"))
                number += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=watch), threading.Thread(target=disturb)]
    for thread in threads:
        thread.start()
    try:
        if conflicts:
            other.run(lambda tx: tx.set("/n7", "v", 0.5))
            with pytest.raises(ConflictError, match="/n7"):
                branch.merge()
            other.run(lambda tx: tx.set("/n7", "v", 0))
        else:
            branch.merge()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if not conflicts:
        assert errors == []
        assert sum(node["v"] for node in reader.refresh().nodes([f"/n{n}" for n in range(100)]).values() if node) == 100  # type: ignore[misc]
    else:
        assert all(path.count("/") == 1 or path.startswith("/trunk/") for path in tree(reader))


def test_diff_returns_changes(opened: Instances) -> None:
    repo = opened()
    repo.run(lambda tx: (tx.add("/a", {"n": 1}), tx.add("/b", {"x": [1, "y"]})))
    before = repo.head
    repo.run(lambda tx: (tx.set("/a", "n", 2), tx.remove("/b"), tx.add("/a/c")))
    assert list(repo.diff(before)) == [
        Change("/a", {"n": 1}, {"n": 2}),
        Change("/b", {"x": [1, "y"]}, None),
        Change("/a/c", None, {}),
    ]
    assert [change.kind for change in hbasemk.diff(before, repo.head, "/a")] == ["changed", "added"]
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/a", "n", 3))
    assert list(repo.diff(repo.head, branch.head)) == [Change("/a", {"n": 2}, {"n": 3})]


def test_the_cost_of_a_diff_depends_on_the_changes_and_not_on_the_tree(opened: Instances) -> None:
    from hbasemk.testing.wrapped import CountingStore

    store = CountingStore(opened.new_store())
    repo = opened(store)
    repo.run(lambda tx: [tx.add("/n"), *(tx.add(f"/n/{number}", {"v": 0}) for number in range(2000))])
    before = repo.head
    for number in range(10):
        repo.run(lambda tx, number=number: tx.set(f"/n/{number * 100}", "v", 1))
    store.take()
    assert len(list(repo.diff(before))) == 10
    calls = store.calls
    assert {call.method for call in calls} == {"read"}
    assert sum(call.rows for call in calls) <= 10 + 2 * 10
    assert len(calls) <= 3


def test_a_watch_yields_the_commits_of_all_instances(opened: Instances) -> None:
    watcher, other = opened(), opened()
    watcher.run(lambda tx: (tx.add("/a"), tx.add("/b")))
    found: list[str] = []
    started = threading.Event()

    def follow() -> None:
        entries: Iterator[hbasemk.LogEntry] = watcher.watch("/a", timeout=60)
        started.set()
        for entry in entries:
            found.append(entry.message)
            if len(found) == 2:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    started.wait()
    # A generator reads the head at its first `next`. Commit until it has yielded two.
    number = 0
    while thread.is_alive():
        other.run(lambda tx, number=number: tx.set("/b", "n", number), "elsewhere")
        other.run(lambda tx, number=number: tx.set("/a", "n", number), "here")
        number += 1
        thread.join(0.05)
    assert found == ["here", "here"]
    # Later commits repeat the same change.
    watcher.refresh()
    assert list(watcher.watch(timeout=0.01)) == []


def test_blobs_in_the_python_api(opened: Instances) -> None:
    repo = opened()
    ref = repo.blobs.write(io.BytesIO(b"content"))
    assert ref == BlobRef(hashlib.sha256(b"content").hexdigest())
    repo.run(lambda tx: tx.add("/file", {"data": ref}))
    found = repo.head["/file"]["data"]
    assert isinstance(found, BlobRef)
    assert repo.blobs.read(found) == b"content"
    assert (repo.blobs.length(found), b"".join(repo.blobs.stream(ref, 3, 2))) == (7, b"te")


class Endless(io.RawIOBase):
    """A stream of distinct megabytes, generated while it is read."""

    def __init__(self, megabytes: int) -> None:
        self.left = megabytes
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        if not self.left:
            return b""
        self.left -= 1
        block = hashlib.sha256(bytes([self.left])).digest() * 32_768
        self.digest.update(block)
        return block


@pytest.mark.slow
@pytest.mark.no_cover
def test_a_long_stream_is_written_and_read_in_little_memory(new_store: Callable[[], Store], tmp_path: Path) -> None:
    store = new_store()
    if store.location == "memory":
        pytest.skip("a store in memory keeps the content there")
    with Repository(store, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stream = Endless(200)
        ref = repo.blobs.write(stream)  # type: ignore[arg-type]
        assert ref.id == stream.digest.hexdigest()
        digest = hashlib.sha256()
        for piece in repo.blobs.stream(ref):
            digest.update(piece)
        added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{added / 1024:.0f} MiB more memory at the peak")
        assert digest.hexdigest() == ref.id
        assert added < 64 * 1024
        assert [str(problem) for problem in IntegrityCheck(instance_of(repo)).run()] == []
