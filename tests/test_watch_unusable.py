"""A watch raises the error of a store that cannot be used, with and without background polling."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hbasemk
from hbasemk import ClosedError, FormatError, Repository, StoreNotAppliedError, StoreUnusableError, Watch, maintenance
from hbasemk.errors import HbasemkError
from hbasemk.kernel import settings
from hbasemk.microkernel import MicroKernel
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import used_files
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.older import set_format
from tests.support.watches import increments

NEVER = 3600.0
NEWER = settings.FORMAT + 1
MODES = pytest.mark.parametrize("poll_interval", [0, 0.01])


class Following(threading.Thread):
    """Follows a watch in a thread, until the watch ends or raises."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(daemon=True)
        self.messages: list[str] = []
        self.error: HbasemkError | None = None
        self._watch = watch
        self.start()

    def run(self) -> None:
        try:
            for entry in self._watch:
                self.messages.append(entry.message)
        except HbasemkError as error:
            self.error = error

    def ending(self) -> HbasemkError | None:
        """Wait for the end, and return the error that the watch raised."""
        self.join(60)
        assert not self.is_alive(), "the watch waits forever"
        return self.error


@contextlib.contextmanager
def opened(store: MemoryStore, poll_interval: float) -> Iterator[tuple[Repository, FaultyStore]]:
    """Open a repository whose calls the test can fail, with a node that is easy to change."""
    faulty = FaultyStore(store)
    with Repository(faulty, poll_interval=poll_interval, owns_store=False) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        yield repo, faulty


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition never holds"
        time.sleep(0.005)


def delete(path: Path) -> None:
    """Delete the files of a database."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()


def replace(path: Path) -> None:
    """Put a new repository in the place of a file, as a restored backup."""
    for suffix in ("", "-wal", "-shm"):
        os.rename(f"{path}{suffix}", f"{path}.old{suffix}")
    hbasemk.connect(f"sqlite:///{path}", poll_interval=0).close()


@MODES
@pytest.mark.parametrize("change", [delete, replace])
def test_watches_raise_after_the_file_was_deleted_or_replaced(
    tmp_path: Path,
    change: Callable[[Path], None],
    poll_interval: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(used_files, "CHECK_EVERY", 0.05)
    path = tmp_path / "content.db"
    with hbasemk.connect(f"sqlite:///{path}", poll_interval=poll_interval) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        mk = MicroKernel(repo)
        head = mk.get_head_revision()
        following = Following(repo.watch())
        change(path)
        error = following.ending()
        assert isinstance(error, StoreUnusableError)
        assert "was deleted or replaced" in str(error)
        for _ in range(2):
            with pytest.raises(StoreUnusableError, match="was deleted or replaced"):
                next(repo.watch())
            with pytest.raises(StoreUnusableError, match="was deleted or replaced"):
                list(repo.watch(timeout=0.02))
            with pytest.raises(StoreUnusableError, match="was deleted or replaced"):
                mk.wait_for_commit(head, 60_000)
        # Several attempts of the background.
        time.sleep(0.7)
    messages = [record.getMessage() for record in caplog.records if record.name == "hbasemk"]
    assert len(messages) == (1 if poll_interval else 0)
    assert not any("available again" in message for message in messages)


@MODES
def test_watches_raise_after_another_format_has_stopped_the_store(
    real_store: MemoryStore, poll_interval: float
) -> None:
    with opened(real_store, poll_interval) as (repo, _):
        following = Following(repo.watch())
        set_format(real_store, NEWER)
        with pytest.raises(FormatError, match=f"has format {NEWER}"):
            instance_of(repo).lease.renew()
        error = following.ending()
        assert isinstance(error, FormatError)
        assert f"has format {NEWER}" in str(error)
        with pytest.raises(FormatError, match=f"has format {NEWER}"):
            list(repo.watch(timeout=0.02))
    set_format(real_store, settings.FORMAT)


def test_maintenance_that_finds_another_format_ends_watches_and_is_logged_once(
    real_store: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintenance, "LONGEST_PAUSE", 0.02)
    with opened(real_store, 0.01) as (repo, _):
        following = Following(repo.watch())
        instance = instance_of(repo)
        monkeypatch.setattr(instance, "maintain", instance.lease.renew)
        set_format(real_store, NEWER)
        assert isinstance(following.ending(), FormatError)
        time.sleep(0.1)
    set_format(real_store, settings.FORMAT)
    (message,) = [record.getMessage() for record in caplog.records if record.name == "hbasemk"]
    assert f"has format {NEWER}" in message


@MODES
def test_a_watch_continues_when_the_store_can_be_used_again(
    real_store: MemoryStore, poll_interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LONGEST_PAUSE", 0.05)

    def fail(call: Call) -> None:
        raise StoreUnusableError(f"no permission for {call.method}")

    def succeed(_: Call) -> None:
        pass

    with opened(real_store, poll_interval) as (repo, store):
        watch = repo.watch()
        store.before = fail
        for _ in range(2):
            with pytest.raises(StoreUnusableError, match="no permission"):
                next(watch)
        store.before = succeed
        wait_until(lambda: instance_of(repo).failure is None)
        increments(repo, "1")
        assert next(watch).message == "1"


def test_a_watch_waits_out_an_outage_that_background_polls_meet(
    real_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LONGEST_PAUSE", 0.05)
    refused = 0

    def fail(call: Call) -> None:
        nonlocal refused
        refused += 1
        raise StoreNotAppliedError(f"an outage, in {call.method}")

    def succeed(_: Call) -> None:
        pass

    with opened(real_store, 0.01) as (repo, store), repo.watch() as watch:
        following = Following(watch)
        store.before = fail
        wait_until(lambda: refused >= 5)
        assert instance_of(repo).failure is None
        assert following.is_alive()
        store.before = succeed
        increments(repo, "1")
        wait_until(lambda: following.messages == ["1"])
        watch.close()
        assert following.ending() is None


def test_maintenance_that_fails_ends_no_watch_while_polls_succeed(
    real_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "LONGEST_PAUSE", 0.02)
    failed = 0

    def fail() -> None:
        nonlocal failed
        failed += 1
        raise StoreUnusableError("no permission to write")

    with opened(real_store, 0.01) as (repo, _), repo.watch() as watch:
        monkeypatch.setattr(instance_of(repo), "maintain", fail)
        following = Following(watch)
        wait_until(lambda: failed >= 3)
        increments(repo, "1")
        wait_until(lambda: following.messages == ["1"])
        assert following.is_alive()
        watch.close()
        assert following.ending() is None


def test_a_watch_whose_last_batch_is_read_raises_instead_of_ending(real_store: MemoryStore) -> None:
    class Uncounted(FaultyStore):
        def change_counter(self) -> int | None:
            return None

    # Its background polls neither before nor after the test sets the failure.
    with Repository(Uncounted(real_store), poll_interval=NEVER, owns_store=False) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        watch = repo.watch("/other", timeout=0.0)
        increments(repo, "1")
        instance_of(repo).failure = StoreUnusableError("no permission")
        for _ in range(2):
            with pytest.raises(StoreUnusableError, match="no permission"):
                next(watch)
        instance_of(repo).failure = None
        assert list(watch) == []


@MODES
def test_a_watch_raises_after_another_object_closed_the_store(real_store: MemoryStore, poll_interval: float) -> None:
    store = copy.copy(real_store)
    repo = Repository(store, poll_interval=poll_interval, owns_store=False)
    following = Following(repo.watch())
    store.close()
    assert isinstance(following.ending(), ClosedError)
    with contextlib.suppress(ClosedError):
        repo.close()
