"""The life of a repository object: threads, forks, closing, opening twice."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hbasemk
import hbasemk.format.revisions
from hbasemk import ClosedError, FormatError, InvalidValueError, Repository, Settings, StoreUnusableError
from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.system import SystemRuntime
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.forked import in_a_child
from tests.support.repositories import Checked, Instances, problems, tree


@contextlib.contextmanager
def held_by_a_thread(*locks: contextlib.AbstractContextManager[object]) -> Iterator[None]:
    """Let another thread hold the locks during the block."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            over.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(60)
        yield
    finally:
        over.set()
        holder.join()


def test_a_forked_child_is_an_instance_of_its_own(tmp_path: Path) -> None:
    with hbasemk.connect(f"sqlite:///{tmp_path / 'content.db'}", poll_interval=0.05) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        before = repo.head

        def work() -> None:
            assert before["/a"]["n"] == 0
            for _ in range(20):
                repo.run(lambda tx: tx.increment("/a", "n"))
            repo.close()

        for _ in range(2):
            in_a_child(work)
            for _ in range(20):
                repo.run(lambda tx: tx.increment("/a", "n"))
        assert repo.refresh()["/a"]["n"] == 80
        machines = {entry.revision[10:14] for entry in repo.log() if entry.base}
        assert len(machines) >= 2
        assert problems(repo) == []


def test_threads_that_use_a_forked_child_first_share_one_instance(tmp_path: Path) -> None:
    with hbasemk.connect(f"sqlite:///{tmp_path / 'content.db'}", poll_interval=0.05) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        parents = instance_of(repo)

        def work() -> None:
            signal.alarm(60)
            seen: list[object] = []
            together = threading.Barrier(6)

            def use() -> None:
                together.wait()
                seen.append(instance_of(repo))
                repo.run(lambda tx: tx.increment("/a", "n"))

            threads = [threading.Thread(target=use) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(seen) == 6
            assert set(map(id, seen)) == {id(instance_of(repo))}
            assert instance_of(repo) is not parents
            assert [thread.name for thread in threading.enumerate()].count("hbasemk-poll") == 1
            repo.close()
            assert "hbasemk-poll" not in [thread.name for thread in threading.enumerate()]

        in_a_child(work)
        assert repo.refresh()["/a"]["n"] == 6
        assert problems(repo) == []


@pytest.mark.parametrize("used", [True, False])
def test_a_child_is_not_blocked_by_locks_of_its_parents_threads(checked: Checked, tmp_path: Path, used: bool) -> None:
    with hbasemk.connect(checked(f"sqlite:///{tmp_path / 'content.db'}"), poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))

        def work() -> None:
            signal.alarm(30)
            if used:
                repo.run(lambda tx: tx.increment("/a", "n"))
            repo.close()

        with held_by_a_thread(repo._beginning.get()):
            in_a_child(work)
        assert repo.refresh()["/a"]["n"] == used


class _SideBySide(MemoryStore):
    """A store that supports parallel calls."""

    supports_parallel_calls = True


def test_a_child_walks_its_parents_snapshot_on_a_store_with_parallel_calls(checked: Checked) -> None:
    with Repository(checked(_SideBySide()), poll_interval=0) as repo:
        repo.run(lambda tx: [tx.add(f"/{number}") for number in range(5)])
        before = repo.head
        assert len(list(before.walk())) == 6

        def work() -> None:
            signal.alarm(30)
            assert len(list(before.walk())) == 6
            assert len(list(repo.head.walk())) == 6

        in_a_child(work)
        assert len(list(before.walk())) == 6


def test_two_calls_run_sequentially_when_the_runtime_is_closed(checked: Checked) -> None:
    runtime = SystemRuntime()
    runtime.close()
    made: list[int] = []
    assert runtime.run_parallel(lambda: made.append(1), lambda: made.append(2)) == (None, None)
    assert made == [1, 2]
    with Repository(checked(_SideBySide()), poll_interval=0, owns_store=False, cache_bytes=0) as repo:
        repo.run(lambda tx: [tx.add(f"/{number}") for number in range(5)])
        head = repo.head
    assert len(list(head.walk())) == 6
    repo.store.close()
    with pytest.raises(ClosedError):
        list(head.walk())


@pytest.mark.parametrize("closed", [True, False])
def test_the_first_error_of_two_failing_calls_is_raised_after_both_end(closed: bool) -> None:
    runtime = SystemRuntime()
    if closed:
        runtime.close()
    made: list[str] = []

    def fail(error: Exception) -> None:
        made.append(type(error).__name__)
        raise error

    def succeed() -> None:
        made.append("none")

    for first, second, wanted in (
        (lambda: fail(KeyError()), lambda: fail(OSError()), KeyError),
        (lambda: fail(KeyError()), succeed, KeyError),
        (succeed, lambda: fail(OSError()), OSError),
    ):
        made.clear()
        with pytest.raises(wanted):
            runtime.run_parallel(first, second)
        assert len(made) == 2
    runtime.close()


def test_a_child_reads_its_parents_snapshot_regardless_of_the_parents_threads(checked: Checked, tmp_path: Path) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}")
    with hbasemk.connect(url, poll_interval=0) as repo:
        repo.run(lambda tx: [tx.add(f"/{number}") for number in range(5)])
    with hbasemk.connect(url, poll_interval=0) as repo:
        before, kernel = repo.head, instance_of(repo)

        def work() -> None:
            signal.alarm(30)
            assert [before.child_count(path) for path in before] == [5, 0, 0, 0, 0, 0]

        with held_by_a_thread(kernel.cache._lock, kernel.counts._lock, kernel.journal._lock):
            in_a_child(work)


def test_a_lock_belongs_to_its_process() -> None:
    lock = SystemRuntime().lock()
    turns: list[int] = []

    def take() -> None:
        with lock, lock:
            turns.append(len(turns))

    with lock:
        with lock:
            other = threading.Thread(target=take)
            other.start()
            other.join(0.2)
            assert turns == []
            # In the child, the thread that forked neither holds the lock nor must release it.
            in_a_child(take)
        assert turns == []
    other.join(60)
    assert turns == [0]


def test_a_child_that_forks_in_a_lock_leaves_it() -> None:
    runtime = SystemRuntime()
    lock = runtime.lock()

    def work() -> None:
        with lock:
            pass

    with lock:
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    work()


def test_a_closed_runtime_does_not_sleep_in_a_child_either() -> None:
    runtime = SystemRuntime()
    runtime.close()

    def work() -> None:
        signal.alarm(30)
        runtime.sleep(3600)
        assert runtime.closed

    work()
    in_a_child(work)


def test_after_close_every_call_is_a_clear_error_and_no_thread_is_left(real_store: MemoryStore) -> None:
    before = set(threading.enumerate())
    repo = Repository(real_store, poll_interval=0.01)
    head = repo.head
    with repo.transaction() as tx:
        tx.add("/a")
    repo.close()
    repo.close()
    assert set(threading.enumerate()) <= before
    for call in (
        lambda: repo.head,
        lambda: repo.refresh(),
        lambda: repo.transaction(),
        lambda: head["/a"],
        lambda: tx.set("/a", "p", 1),
    ):
        with pytest.raises(ClosedError):
            call()


@pytest.mark.parametrize("method", ["scan", "change_counter"])
def test_closing_does_not_wait_for_a_store_that_hangs(method: str) -> None:
    store = FaultyStore(MemoryStore())
    repo = Repository(store, poll_interval=0.01)
    inside, let_go = threading.Event(), threading.Event()

    def hang(call: Call) -> None:
        if call.method == method:
            inside.set()
            let_go.wait(60)

    store.before = hang
    with Repository(store.inner, poll_interval=0, owns_store=False) as other:
        # The background polls only if something has changed.
        other.run(lambda tx: tx.add("/a"))
    assert inside.wait(60)
    closing = threading.Thread(target=repo.close)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    let_go.set()


def test_a_wait_ends_when_the_repository_is_closed() -> None:
    repo = hbasemk.connect("memory://", poll_interval=0.01)
    waiting = threading.Thread(target=lambda: instance_of(repo).wait_for(lambda: False, 3600))
    waiting.start()
    repo.close()
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_commit_that_waits_ends_when_the_repository_is_closed(real_store: MemoryStore) -> None:
    other = Repository(copy.copy(real_store), poll_interval=0)
    other.run(lambda tx: tx.add("/a"))
    counted = FaultyStore(real_store)
    repo = Repository(counted, poll_interval=0, retry_timeout=3600, owns_store=False)
    waits, deciding, go = threading.Event(), threading.Event(), threading.Event()
    decide = instance_of(other).outcomes.decide

    def slow(*arguments: Any) -> bool:
        instance_of(other).outcomes.decide = decide
        deciding.set()
        go.wait(60)
        return decide(*arguments)

    raised: list[BaseException] = []

    def lose() -> None:
        try:
            repo.run(lambda tx: tx.set("/a", "p", 2))
        except BaseException as error:
            raised.append(error)

    def look(call: Call) -> None:
        if call.table == schema.CLUSTER and call.method == "read" and kernel.statistics.conflicts:
            # It checks whether the winner is dead.
            waits.set()

    kernel = instance_of(repo)
    instance_of(other).outcomes.decide = slow
    winner = threading.Thread(target=lambda: other.run(lambda tx: tx.set("/a", "p", 1)))
    loser = threading.Thread(target=lose, daemon=True)
    winner.start()
    assert deciding.wait(60)
    counted.before = look
    loser.start()
    assert waits.wait(60)
    repo.close()
    loser.join(10)
    ended = not loser.is_alive()
    go.set()
    winner.join()
    loser.join()
    assert ended
    assert [type(error) for error in raised] == [ClosedError]
    assert not kernel.lease.held
    assert other.refresh()["/a"]["p"] == 1
    other.close()


def test_a_closed_repository_claims_no_lease_and_commits_nothing() -> None:
    store = MemoryStore()
    repo = Repository(store, poll_interval=0, owns_store=False)
    kernel, tx = instance_of(repo), repo.transaction()
    tx.add("/a")
    repo.close()
    for commit in (
        tx.commit,
        lambda: kernel.commit(lambda _: OperationList([AddNode("/b", {})]), "", retry_timeout=0.1, max_poll_age=60),
    ):
        with pytest.raises(ClosedError, match="the repository has been closed; nothing was committed"):
            commit()
    assert not kernel.lease.held
    with Repository(store, poll_interval=0) as fresh:
        assert fresh.head.children("/") == []


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


def test_create_false_creates_no_repository(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(StoreUnusableError):
        hbasemk.connect(f"sqlite:///{path}", create=False)
    assert not path.exists()


def test_a_newer_format_is_rejected_by_name() -> None:
    store = MemoryStore()
    Repository(store, poll_interval=0, owns_store=False, settings=Settings(epoch_ms=1_600_000_000_000)).close()
    from hbasemk.format import schema
    from hbasemk.store.abc import NewCell, Put

    newer = b'{"format": 3, "epochMs": 0, "maxClockSkewMs": 1, "leaseMs": 1, "rootRevision": "0000000000000000"}'
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.SETTINGS, newer)])])
    with pytest.raises(FormatError, match="format 3"):
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
        node["list"].append(3)  # type: ignore[union-attr]
        assert head["/a"]["list"] == [1, 2]
        assert (node.name, node.path, node.children, node.child("b").path) == ("a", "/a", ["b"], "/a/b")
        with pytest.raises(KeyError):
            node["none"]
        assert [one.path for one in head.walk("/", depth=1)] == ["/", "/a", "/c"]
        assert head.children("/", after="a", limit=1) == ["c"]
        assert problems(repo) == []


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
    # A lower id may still arrive within the allowed skew, so the test moves the bound as time would.
    journal = instance_of(repo).journal
    journal.poller.low_bound = journal.highest_seen + (instance_of(repo).settings.max_clock_skew_ms + 1 << 24)
    moved = instance_of(repo).recovery.advance()
    assert moved is not None
    assert moved.revision == journal.highest_seen
    later = opened()
    assert len(instance_of(later).journal) == 0
    assert later.head["/a"]["n"] == 1200
    assert later.at(hbasemk.format.revisions.to_text(list(journal)[600]))["/a"]["n"] == 600
