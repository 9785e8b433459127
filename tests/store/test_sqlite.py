"""Tests of the SQLite store on invalid files and failing disks."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hbasemk.errors import FormatError, StoreNotAppliedError, StoreUnusableError
from hbasemk.store.abc import CellVersion, Delete, DeleteBelow, Get, NewCell, Put, Scan
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore, database_file, log_size
from tests.support.sqlite import FLAG, TABLES, flag


def every_first_call(path: Path):
    """Return each call that may be the first one on a file."""
    for call in (
        lambda store: store.create_tables(TABLES),
        lambda store: store.verify(TABLES),
        lambda store: store.read("one", [Get(b"r")]),
        lambda store: store.write("one", [flag(b"r")]),
    ):
        store = SqliteStore(str(path))
        yield lambda call=call, store=store: call(store)
        store.close()


@pytest.mark.parametrize("seed", range(4))
def test_many_named_columns_are_read_as_in_memory(store: SqliteStore, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    memory = MemoryStore(lambda: 1)
    memory.create_tables(TABLES)
    names = [b"%03d" % number for number in range(200)]
    deep = chance.sample(names, 10)
    for name in names:
        versions = chance.sample(range(1, 40), chance.choice((0, 1, 2, 30)) if name in deep else 1)
        for into in (store, memory) if versions else ():
            into.write("many", [Put(b"r", [NewCell(b"d", name, b"%d" % at, at) for at in versions])])
    statements: list[str] = []
    with store._connections._idle[0].sql as sql:
        sql.set_trace_callback(statements.append)
    for _ in range(100):
        first = chance.randrange(len(names))
        among = chance.choice((names[first : first + chance.randrange(5, 60)], names, deep))
        columns = [(b"d", name) for name in chance.choices([*among, b"", b"0005", b"zz"], k=chance.randrange(1, 40))]
        get = Get(
            b"r", columns, since=chance.choice((0, 7)), before=chance.choice((20, 50)), versions=chance.choice((1, 3))
        )
        assert [list(row.cells) for row in store.read("many", [get])] == [
            list(row.cells) for row in memory.read("many", [get])
        ], get
    del statements[:]
    assert (
        len(store.read("many", [Get(b"r", [(b"d", name) for name in sorted({*names} - {*deep})[:100]])])[0].cells)
        == 100
    )
    assert len([one for one in statements if one.startswith("SELECT qualifier")]) <= 12, statements


class TestFiles:
    def test_creating_a_store_object_touches_nothing(self, path: Path) -> None:
        SqliteStore(str(path)).close()
        assert not path.exists()

    def test_only_create_tables_creates_the_file(self, path: Path) -> None:
        store = SqliteStore(str(path))
        for call in (lambda: store.verify(TABLES), lambda: store.write("one", [flag(b"r")])):
            with pytest.raises(StoreUnusableError, match=r"the file .*content\.db does not exist"):
                call()
        assert not path.exists()
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        store.close()
        assert path.exists()

    def test_an_empty_file_is_accepted(self, path: Path) -> None:
        path.touch()
        store = SqliteStore(str(path))
        with pytest.raises(StoreUnusableError, match=r"content\.db is empty"):
            store.verify(TABLES)
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        store.close()

    def test_a_journal_without_a_roll_back_does_not_prevent_opening(self, store: SqliteStore, path: Path) -> None:
        store.close()
        path.with_name("content.db-journal").write_bytes(b"")
        again = SqliteStore(str(path))
        again.write("one", [flag(b"r")])
        again.close()

    def test_a_path_may_contain_characters_that_are_special_in_a_url(self, tmp_path: Path) -> None:
        path = tmp_path / "a b%20?mode=ro#x&y ü.db"
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        assert store.location == str(path)
        store.close()
        assert path.exists()

    @pytest.mark.parametrize("size", [1, 10, 99, 100, 600, 5000, 100_000])
    def test_a_file_that_is_not_sqlite_is_rejected_by_name_and_unchanged(self, path: Path, size: int) -> None:
        content = (b"This is somebody's important text. " * 3000)[:size]
        path.write_bytes(content)
        for call in every_first_call(path):
            with pytest.raises(FormatError, match=r"content\.db"):
                call()
        assert path.read_bytes() == content

    @pytest.mark.parametrize(
        "script",
        [
            "CREATE TABLE theirs (x)",
            "PRAGMA application_id=77; CREATE TABLE t (x); DROP TABLE t",
            "PRAGMA user_version=3",
        ],
    )
    def test_a_database_of_another_program_is_rejected_by_name_and_unchanged(self, path: Path, script: str) -> None:
        theirs = sqlite3.connect(path)
        theirs.executescript(script)
        theirs.close()
        content = path.read_bytes()
        for call in every_first_call(path):
            with pytest.raises(FormatError, match=r"content\.db is a SQLite database of another program"):
                call()
        assert path.read_bytes() == content
        assert [entry.name for entry in path.parent.iterdir()] == ["content.db"]

    def test_a_newer_format_is_rejected_by_name_and_number(self, store: SqliteStore, path: Path) -> None:
        store.close()
        newer = sqlite3.connect(path)
        newer.execute(f"PRAGMA user_version={database_file.FORMAT + 1}")
        newer.close()
        for call in every_first_call(path):
            with pytest.raises(FormatError, match=rf"content\.db has file format {database_file.FORMAT + 1}"):
                call()

    def test_a_damaged_file_is_rejected_by_name(self, store: SqliteStore, path: Path) -> None:
        store.write("many", [Put(b"%d" % n, [NewCell(b"d", b"q", b"x" * 500, 1)]) for n in range(500)])
        store.close()
        content = bytearray(path.read_bytes())
        content[4096:] = os.urandom(len(content) - 4096)
        path.write_bytes(content)
        damaged = SqliteStore(str(path))
        with pytest.raises(FormatError, match=r"content\.db .*damaged"):
            damaged.scan("many", Scan(None, None, 1000))
        damaged.close()

    def test_a_file_with_a_damaged_header_is_rejected_by_name(self, store: SqliteStore, path: Path) -> None:
        store.close()
        content = bytearray(path.read_bytes())
        content[:16] = bytes(16)
        path.write_bytes(content)
        for call in every_first_call(path):
            with pytest.raises(FormatError, match=r"content\.db .*damaged"):
                call()

    def test_a_missing_part_of_a_table_is_reported_as_damage(self, store: SqliteStore, path: Path) -> None:
        store.close()
        plain = sqlite3.connect(path)
        for (name,) in plain.execute("SELECT name FROM sqlite_master WHERE name LIKE 'one%'").fetchall():
            plain.execute(f'DROP TABLE "{name}"')
        plain.close()
        damaged = SqliteStore(str(path))
        for call in (lambda: damaged.read("one", [Get(b"r")]), lambda: damaged.write("one", [flag(b"r")])):
            with pytest.raises(FormatError, match=r"content\.db is damaged.*'one'"):
                call()
        damaged.close()

    def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "nowhere" / "content.db"))
        with pytest.raises(StoreUnusableError, match=r"nowhere.content\.db"):
            store.create_tables(TABLES)
        store.close()

    def test_a_folder_in_the_files_place_is_named(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path))
        with pytest.raises(StoreUnusableError, match=tmp_path.name):
            store.create_tables(TABLES)
        store.close()


HEAD = """
import os, resource, sys
from hbasemk.store.abc import *
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
def flag(row, value=b"1"): return Put(row, [NewCell(b"d", b"flag", value)])
def attempt(call):
    try: print(call())
    except Exception as error: print(type(error).__name__, error)
store = SqliteStore(sys.argv[1])
"""
WITHOUT_RIGHTS = """
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""


def run(script: str, path: Path) -> str:
    """Run a script in its own process and return its output."""
    ran = subprocess.run([sys.executable, "-c", HEAD + script, str(path)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
class TestPermissions:
    @pytest.fixture
    def open_folder(self, tmp_path: Path) -> Path:
        for folder in (tmp_path, *tmp_path.parents):
            if folder.owner() == tmp_path.owner() and "pytest" in str(folder):
                folder.chmod(folder.stat().st_mode | 0o055)
        folder = tmp_path / "folder"
        folder.mkdir()
        folder.chmod(0o777)
        return folder

    def test_a_write_protected_file_is_unusable_for_writing(self, open_folder: Path) -> None:
        path = open_folder / "content.db"
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.close()
        path.chmod(0o444)
        said = run(WITHOUT_RIGHTS + 'attempt(lambda: store.write("one", [flag(b"r")]))', path)
        assert said.startswith("StoreUnusableError")
        assert "content.db" in said

    @pytest.mark.parametrize(("file", "folder"), [(0o666, 0o555), (0o444, 0o777), (0o444, 0o555)])
    def test_a_reader_needs_permission_to_read_only(self, open_folder: Path, file: int, folder: int) -> None:
        path = open_folder / "content.db"
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.close()
        path.chmod(file)
        open_folder.chmod(folder)
        script = """
attempt(lambda: store.read("one", [Get(b"r")]))
attempt(lambda: store.write("one", [flag(b"r")]))
store.close()
"""
        read, write = run(WITHOUT_RIGHTS + script, path).splitlines()
        assert read == "[Row(key=b'r', cells=[])]"
        assert write.startswith(f"StoreUnusableError {path} is open for reading only")
        assert os.listdir(open_folder) == ["content.db"]

    def test_a_write_protected_folder_is_unusable(self, open_folder: Path) -> None:
        open_folder.chmod(0o555)
        path = open_folder / "content.db"
        said = run(WITHOUT_RIGHTS + 'attempt(lambda: store.create_tables([Table("one", (b"d",), 1)]))', path)
        assert said.startswith("StoreUnusableError")
        assert "content.db" in said
        assert not path.exists()


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


class TestCalls:
    def test_an_interrupted_write_leaves_nothing_and_the_store_usable(self, path: Path) -> None:
        interrupted = [True]

        def clock() -> int:
            if interrupted:
                raise KeyboardInterrupt
            return 5

        store = SqliteStore(str(path), clock=clock)
        store.create_tables(TABLES)
        for call in (
            lambda: store.write("one", [flag(b"r")]),
            lambda: store.check_and_write("one", FLAG, None, flag(b"r")),
        ):
            with pytest.raises(KeyboardInterrupt):
                call()
        interrupted.clear()
        assert store.read("one", [Get(b"r")])[0].cells == []
        store.write("one", [flag(b"r")])
        assert store.read("one", [Get(b"r")])[0].cells[0].timestamp == 5
        store.close()

    def test_a_write_is_stamped_when_it_happens_not_when_it_begins_to_wait(self, path: Path) -> None:
        now = [1000]
        store = SqliteStore(str(path), clock=lambda: now[0])
        store.create_tables(TABLES)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        writer = threading.Thread(target=lambda: store.write("one", [flag(b"r")]))
        writer.start()
        now[0] = 2000
        holder.execute("COMMIT")
        holder.close()
        writer.join()
        assert store.read("one", [Get(b"r")])[0].cells[0].timestamp == 2000
        store.close()

    def test_the_log_is_bounded_although_there_is_always_a_reader(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bound = 400_000
        monkeypatch.setattr(store._connections._log, "_limit", bound)
        monkeypatch.setattr(log_size, "LOG_BOUND", bound)
        store._connections.reading(lambda found: found.sql.execute("PRAGMA wal_autocheckpoint=50"))
        readers = [sqlite3.connect(path, isolation_level=None, check_same_thread=False) for _ in range(2)]
        finished = threading.Event()

        def read() -> None:
            # Each read begins before the other ends, so there is always a reader of an old state.
            while True:
                for reader, other in (readers, readers[::-1]):
                    reader.execute("BEGIN")
                    reader.execute("SELECT count(*) FROM hbasemk_tables").fetchone()
                    if other.in_transaction:
                        other.execute("COMMIT")
                    if finished.wait(0.002):
                        return

        thread = threading.Thread(target=read)
        thread.start()
        largest = 0
        for number in range(3000):
            store.write("one", [flag(b"%d" % (number % 50), b"x" * 1000)], durable=False)
            largest = max(largest, os.path.getsize(f"{path}-wal"))
        finished.set()
        thread.join()
        for reader in readers:
            reader.close()
        assert bound < largest < 6 * bound

    def test_a_stuck_reader_does_not_stop_the_writers(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_size, "LOG_TIMEOUT_MS", 1)
        monkeypatch.setattr(store._connections._log, "_limit", 50_000)
        stuck = sqlite3.connect(path, isolation_level=None)
        stuck.execute("BEGIN")
        stuck.execute("SELECT count(*) FROM hbasemk_tables").fetchone()
        for number in range(300):
            store.write("one", [flag(b"r", b"%d" % number * 200)], durable=False)
        stuck.close()
        assert store.read("one", [Get(b"r")])[0].cells[0].value == b"299" * 200

    def test_connections_of_ended_threads_are_reused(self, store: SqliteStore) -> None:
        for _ in range(50):
            thread = threading.Thread(target=lambda: store.read("one", [Get(b"r")]))
            thread.start()
            thread.join()
        assert len(store._connections._idle) == 1

    def test_a_call_during_closing_succeeds_and_leaves_nothing_open(self, path: Path) -> None:
        running, closed = threading.Event(), threading.Event()

        def clock() -> int:
            running.set()
            closed.wait(60)
            return 7

        store = SqliteStore(str(path), clock=clock)
        store.create_tables(TABLES)
        thread = threading.Thread(target=lambda: store.write("one", [flag(b"r")]))
        thread.start()
        running.wait(60)
        store.close()
        closed.set()
        thread.join()
        again = SqliteStore(str(path))
        assert again.read("one", [Get(b"r")])[0].cells[0].timestamp == 7
        again.close()
        # The last connection to a file removes the log.
        assert sorted(entry.name for entry in path.parent.iterdir()) == ["content.db"]
