"""Random programs of many threads that share one or two Repository objects on one store, up to the close beside them."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import hbasemk
from hbasemk import Branch, BranchError, ClosedError, ConflictError, Repository, Snapshot, Transaction
from hbasemk.check import IntegrityCheck
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, WrappedStore
from tests.support.repositories import problems
from tests.support.seeds import random_of_test

T = TypeVar("T")

STEPS = 40
"""Steps of each thread before the repositories are closed."""
THREADS = 6


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Program:
    """The shared state of the threads. Each step uses one repository; what it checks holds at any moment."""

    def __init__(self, repositories: list[Repository]) -> None:
        self.repositories = repositories
        self.committed: Counter[str] = Counter()
        self.held: deque[tuple[Snapshot, Any]] = deque(maxlen=20)
        self.branches: deque[tuple[Branch, str]] = deque()
        self.merged: list[str] = []
        self.lock = threading.Lock()
        repositories[0].run(self._build)
        for repository in repositories:
            repository.refresh()

    @staticmethod
    def _build(tx: Transaction) -> None:
        tx.add("/count", {"increments": 0, "adjusts": 0, "old": 0})
        for path in ("/left", "/right", "/merged", "/accounts"):
            tx.add(path)
        for number in range(4):
            tx.add(f"/left/{number}")
            tx.add(f"/accounts/{number}", {"balance": 10})

    def count(self, name: str) -> None:
        with self.lock:
            self.committed[name] += 1

    def increment(self, repo: Repository, _: random.Random) -> None:
        def change(tx: Transaction) -> Any:
            tx.increment("/count", "increments")
            return tx["/count", "increments"]

        value = repo.run(change)
        self.count("increments")
        assert repo.head["/count"]["increments"] >= value

    def adjust(self, repo: Repository, _: random.Random) -> None:
        repo.adjust("/count", "adjusts", 1)
        self.count("adjusts")

    def transfer(self, repo: Repository, chance: random.Random) -> None:
        one, other = chance.sample(range(4), 2)

        def change(tx: Transaction) -> None:
            tx.increment(f"/accounts/{one}", "balance", -1)
            tx.increment(f"/accounts/{other}", "balance", 1)

        repo.run(change, isolation=chance.choice(("snapshot", "serializable")))
        assert sum(node.get("balance", 0) for node in repo.head.walk("/accounts")) == 40

    def move(self, repo: Repository, chance: random.Random) -> None:
        name = chance.randrange(4)

        def change(tx: Transaction) -> None:
            sides = ("/left", "/right") if tx.exists(f"/left/{name}") else ("/right", "/left")
            tx.move(f"{sides[0]}/{name}", f"{sides[1]}/{name}")

        repo.run(change)
        head = repo.head
        assert sorted(head.children("/left") + head.children("/right")) == ["0", "1", "2", "3"]
        assert head.child_count("/left") == len(head.children("/left"))

    def hold(self, repo: Repository, _: random.Random) -> None:
        head = repo.head
        self.held.append((head, contents(head)))

    def read_again(self, _: Repository, chance: random.Random) -> None:
        if self.held:
            snapshot, before = chance.choice(list(self.held))
            assert contents(snapshot) == before

    def commit_on_old(self, repo: Repository, chance: random.Random) -> None:
        bases = [snapshot for snapshot, _ in list(self.held) if instance_of(repo) is snapshot._instance]
        if bases:
            tx = repo.transaction(base=chance.choice(bases))
            tx.increment("/count", "old")
            try:
                tx.commit()
            except ConflictError:
                return
            self.count("old")

    def begin_branch(self, repo: Repository, chance: random.Random) -> None:
        name = f"{chance.getrandbits(48):x}"
        branch = repo.branch()
        branch.run(lambda tx: tx.add(f"/merged/{name}"))
        self.branches.append((branch, name))

    def use_branch(self, _: Repository, chance: random.Random) -> None:
        """Several threads may use the same branch; only one of them merges it."""
        for branch, name in list(self.branches)[:2]:
            try:
                if chance.random() < 0.5:
                    assert branch.rebase() == []
                branch.run(lambda tx, name=name: tx.set(f"/merged/{name}", "x", 1))  # type: ignore[misc]
                branch.merge()
            except (BranchError, ConflictError):
                # Another thread has used the branch, or has just merged it.
                continue
            with self.lock:
                self.merged.append(name)
                self.branches.remove((branch, name))

    def watch(self, repo: Repository, _: random.Random) -> None:
        with repo.watch(since=repo.head, timeout=0.5) as watch:
            revision = repo.adjust("/count", "adjusts", 1)
            self.count("adjusts")
            seen: list[str] = []
            for entry in watch:
                seen.append(entry.revision)
                if entry.revision == revision:
                    break
            assert len(set(seen)) == len(seen)
            assert revision in seen or repo.closed

    def keep(self, repo: Repository, _: random.Random) -> None:
        checkpoint = repo.checkpoint(60)
        before = contents(checkpoint.snapshot)
        assert contents(repo.at(checkpoint.revision)) == before
        checkpoint.release()

    def check(self, repo: Repository, _: random.Random) -> None:
        assert list(map(str, IntegrityCheck(instance_of(repo), live=True).run())) == []

    def blob(self, repo: Repository, chance: random.Random) -> None:
        content = bytes([chance.randrange(3)]) * 1000
        assert repo.blobs.read(repo.blobs.write(content), 0, 1000) == content

    def leave(self, repo: Repository, _: random.Random) -> None:
        """Leave iterators half way."""
        for one in (repo.head.walk(), repo.log(), repo.diff(repo.head)):
            next(one, None)


STEP_NAMES = [name for name in vars(Program) if not name.startswith("_") and name != "count"]


def contents(snapshot: Snapshot) -> list[Any]:
    return [(node.path, dict(node), node.version) for node in snapshot.walk()]


def together(work: Callable[[int], None]) -> list[threading.Thread]:
    """Start the threads of a program."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.parametrize("objects", [1, 2])
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_threads_share_repositories_until_they_are_closed(tmp_path: Path, store: str, objects: int) -> None:
    chance = random_of_test()
    descriptors, running = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    url = "memory://threads" if store == "memory" else f"sqlite:///{tmp_path / 'content.db'}?durable=no"
    repositories = [
        hbasemk.connect(url, poll_interval=chance.choice((0, 0.01)), cache_bytes=chance.choice((0, 3000, 1 << 26)))
        for _ in range(objects)
    ]
    program = Program(repositories)
    seeds = [chance.getrandbits(32) for _ in range(THREADS)]
    errors: list[BaseException] = []

    def step(own: random.Random) -> None:
        getattr(program, own.choice(STEP_NAMES))(own.choice(repositories), own)

    def work(number: int, endless: bool = False) -> None:
        own = random.Random(seeds[number] + endless)
        try:
            for _ in range(STEPS):
                step(own)
            while endless:
                step(own)
        except BaseException as error:
            errors.append(error)

    for thread in together(work):
        thread.join()
    assert errors == []
    for repo in repositories:
        head = repo.refresh()
        assert {name: head["/count"][name] for name in ("increments", "adjusts", "old")} == {
            name: program.committed[name] for name in ("increments", "adjusts", "old")
        }
        assert head.children("/merged") == sorted(program.merged)
        assert problems(repo) == []
    for snapshot, before in program.held:
        assert contents(snapshot) == before

    threads = together(lambda number: work(number, endless=True))
    for thread in threads:
        thread.join(chance.uniform(0, 0.1))
    for repo in repositories:
        repo.close()
    for thread in [*threads, *(set(threading.enumerate()) - running)]:
        thread.join(60)
        assert not thread.is_alive()
    assert [error for error in errors if not isinstance(error, ClosedError)] == []
    assert len(errors) == THREADS
    assert len(os.listdir("/proc/self/fd")) == descriptors


class PausingStore(WrappedStore):
    """A store that pauses one thread after its first read of a branch head, until :attr:`go_on` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.paused: threading.Thread | None = None
        self.has_read, self.go_on = threading.Event(), threading.Event()

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Pause after the call if it is the read of a branch head in the paused thread."""
        result = do()
        if threading.current_thread() is self.paused and call == ("read", "journal", 1):
            self.has_read.set()
            assert self.go_on.wait(60)
        return result


WITHOUT_EFFECT: dict[str, Callable[[Branch], object]] = {
    "run": lambda branch: branch.run(lambda _: None),
    "rebase": lambda branch: branch.rebase(),
    "reset": lambda branch: branch.reset(branch.revision),
}


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("call", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_a_call_without_effect_does_not_hide_the_commit_of_another_thread(
    call: Callable[[Branch], object], merges: bool
) -> None:
    store = PausingStore()
    with Repository(store, poll_interval=0) as repo:
        branch = repo.branch()
        store.paused = threading.Thread(target=call, args=(branch,))
        store.paused.start()
        assert store.has_read.wait(60)
        branch.run(lambda tx: tx.set("/", "n", 1))
        newest, merged = branch.revision, branch.merge() if merges else None
        store.go_on.set()
        store.paused.join()
        assert (branch.revision, branch.merged) == (newest, merged)
        assert dict(branch.head["/"]) == {"n": 1}
        if not merges:
            branch.run(lambda tx: tx.set("/", "n", 2))
            branch.merge()
            assert dict(repo.head["/"]) == {"n": 2}
