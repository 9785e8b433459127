"""Forks of a process that has a repository open."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import hbasemk
import hbasemk.format.revisions
from hbasemk import ClosedError, Repository, Transaction
from hbasemk.kernel.commit.operations import RemoveNode
from hbasemk.repository import instance_of
from hbasemk.store.abc import Get, NewCell, Put, Scan, Table
from hbasemk.store.memory import MemoryStore
from hbasemk.system import SystemRuntime
from tests.support.forked import in_a_child
from tests.support.repositories import Checked, problems


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
            (polls,) = (thread for thread in threading.enumerate() if thread.name == "hbasemk-poll")
            repo.close()
            polls.join(60)
            assert not polls.is_alive()

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


def test_a_child_has_a_whole_copy_of_a_store_in_memory_that_a_thread_uses() -> None:
    store = MemoryStore()
    store.create_tables([Table("t", (b"d",), 1)])
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            store.write("t", [Put(b"%d" % row, [NewCell(b"d", b"q", b"%d" % number, 1)]) for row in range(100)])

    def work() -> None:
        # Without it, a child that waits for a lock would wait forever.
        signal.alarm(30)
        assert len({row.cells[0].value for row in store.scan("t", Scan(None, None, 100))}) <= 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(10):
            in_a_child(work)
    finally:
        over.set()
        thread.join()


def test_a_child_forked_within_a_call_of_a_store_in_memory_uses_it_afterwards() -> None:
    children: list[int] = []
    parent = os.getpid()

    def clock() -> int:
        if not children:
            children.append(os.fork())
        return 1

    store = MemoryStore(clock)
    store.create_tables([Table("t", (b"d",), 1)])
    store.write("t", [Put(b"r", [NewCell(b"d", b"q", b"1")])])
    if os.getpid() != parent:
        signal.alarm(30)
        os._exit(0 if store.read("t", [Get(b"r")])[0].cells else 1)
    assert os.waitpid(children[0], 0)[1] == 0
    assert store.read("t", [Get(b"r")])[0].cells


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


def test_two_calls_run_sequentially_if_no_thread_can_be_started(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process has a limit of threads and of memory, and none begins while the interpreter ends."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Repository(checked(MemoryStore(parallel=True)), poll_interval=0, owns_store=False) as other:
        other.run(lambda tx: [tx.add("/a", {"n": 0}), tx.add("/b", {"n": 0})])
        monkeypatch.setattr(hbasemk.system, "start_thread", refuse)
        with Repository(other.store, poll_interval=0, owns_store=False) as repo:
            for number in range(1, 4):
                repo.run(lambda tx: tx.increment("/a", "n"))
                other.run(lambda tx: tx.increment("/b", "n"))
                repo.refresh()
                assert [repo.head[path]["n"] for path in ("/a", "/b")] == [number, number]


@pytest.mark.parametrize("closed", [True, False])
def test_the_first_error_of_two_failing_calls_is_raised_after_both_end(closed: bool) -> None:
    runtime = SystemRuntime()
    if closed:
        runtime.close()
    made: list[str] = []

    def fail(error: BaseException) -> None:
        made.append(type(error).__name__)
        raise error

    def succeed() -> None:
        made.append("none")

    for first, second, wanted in (
        (lambda: fail(KeyError()), lambda: fail(OSError()), KeyError),
        (lambda: fail(KeyError()), succeed, KeyError),
        (succeed, lambda: fail(OSError()), OSError),
        # Nobody repeats a call that Ctrl-C has ended.
        (lambda: fail(KeyError()), lambda: fail(KeyboardInterrupt()), KeyboardInterrupt),
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


def test_a_transaction_that_began_before_a_fork_cannot_commit_in_the_child(real_store: MemoryStore) -> None:
    """Its child would use the machine id of its parent."""
    with Repository(real_store, poll_interval=0) as repo:
        tx = repo.transaction()
        tx.add("/a")

        def commit() -> None:
            with pytest.raises(ClosedError, match="began before a fork, in the parent process"):
                tx.commit()

        in_a_child(commit)
        tx.commit()
        assert "/a" in repo.head


def error_of_child(call: Callable[[Callable[[], object]], object]) -> str:
    """Make a call with a function that forks. Both sides return from it; return the error of the call in the child."""
    end, begin = os.pipe()
    parent = os.getpid()
    children: list[int] = []
    try:
        call(lambda: children.append(os.fork()))
        error = "none"
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
        if os.getpid() == parent:
            raise
    finally:
        if os.getpid() != parent:
            os.write(begin, error.encode())
            os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as pipe:
        found = pipe.read().decode()
    assert os.waitpid(children[0], 0)[1] == 0
    return found


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_function_of_run_that_forks_commits_in_the_parent_only(
    url: str, isolation: Literal["snapshot", "serializable"]
) -> None:
    with hbasemk.connect(url, poll_interval=0) as repo:

        def change(tx: Transaction, fork: Callable[[], object]) -> None:
            tx.add("/a")
            fork()
            tx.add(f"/a/{os.getpid()}")

        error = error_of_child(lambda fork: repo.run(lambda tx: change(tx, fork), isolation=isolation))
        assert "ClosedError: this transaction began before a fork" in error
        assert repo.refresh().children("/a") == [str(os.getpid())]
        assert len([entry for entry in repo.log() if entry.base]) == 1


def test_a_function_of_a_branchs_run_that_forks_commits_in_the_parent_only(url: str) -> None:
    with hbasemk.connect(url, poll_interval=0) as repo:
        branch = repo.branch()

        def change(tx: Transaction, fork: Callable[[], object]) -> None:
            fork()
            tx.add(f"/{os.getpid()}")

        error = error_of_child(lambda fork: branch.run(lambda tx: change(tx, fork)))
        assert "ClosedError: this transaction began before a fork" in error
        assert branch.head.children("/") == [str(os.getpid())]
        branch.merge()


def test_the_block_of_a_branch_that_forks_merges_in_the_parent_only(url: str) -> None:
    with hbasemk.connect(url, poll_interval=0) as repo:

        def work(fork: Callable[[], object]) -> None:
            with repo.branch() as branch:
                branch.run(lambda tx: tx.add("/a"))
                fork()

        assert "ClosedError: this with block of a branch began before a fork" in error_of_child(work)
        assert "/a" in repo.refresh()


def test_a_child_merges_a_branch_of_its_parent_if_it_says_so(url: str) -> None:
    with hbasemk.connect(url, poll_interval=0) as repo:
        branch, other = repo.branch(), repo.branch()
        branch.run(lambda tx: tx.add("/a"))
        other.run(lambda tx: tx.add("/b"))

        def work() -> None:
            branch.merge()
            with other:
                pass

        in_a_child(work)
        assert repo.refresh().children("/") == ["a", "b"]


def test_a_child_makes_no_revision_ids_with_its_parents_instance(url: str) -> None:
    """They would be those of the parent."""
    with hbasemk.connect(url, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
        parents = instance_of(repo)
        view = parents.head()

        def work() -> None:
            for is_branch in (True, False):
                with pytest.raises(ClosedError, match="began before a fork"):
                    parents.clock.next(0, branch=is_branch)
            source = parents.collect_operations(view, serializable=False)
            source.add(RemoveNode("/a"))
            with pytest.raises(ClosedError, match="began before a fork"):
                parents.commit_on(view, source, "")
            with pytest.raises(ClosedError, match="began before a fork"):
                parents.begin_branch(view)
            repo.run(lambda tx: tx.set("/a", "n", 1))

        in_a_child(work)
        assert repo.refresh()["/a"]["n"] == 1


def test_a_child_does_not_maintain_its_parents_instance(url: str) -> None:
    with hbasemk.connect(url, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
        parents = instance_of(repo)

        def work() -> None:
            ran: list[int] = []
            parents.periodic_work.run = lambda: ran.append(1)  # type: ignore[method-assign]
            parents.maintain()
            assert not ran

        in_a_child(work)


def test_a_child_draws_other_random_numbers_than_its_parent() -> None:
    runtime = SystemRuntime()
    end, begin = os.pipe()
    in_a_child(lambda: os.write(begin, b"%d" % runtime.random.getrandbits(64)))
    assert int(os.read(end, 100)) != runtime.random.getrandbits(64)
    os.close(end)
    os.close(begin)
