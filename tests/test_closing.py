"""The end of a repository: calls, waits and threads after close."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hbasemk
import hbasemk.format.revisions
from hbasemk import ClosedError, Repository, connect
from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.interrupting import in_files, interrupted_at, place, points_of


def test_after_close_every_call_is_a_clear_error_and_no_thread_is_left(real_store: MemoryStore) -> None:
    before = set(threading.enumerate())
    repo = Repository(real_store, poll_interval=0.01)
    head = repo.head
    with repo.transaction() as tx:
        tx.add("/a")
    repo.close()
    repo.close()
    for thread in set(threading.enumerate()) - before:
        # Closing waits a second at most; a thread of a slow machine may need longer.
        thread.join(60)
        assert not thread.is_alive()
    for call in (
        lambda: repo.head,
        lambda: repo.refresh(),
        lambda: repo.transaction(),
        lambda: head["/a"],
        lambda: tx.set("/a", "p", 1),
    ):
        with pytest.raises(ClosedError):
            call()


def test_a_snapshot_of_a_closed_repository_says_how_to_open_it_again(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path / 'content.db'}", poll_interval=0) as repository:
        head = repository.head
    with pytest.raises(ClosedError, match=r"content.db is closed; open the repository again with connect\(\)"):
        list(head)


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


def count(repo: Repository) -> None:
    repo.run(lambda tx: tx.increment("/a", "n"))


class PausedCommit:
    """A commit in another thread, which pauses before it writes its cells, until its instance waits."""

    def __init__(self, repo: Repository, store: FaultyStore, committed: Callable[[], None] = lambda: None) -> None:
        self.waits: list[float] = []
        self._committed = committed
        self._repo = repo
        self._store = store
        self._inside, self.go_on = threading.Event(), threading.Event()
        runtime = instance_of(repo).runtime
        self._sleep = runtime.sleep
        runtime.sleep = self._let_it_go_on  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._work)
        store.before = self._pause
        self._thread.start()
        assert self._inside.wait(60)

    def _work(self) -> None:
        count(self._repo)
        self._committed()

    def _pause(self, call: Call) -> None:
        if threading.current_thread() is self._thread and (call.method, call.table) in (
            ("write", "nodes"),
            ("write_if", "nodes"),
        ):
            self._inside.set()
            assert self.go_on.wait(60)

    def _let_it_go_on(self, seconds: float) -> None:
        # The end waits now.
        self.waits.append(seconds)
        self.go_on.set()
        self._sleep(seconds)

    def join(self) -> None:
        """Wait until the commit has ended."""
        self._thread.join(60)
        self._store.before = None


@pytest.mark.parametrize("transactions", [False, True])
def test_the_attempt_of_another_thread_ends_before_the_lease(transactions: bool) -> None:
    """Otherwise it would leave a pending revision, for which other processes wait until the lease is over."""
    store = FaultyStore(MemoryStore(transactions=transactions))
    repo = Repository(store, poll_interval=0, owns_store=False)
    repo.run(lambda tx: tx.add("/a", {"n": 0}))
    instance = instance_of(repo)
    order: list[str] = []
    release = instance.lease.release

    def record_release(*arguments: Any) -> None:
        order.append("released")
        release(*arguments)

    instance.lease.release = record_release  # type: ignore[method-assign]
    other_thread = PausedCommit(repo, store, lambda: order.append("committed"))
    # Without a limit that a slow machine could reach.
    instance.end_attempts(60)
    repo.close()
    other_thread.join()
    assert order == ["committed", "released"]
    with Repository(store, poll_interval=0) as other:
        assert other.head["/a"]["n"] == 1
        assert not instance_of(other).journal.pending


def test_no_attempt_begins_when_the_instance_ends() -> None:
    store = MemoryStore()
    with Repository(store, poll_interval=0, owns_store=False) as repo:
        repo.run(lambda tx: tx.add("/a"))
        head = repo.head
        instance_of(repo).end_attempts(0)
        with pytest.raises(ClosedError, match="nothing was committed"):
            repo.run(lambda tx: tx.add("/b"))
        assert repo.refresh() == head


def test_an_attempt_does_not_wait_for_itself() -> None:
    """A signal handler may close the repository in the middle of a commit."""
    store = FaultyStore(MemoryStore())
    repo = Repository(store, poll_interval=0, owns_store=False)
    repo.run(lambda tx: tx.add("/a"))
    instance = instance_of(repo)
    waits: list[float] = []
    instance.runtime.sleep = waits.append  # type: ignore[method-assign]

    def end(call: Call) -> None:
        if (call.method, call.table) == ("write", "nodes"):
            store.before = None
            instance.end_attempts(60)

    store.before = end
    repo.run(lambda tx: tx.set("/a", "p", 1))
    assert store.before is None
    assert waits == []
    repo.close()


def end_after_an_interrupt(repo: Repository, store: FaultyStore, found: list[tuple[int, int]]) -> None:
    """End the attempts after the caller has interrupted one; record how often that waits beside another thread, and after it."""
    try:
        count(repo)
    except KeyboardInterrupt:
        # The error, and so the frame of the attempt, still exists here.
        other_thread = PausedCommit(repo, store)
        instance_of(repo).end_attempts(60)
        beside = len(other_thread.waits)
        other_thread.go_on.set()
        other_thread.join()
        del other_thread.waits[:]
        instance_of(repo).end_attempts(60)
        found.append((beside, len(other_thread.waits)))
        raise


def test_an_interrupted_attempt_has_ended() -> None:
    """Otherwise the end would wait for it, or no longer for the attempts of other threads."""
    store = FaultyStore(MemoryStore())
    with Repository(store, poll_interval=0, owns_store=False) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        points = points_of(partial(count, repo), in_files("commit/attempt.py"))
    points = [point for point in points if point[0].co_name == "run"]
    assert len(points) > 4
    for point in points:
        found: list[tuple[int, int]] = []
        with Repository(store, poll_interval=0, owns_store=False) as repo:
            assert interrupted_at(point, partial(end_after_an_interrupt, repo, store, found))
        ((beside, afterwards),) = found
        assert beside, f"it does not wait for another thread after the interrupt at {place(point)}"
        assert not afterwards, f"it waits for the attempt that was interrupted at {place(point)}"


def test_closing_does_not_wait_for_ever_for_an_attempt_that_hangs() -> None:
    store = FaultyStore(MemoryStore())
    repo = Repository(store, poll_interval=0, owns_store=False)
    repo.run(lambda tx: tx.add("/a"))
    inside, let_go = threading.Event(), threading.Event()

    def hang(call: Call) -> None:
        if (call.method, call.table) == ("write", "nodes"):
            inside.set()
            assert let_go.wait(60)

    store.before = hang
    thread = threading.Thread(target=lambda: repo.run(lambda tx: tx.set("/a", "p", 1)))
    thread.start()
    assert inside.wait(60)
    repo.close()
    assert repo.closed
    let_go.set()
    thread.join(60)
