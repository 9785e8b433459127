"""An unclosed repository ends when it is no longer referenced, and when the interpreter exits."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from hbasemk import ClosedError, Repository, StoreNotAppliedError, connect, maintenance
from hbasemk.format import schema
from hbasemk.format.lease_record import record_of
from hbasemk.kernel.retry import AT_LEAST
from hbasemk.maintenance import LiveInstance
from hbasemk.repository import instance_of
from hbasemk.store.abc import Get, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from hbasemk.wakeup import Bells
from hbasemk.weak_set import WeakSet
from tests.support.runtime import TestRuntime, World


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return condition()


def lease_end(store: Store, machine: int) -> int:
    found = record_of(store.read(schema.CLUSTER, [Get(schema.machine_key(machine))])[0])
    assert found is not None
    return found.end


class Left:
    """A repository with a lease, and its remaining traces after its end."""

    def __init__(self, shared: MemoryStore, poll_interval: float) -> None:
        self.shared = shared
        self.store = copy.copy(shared)
        others = set(threading.enumerate())
        self.repo: Repository | None = Repository(self.store, poll_interval=poll_interval)
        self.repo.run(lambda tx: tx.add("/a", {"n": 1}))
        lease = instance_of(self.repo).lease
        self.machine, self.end = lease.machine, lease.end
        self.polls = [one for one in threading.enumerate() if one.name == "hbasemk-poll" and one not in others]

    def has_ended(self) -> bool:
        if any(thread.is_alive() for thread in self.polls) or lease_end(self.shared, self.machine) >= self.end:
            return False
        try:
            self.store.read(schema.CLUSTER, [])
        except ClosedError:
            return True
        return False


@pytest.mark.parametrize("poll_interval", [0, 0.001, 3600])
def test_an_unreferenced_repository_ends(real_store: MemoryStore, poll_interval: float) -> None:
    left = Left(real_store, poll_interval)
    with pytest.warns(ResourceWarning, match="not closed"):  # noqa: PT031 - until it has ended
        left.repo = None
        assert wait_until(left.has_ended)


@pytest.mark.parametrize(
    "part",
    [
        lambda repo: repo.head,
        lambda repo: repo.head["/a"],
        lambda repo: repo.transaction(),
        lambda repo: repo.watch(),
        lambda repo: repo.branch(),
        lambda repo: repo.blobs,
        lambda repo: repo.log(),
        lambda repo: repo.head.walk(),
    ],
    ids=["snapshot", "node", "transaction", "watch", "branch", "blobs", "log", "walk"],
)
def test_objects_of_a_repository_keep_it_alive(real_store: MemoryStore, part: Callable[[Repository], object]) -> None:
    left = Left(real_store, 0.01)
    assert left.repo is not None
    kept = [part(left.repo)]
    left.repo = None
    gc.collect()
    time.sleep(0.05)
    assert not left.has_ended()
    with pytest.warns(ResourceWarning, match="not closed"):  # noqa: PT031 - until it has ended
        kept.clear()
        assert wait_until(left.has_ended)


def test_a_snapshot_of_a_dropped_repository_can_be_read(url: str) -> None:
    with connect(url) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 1}))
    snapshot = connect(url, poll_interval=0.01).head
    gc.collect()
    assert snapshot["/a"]["n"] == 1
    polls = [thread for thread in threading.enumerate() if thread.name == "hbasemk-poll"]
    with pytest.warns(ResourceWarning, match="not closed"):  # noqa: PT031 - until it has ended
        del snapshot
        assert wait_until(lambda: not any(thread.is_alive() for thread in polls))


def test_a_closed_repository_ends_without_a_warning(real_store: MemoryStore) -> None:
    repo = Repository(copy.copy(real_store), poll_interval=0.01)
    snapshot = repo.head
    repo.close()
    del repo, snapshot
    gc.collect()


SCRIPT = """
import os, sys, hbasemk
from hbasemk.repository import instance_of
repo = hbasemk.connect(sys.argv[1], poll_interval=float(sys.argv[2]))
repo.run(lambda tx: tx.increment("/", "n"))
print(instance_of(repo).lease.machine, instance_of(repo).lease.end, flush=True)
if sys.argv[3] == "fork":
    child = os.fork()
    if not child:
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
    assert instance_of(repo).lease.held
    assert repo.refresh()["/"]["n"] == 1
if sys.argv[3] == "error":
    raise SystemExit("an error")
"""


@pytest.mark.parametrize("how", ["end", "fork", "error"])
@pytest.mark.parametrize("poll_interval", ["0", "0.01"])
def test_an_open_repository_ends_with_the_interpreter(url: str, how: str, poll_interval: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", SCRIPT, url, poll_interval, how],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr.strip()) == ((1, "an error") if how == "error" else (0, ""))
    machine, end = map(int, ran.stdout.split())
    with connect(url, poll_interval=0) as repo:
        assert lease_end(repo.store, machine) < end


LATE = """
import sys, hbasemk
class Late:
    def __init__(self, late):
        self.repo = hbasemk.connect(sys.argv[1])
        self.late = late
    def __del__(self):
        try: self.late(self.repo)
        except (hbasemk.HbasemkError, RuntimeError) as error: print(type(error).__name__, error)
kept = [Late(lambda repo: repo.close()), Late(lambda repo: repo.adjust("/", "n", 1)), Late(lambda repo: repo.head["/"])]
for one in kept:
    one.repo.adjust("/", "n", 1)
    one.repo.blobs.write(bytes(3_000_000))
kept[0].itself = kept
"""


def test_a_finalizer_that_runs_after_the_end_of_the_repositories_does_not_hang(url: str) -> None:
    ran = subprocess.run([sys.executable, "-c", LATE, url], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


class Exit:
    """The end of the interpreter, in simulated time: no thread starts any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.calls: list[Call] = []
        self.live: WeakSet[LiveInstance] = WeakSet()
        monkeypatch.setattr(maintenance, "_live", self.live)
        monkeypatch.setattr(maintenance, "start_thread", self._refuse)
        monkeypatch.setattr(maintenance, "time", SimpleNamespace(monotonic=lambda: self.world.ms / 1000))

    def _refuse(self, _: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def open(self, mac: int) -> tuple[LiveInstance, FaultyStore]:
        """Return a repository with a lease, whose store does not close, and its store."""
        store = FaultyStore(MemoryStore(self.world.clock, transactions=False))
        instance = LiveInstance.open(store, TestRuntime(self.world, mac=mac))
        instance.begin(0, Bells(), owns_store=False, collect=False)
        instance.clock.next(0)
        return instance, store

    def seconds(self) -> float:
        """End all, and return the simulated seconds that this took."""
        began = self.world.ms
        maintenance._end_all()
        assert not self.live
        return (self.world.ms - began) / 1000


@pytest.mark.parametrize("count", [1, 8, 40])
def test_the_interpreter_ends_as_soon_with_many_unreachable_repositories_as_with_one(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = Exit(monkeypatch)

    def away(call: Call) -> None:
        ending.calls.append(call)
        raise StoreNotAppliedError("away")

    opened = [ending.open(number) for number in range(count)]
    for _, store in opened:
        store.before = away
    assert ending.seconds() <= maintenance.CLOSING + 2 * AT_LEAST
    assert ending.calls
    assert not any(instance.lease.held for instance, _ in opened)


def test_the_end_of_the_interpreter_releases_a_lease_although_other_stores_are_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ending = Exit(monkeypatch)

    def away(_: Call) -> None:
        raise StoreNotAppliedError("away")

    opened = [ending.open(number) for number in range(8)]
    reachable, store = opened[3]
    machine, end = reachable.lease.machine, reachable.lease.end
    for _, other in opened:
        if other is not store:
            other.before = away
    ending.seconds()
    assert lease_end(store, machine) < end


def test_after_a_store_that_hangs_the_interpreter_ends_without_further_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    ending = Exit(monkeypatch)

    def hang(call: Call) -> None:
        ending.calls.append(call)
        ending.world.advance(60)
        raise StoreNotAppliedError("timed out")

    opened = [ending.open(number) for number in range(8)]
    for _, store in opened:
        store.before = hang
    ending.seconds()
    assert len(ending.calls) == 1
    assert not any(instance.lease.held for instance, _ in opened)
