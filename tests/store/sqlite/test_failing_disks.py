"""Tests of the SQLite store on failing disks, and of what a call leaves on the disk."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hbasemk.errors import StoreNotAppliedError
from hbasemk.store.abc import CellVersion, Delete, DeleteBelow, NewCell, Put, Scan
from hbasemk.store.sqlite import SqliteStore
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
