"""Tests of the SQLite store on failing disks, and of what a call leaves on the disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hbasemk.errors import StoreNotAppliedError
from hbasemk.store.abc import CellVersion, Delete, DeleteBelow, NewCell, Put, Scan
from hbasemk.store.sqlite import SqliteStore
from tests.support.full_disk import largest_file
from tests.support.sqlite import FLAG, TABLES, flag, run


class TestFailingDisks:
    def test_a_write_to_a_full_disk_is_not_applied_and_the_store_remains_usable(self, store: SqliteStore) -> None:
        store.write("one", [flag(b"before")])

        def limit(pages: int) -> None:
            # One thread uses the pool, so it has one connection.
            store._connections.reading(lambda found: found.sql.execute(f"PRAGMA max_page_count={pages}").fetchall())

        limit(1)  # which SQLite raises to what the file has
        with pytest.raises(StoreNotAppliedError, match=r"no space .*content\.db"):
            store.write("many", [Put(b"%d" % n, [NewCell(b"d", b"q", b"x" * 5000, 1)]) for n in range(100)])
        with pytest.raises(StoreNotAppliedError, match="no space"):
            store.check_and_write("one", FLAG, None, flag(b"large", b"x" * 100_000))
        assert store.scan("many", Scan(None, None, 10)) == []
        assert [row.key for row in store.scan("one", Scan(None, None, 10))] == [b"before"]
        limit(1_000_000)
        store.write("one", [flag(b"after")])
        assert [row.key for row in store.scan("one", Scan(None, None, 10))] == [b"after", b"before"]

    @pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
    def test_a_commit_that_fails_on_the_disk_is_unknown_and_the_file_stays_intact(
        self, store: SqliteStore, path: Path
    ) -> None:
        store.write("one", [flag(b"before")])
        store.close()
        script = """
limit = os.path.getsize(sys.argv[1]) + 20_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
attempt(lambda: store.write("one", [flag(b"large", b"x" * 200_000)]))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
attempt(lambda: store.write("one", [flag(b"after")]))
store.close()
"""
        first, second = run(script, path).splitlines()
        assert first.startswith("StoreUnknownError")
        assert "content.db" in first
        assert second == "None"
        again = SqliteStore(str(path))
        found = [row.key for row in again.scan("one", Scan(None, None, 10))]
        again.close()
        assert found in ([b"after", b"before"], [b"after", b"before", b"large"])


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
class TestFileSystems:
    """SQLite reports a full file system as an I/O error when it cannot extend the log's index."""

    @pytest.fixture
    def closed(self, store: SqliteStore, path: Path) -> SqliteStore:
        store.write("one", [flag(b"before")])
        store.close()
        return SqliteStore(str(path))

    def read(self, store: SqliteStore) -> str:
        with pytest.raises(StoreNotAppliedError) as raised:
            store.scan("one", Scan(None, None, 10))
        return str(raised.value)

    def lacks(self, monkeypatch: pytest.MonkeyPatch, **numbers: int) -> None:
        real = os.statvfs

        def statvfs(path: str) -> object:
            found = real(path)
            names = [name for name in dir(found) if name.startswith("f_")]
            return SimpleNamespace(**{**{name: getattr(found, name) for name in names}, **numbers})

        monkeypatch.setattr(os, "statvfs", statvfs)

    def test_opening_on_a_full_file_system_says_that_it_is_full(
        self, closed: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with largest_file(0):
            assert "failed (disk I/O error)" in self.read(closed)
            self.lacks(monkeypatch, f_bavail=1, f_frsize=4096)
            text = self.read(closed)
        assert text.startswith(f"no space is left to write to {closed.location}")
        assert "Free some space" in text
        assert len(closed.scan("one", Scan(None, None, 10))) == 1

    def test_opening_without_a_free_inode_says_so(
        self, closed: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = path.with_name("content.db-wal")
        log.mkdir()
        self.lacks(monkeypatch, f_bavail=1 << 30, f_files=1000, f_favail=0)
        text = self.read(closed)
        assert "its file system has no inodes left" in text
        assert "Remove some files" in text
        log.rmdir()
        assert len(closed.scan("one", Scan(None, None, 10))) == 1


class TestDurability:
    def synchronous(self, store: SqliteStore) -> int:
        """Return 2 if every commit syncs the log, 1 if only a checkpoint does."""
        return store._connections.reading(lambda found: found.sql.execute("PRAGMA synchronous").fetchone()[0])

    def test_calls_sync_the_log_unless_they_are_not_durable(self, store: SqliteStore) -> None:
        store.write("one", [flag(b"r")])
        assert self.synchronous(store) == 2
        store.write("one", [flag(b"r")], durable=False)
        assert self.synchronous(store) == 1
        assert store.check_and_write("one", FLAG, b"1", flag(b"r", b"2"))
        assert self.synchronous(store) == 2
        assert store.check_and_write("one", FLAG, b"2", flag(b"r", b"3"), durable=False)
        assert self.synchronous(store) == 1

    def test_deletes_leave_it_to_the_next_durable_call_to_sync_the_log(self, store: SqliteStore) -> None:
        for call in (
            lambda: store.delete("one", [Delete(b"r", [CellVersion(*FLAG, 1)])]),
            lambda: store.delete_below("one", [DeleteBelow(b"r", [CellVersion(*FLAG, 1)])]),
            lambda: store.delete_rows("one", [b"r"]),
        ):
            store.write("one", [flag(b"r")])
            assert self.synchronous(store) == 2
            call()
            assert self.synchronous(store) == 1

    def test_a_store_that_is_not_durable_never_syncs_the_log(self, path: Path) -> None:
        store = SqliteStore(str(path), durable=False)
        store.create_tables(TABLES)
        for call in (
            lambda: store.write("one", [flag(b"r")]),
            lambda: store.check_and_write("one", FLAG, b"1", flag(b"r", b"2")),
            lambda: store.delete_rows("one", [b"r"]),
        ):
            call()
            assert self.synchronous(store) == 1
        store.close()
