"""Tests of a repository while another program keeps its SQLite file locked."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk import Repository, StoreNotAppliedError
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import problems


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "content.db"
    Repository(SqliteStore(str(path)), poll_interval=0).close()
    return path


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield another program's connection to the file; check the repository at the end of the test."""
    sql = sqlite3.connect(path, isolation_level=None)
    yield sql
    sql.close()
    with Repository(SqliteStore(str(path)), poll_interval=0) as repo:
        assert problems(repo) == []


def test_a_first_commit_is_retried_until_the_retry_timeout(path: Path, other: sqlite3.Connection) -> None:
    store = FaultyStore(SqliteStore(str(path), busy_timeout=0.05))
    attempts: list[Call] = []

    def end_the_lock(call: Call) -> None:
        if call.method not in ("read", "scan"):
            attempts.append(call)
            if len(attempts) == 3:
                other.execute("ROLLBACK")

    with Repository(store, poll_interval=0) as repo:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreNotAppliedError, match=r"nothing was committed.*locked for 0\.05 s"):
            repo.run(lambda tx: tx.add("/a"), retry_timeout=0)
        with pytest.raises(StoreNotAppliedError, match=r"locked for 0\.05 s"):
            repo.run(lambda tx: tx.add("/a"), retry_timeout=1.5)
        # The retries are independent of the busy timeout of a single call.
        store.before = end_the_lock
        repo.run(lambda tx: tx.add("/a"))
        assert len(attempts) >= 3
        assert "/a" in repo.head


def test_a_call_that_failed_for_another_reason_is_retried(path: Path, other: sqlite3.Connection) -> None:
    store = FaultyStore(SqliteStore(str(path)))
    failed: list[Call] = []

    def fail(call: Call) -> None:
        if call.method not in ("read", "scan") and len(failed) < 3:
            failed.append(call)
            raise StoreNotAppliedError("the store is temporarily unavailable")

    with Repository(store, poll_interval=0) as repo:
        store.before = fail
        repo.run(lambda tx: tx.add("/a"))
        assert len(failed) == 3


def test_closing_does_not_wait_for_a_file_that_stays_locked(path: Path, other: sqlite3.Connection) -> None:
    repo = Repository(SqliteStore(str(path), busy_timeout=3600), poll_interval=0)
    repo.run(lambda tx: tx.add("/a"))
    other.execute("BEGIN IMMEDIATE")
    closing = threading.Thread(target=repo.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    other.execute("ROLLBACK")
