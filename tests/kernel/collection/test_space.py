"""The file of a repository on SQLite shrinks to the size of its tree when old revisions are collected."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

import hbasemk
from hbasemk.kernel.collection.collector import Collector
from hbasemk.repository import instance_of
from hbasemk.store.sqlite import SqliteStore, free_pages
from tests.support.collecting import set_grace
from tests.support.repositories import problems

NODES = 150
REWRITES = 12


def write(repo: hbasemk.Repository, number: int) -> None:
    def change(tx: hbasemk.Transaction) -> None:
        for node in range(NODES):
            tx.set(f"/{node}", "p", bytes([number]) * 6000)

    repo.run(change)


def begin(repo: hbasemk.Repository) -> None:
    def change(tx: hbasemk.Transaction) -> None:
        for node in range(NODES):
            tx.add(f"/{node}")

    repo.run(change)


def size(path: Path) -> int:
    with sqlite3.connect(path) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sql.close()
    return path.stat().st_size


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a repository of which all values were written many times."""
    set_grace(monkeypatch, 0.0)
    path = tmp_path / "old.db"
    with hbasemk.connect(f"sqlite:///{path}", poll_interval=0) as repo:
        begin(repo)
        for number in range(REWRITES):
            write(repo, number)
    return path


def collect(path: Path) -> None:
    with hbasemk.connect(f"sqlite:///{path}", poll_interval=0) as repo:
        time.sleep(0.1)
        repo.run(lambda tx: tx.set("/", "last", 1))
        Collector(instance_of(repo)).run(1)
        time.sleep(0.01)
        Collector(instance_of(repo)).run(1)
        assert repo.head["/0"]["p"] == bytes([REWRITES - 1]) * 6000
        assert problems(repo) == []


def test_a_file_shrinks_to_the_size_of_a_fresh_copy(old: Path, tmp_path: Path) -> None:
    before = size(old)
    fresh = tmp_path / "fresh.db"
    with hbasemk.connect(f"sqlite:///{fresh}", poll_interval=0) as repo:
        begin(repo)
        write(repo, REWRITES - 1)
    collect(old)
    print(before, size(old), size(fresh))
    assert before > 5 * size(fresh)
    assert size(old) <= 1.1 * size(fresh)


def test_freed_pages_are_used_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteStore, "give_back_space", lambda _: False)
    before = size(old)
    collect(old)
    with hbasemk.connect(f"sqlite:///{old}", poll_interval=0) as repo:
        for number in range(REWRITES // 2):
            write(repo, number)
    assert size(old) <= 1.01 * before


def test_a_file_of_an_older_version_keeps_its_size_until_it_is_converted(old: Path) -> None:
    with sqlite3.connect(old, isolation_level=None) as sql:
        sql.execute("PRAGMA auto_vacuum=NONE")
        sql.execute("VACUUM")
    sql.close()
    before = size(old)
    collect(old)
    assert size(old) >= before
    with sqlite3.connect(old, isolation_level=None) as sql:
        sql.execute("PRAGMA auto_vacuum=INCREMENTAL")
        sql.execute("VACUUM")
        assert sql.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    sql.close()
    assert size(old) < before / 5
    collect(old)


def test_space_is_given_back_in_parts(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_pages, "AT_ONCE", 50)
    store = SqliteStore(str(old))
    with sqlite3.connect(old, isolation_level=None) as sql:
        sql.execute("CREATE TABLE t (x)")
        sql.execute("INSERT INTO t VALUES (zeroblob(1000000))")
        sql.execute("DROP TABLE t")
    sql.close()
    free = -(-1_000_000 // 4096)
    calls = 1
    while store.give_back_space():
        calls += 1
    assert (free - 130) // 50 <= calls <= free // 50 + 1
    assert not store.give_back_space()
    store.close()
