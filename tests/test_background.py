"""Background work: an instance sees commits before its interval has passed, and reads nothing while nothing changes."""

from __future__ import annotations

import math
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import hbasemk
from hbasemk import Settings
from hbasemk.format import schema
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.kernel.ids.leases import lease_of
from hbasemk.repository import Repository, instance_of
from hbasemk.store.abc import NewCell, Put, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import CountingStore, WrappedStore
from tests.support.repositories import Instances, Where

NEVER = 3600.0
"""An interval in seconds that no test waits for."""

WATCH = """
import sys, hbasemk
with hbasemk.connect(sys.argv[1], create=False, poll_interval=float(sys.argv[2])) as repo, repo.watch() as watching:
    print("watching", flush=True)
    for entry in watching:
        print(entry.message, flush=True)
"""


class ComparedStore(CountingStore):
    """Counts comparisons of the change counter too, and can fail them."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.comparisons = 0
        self.error: Exception | None = None

    def change_counter(self) -> int | None:
        self.comparisons += 1
        if self.error is not None:
            raise self.error
        return super().change_counter()

    def wait_for(self, comparisons: int) -> None:
        """Wait until the background has compared the counter so many times more."""
        comparisons += self.comparisons
        deadline = time.monotonic() + 60
        while self.comparisons < comparisons:
            assert time.monotonic() < deadline, "the background does not compare the change counter any more"
            time.sleep(0.005)


class Uncounted(ComparedStore):
    """A store that has no change counter, as HBase."""

    def change_counter(self) -> int | None:
        super().change_counter()
        return None


@pytest.fixture(params=["memory", "sqlite"])
def compared(request: pytest.FixtureRequest, checked: Where, tmp_path: Path) -> ComparedStore:
    """A new store that counts."""
    if request.param == "memory":
        return ComparedStore(checked(MemoryStore()))
    checked(f"sqlite:///{tmp_path / 'content.db'}")
    return ComparedStore(SqliteStore(str(tmp_path / "content.db")))


def test_a_watch_in_another_process_does_not_wait_for_the_interval(url: str) -> None:
    with hbasemk.connect(url, poll_interval=0) as repo:
        watcher = subprocess.Popen([sys.executable, "-c", WATCH, url, str(NEVER)], stdout=subprocess.PIPE, text=True)
        try:
            assert watcher.stdout is not None
            assert watcher.stdout.readline() == "watching\n"
            for number in range(5):
                repo.run(lambda tx, number=number: tx.add(f"/{number}"), str(number))
                assert watcher.stdout.readline() == f"{number}\n"
        finally:
            watcher.kill()
            watcher.communicate()


def test_a_watch_on_another_instance_does_not_wait_for_the_interval(opened: Instances) -> None:
    one, two = opened(), opened(poll_interval=NEVER)
    watching = two.watch(timeout=60)
    for number in range(5):
        one.run(lambda tx, number=number: tx.add(f"/{number}"), str(number))
        assert next(watching).message == str(number)


def test_an_idle_instance_reads_nothing(compared: ComparedStore) -> None:
    # The machine may stall, but no renewal of the lease becomes due.
    with Repository(compared, poll_interval=0.01, settings=Settings(lease_ms=3_600_000)) as repo:
        compared.wait_for(20)
        compared.take()
        compared.wait_for(50)
        assert not compared.take()
        # A comparison that shows no change counts as a poll.
        instance = instance_of(repo)
        instance.max_poll_age = 60.0
        instance.journal._polled_at = -math.inf
        compared.wait_for(2)
        with repo.transaction() as tx:
            assert not compared.take()
            tx.add("/a")
        compared.wait_for(20)
        compared.take()
        compared.wait_for(50)
        assert not compared.take()


def test_maintenance_runs_at_the_interval_though_nothing_changes(
    compared: ComparedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Repository(compared, poll_interval=0.01) as repo:
        maintained = threading.Semaphore(0)
        monkeypatch.setattr(instance_of(repo), "maintain", maintained.release)
        for _ in range(3):
            assert maintained.acquire(timeout=60)


def test_a_store_without_a_change_counter_is_polled_at_the_interval(real_store: MemoryStore) -> None:
    store = Uncounted(real_store)
    with Repository(store, poll_interval=0.01, owns_store=False) as repo:
        store.take()
        store.wait_for(20)
        assert store.take()["scan", "cluster"] >= 5
        with Repository(real_store, poll_interval=0, owns_store=False) as other:
            other.run(lambda tx: tx.add("/a"))
        assert instance_of(repo).wait_for(lambda: "/a" in repo.head, 60)
    with Repository(store, poll_interval=NEVER, owns_store=False):
        store.take()
        time.sleep(0.05)
        assert not store.take()


def test_a_store_without_a_change_counter_is_polled_more_often_after_news(
    real_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Uncounted(real_store)
    with Repository(store, poll_interval=0.5, owns_store=False) as repo:
        with Repository(real_store, poll_interval=0, owns_store=False) as other:
            other.run(lambda tx: tx.add("/a"))
        assert instance_of(repo).wait_for(lambda: "/a" in repo.head, 60)
        polls: queue.SimpleQueue[int] = queue.SimpleQueue()
        # The background thread maintains once in each interval.
        monkeypatch.setattr(instance_of(repo), "maintain", lambda: polls.put(store.take()["scan", "cluster"]))
        polls.get(timeout=60)
        # A slow machine may stall for a whole interval, but not for all of them.
        deadline = time.monotonic() + 60
        while polls.get(timeout=60) <= 1:
            assert time.monotonic() < deadline, "the background polls once in each interval"
            with Repository(real_store, poll_interval=0, owns_store=False) as other:
                other.run(lambda tx: tx.increment("/a", "n"))


def test_a_process_that_must_not_commit_any_more_says_so_once(
    real_store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(lease_ms=1_000, max_clock_skew_ms=100)
    with Repository(real_store, poll_interval=0.01, settings=settings, schema_version=0) as old:
        old.run(lambda tx: tx.add("/a"))
        with Repository(real_store, poll_interval=0, owns_store=False) as new:
            new.set_schema_version(1, expected=0)
        deadline = time.monotonic() + 60
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.05)
        # Maintenance goes on.
        time.sleep(0.5)
        with pytest.raises(hbasemk.SchemaVersionError):
            old.run(lambda tx: tx.add("/b"))
        assert "/a" in old.head
    (message,) = [record.getMessage() for record in caplog.records]
    assert "cannot commit" in message
    assert "schema number 1" in message


def test_a_lost_lease_is_logged_as_no_failure_of_the_store(
    real_store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    with Repository(real_store, poll_interval=0.01, settings=Settings(lease_ms=1_000), owns_store=False) as repo:
        repo.run(lambda tx: tx.add("/a"))
        lease = instance_of(repo).lease
        found = lease_of(lease.store, lease.machine)
        assert found is not None
        taken = LeaseRecord(found.start, found.end + 1, bytes(16), "another process")
        row = schema.machine_key(lease.machine)
        real_store.write(schema.CLUSTER, [Put(row, [NewCell(*schema.LEASE, taken.encode())])])
        deadline = time.monotonic() + 60
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.05)
        repo.run(lambda tx: tx.add("/b"))
        # Maintenance goes on.
        time.sleep(0.5)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "another process ended its lease" in message
    assert "commit was" not in message


def test_an_error_of_the_comparison_is_logged_and_background_work_continues(
    compared: ComparedStore, caplog: pytest.LogCaptureFixture
) -> None:
    with Repository(compared, poll_interval=0.01) as repo:
        compared.error = hbasemk.StoreNotAppliedError("the counter is away")
        compared.wait_for(3)
        compared.error = None
        with Repository(compared.inner, poll_interval=0, owns_store=False) as other:
            other.run(lambda tx: tx.add("/a"))
        assert instance_of(repo).wait_for(lambda: "/a" in repo.head, 60)
        compared.wait_for(1)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "the counter is away" in messages[0]
    assert "available again" in messages[1]


def test_a_defect_is_shown_each_time_and_background_work_continues(
    compared: ComparedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda given: shown.append(given.exc_value))
    with Repository(compared, poll_interval=0.01) as repo:
        defect = compared.error = RuntimeError("a defect")
        compared.wait_for(3)
        compared.error = None
        with Repository(compared.inner, poll_interval=0, owns_store=False) as other:
            other.run(lambda tx: tx.add("/a"))
        assert instance_of(repo).wait_for(lambda: "/a" in repo.head, 60)
    assert len(shown) >= 2
    assert set(shown) == {defect}


def test_a_file_that_disappears_is_reported_though_nothing_is_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "content.db"
    with hbasemk.connect(f"sqlite:///{path}", poll_interval=NEVER):
        path.unlink()
        deadline = time.monotonic() + 60
        while not caplog.records:
            assert time.monotonic() < deadline, "nothing was logged"
            time.sleep(0.01)
    assert "was deleted or replaced" in caplog.records[0].getMessage()


def test_closing_ends_the_thread_at_once_and_is_idempotent(compared: ComparedStore) -> None:
    repo = Repository(compared, poll_interval=NEVER)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "hbasemk-poll")
    compared.wait_for(5)
    repo.close()
    repo.close()
    # Closing waits a second at most; a thread of a slow machine may need longer.
    thread.join(60)
    assert not thread.is_alive()


def test_a_wrapped_store_passes_the_change_counter_on(real_store: MemoryStore) -> None:
    store = WrappedStore(real_store)
    Repository(real_store, poll_interval=0, owns_store=False).close()
    assert store.change_counter() == real_store.change_counter() is not None
