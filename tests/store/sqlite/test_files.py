"""Tests of the files of a SQLite store: their identities, their locks, and their replacement by others."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbasemk.errors import StoreUnknownError, StoreUnusableError
from hbasemk.store.abc import Get, Row
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore, file_locks, many_rows, ofd_locks, used_files
from hbasemk.testing.wrapped import CountingStore
from tests.support.sqlite import TABLES, flag, run


def identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


NAMES = ["content.db", "content.db-wal", "content.db-shm"]
OTHER = """
import sys
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
store.write("one", [Put(b"other", [NewCell(b"d", b"flag", b"1")])])
store.close()
"""


def has(store: SqliteStore, *rows: bytes) -> list[bool]:
    return [bool(row.cells) for row in store.read("one", [Get(row) for row in rows])]


def another_process_writes_and_closes(path: Path) -> None:
    subprocess.run([sys.executable, "-c", OTHER, str(path)], check=True, timeout=60)


class TestIdentities:
    def test_a_store_without_files_has_none(self) -> None:
        assert MemoryStore().files() == {}

    def test_files_exist_only_after_creation(self, tmp_path: Path) -> None:
        path = tmp_path / "content.db"
        store = SqliteStore(str(path))
        assert store.files() == {}
        store.create_tables(TABLES)
        assert store.files() == {
            identity(tmp_path / name): str(tmp_path / name)
            for name in ("content.db", "content.db-wal", "content.db-shm")
        }
        assert CountingStore(store).files() == store.files()
        store.close()

    def test_hard_links_are_found_and_symbolic_links_followed(self, tmp_path: Path) -> None:
        real = tmp_path / "real"
        real.mkdir()
        link = tmp_path / "link.db"
        link.symlink_to(real / "content.db")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            store = SqliteStore("link.db")
        store.create_tables(TABLES)
        os.link(real / "content.db-wal", tmp_path / "other-name")
        assert identity(tmp_path / "other-name") in store.files()
        assert set(store.files()) == {identity(one) for one in real.iterdir()}
        assert len(store.files()) == 3
        store.close()

    def test_no_file_is_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = SqliteStore(str(tmp_path / "content.db"))
        store.create_tables(TABLES)

        def refuse(*_: object, **__: object) -> int:
            raise AssertionError("a file of the store was opened")

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            patch.setattr("builtins.open", refuse)
            assert len(store.files()) == 3
        store.close()


needs_locks = pytest.mark.skipif(ofd_locks._set_lock is None, reason="needs locks of open file descriptions")


class TestLocks:
    @needs_locks
    @pytest.mark.parametrize("name", NAMES)
    def test_a_process_that_closes_a_file_keeps_its_log(self, store: SqliteStore, path: Path, name: str) -> None:
        store.write("one", [flag(b"before")])
        before = store.files()
        path.with_name(name).open("rb").close()
        another_process_writes_and_closes(path)
        assert store.files() == before
        store.write("one", [flag(b"after")])
        assert has(store, b"before", b"other", b"after") == [True, True, True]

    @needs_locks
    def test_two_writers_stay_apart_without_the_locks_of_sqlite(self, store: SqliteStore, path: Path) -> None:
        other = SqliteStore(str(path), busy_timeout=0.05)
        met = []

        def clock() -> int:
            # During a write the process loses all locks that SQLite has on the index.
            path.with_name("content.db-shm").open("rb").close()
            ran = subprocess.run(
                [sys.executable, "-c", OTHER.replace("argv[1])", "argv[1], busy_timeout=0.05)"), str(path)],
                capture_output=True,
                text=True,
                timeout=60,
            )
            met.append(ran.stderr)
            return 1

        store._clock = clock
        store.write("one", [flag(b"mine")])
        assert len(met) == 1
        assert "another process or thread kept" in met[0]
        other.write("one", [flag(b"later")])
        other.close()
        assert has(store, b"mine", b"other", b"later") == [True, False, True]

    def test_the_last_close_leaves_only_the_database(self, store: SqliteStore, path: Path) -> None:
        second = SqliteStore(str(path))
        store.write("one", [flag(b"r")])
        second.write("one", [flag(b"s")])
        store.close()
        assert path.with_name("content.db-wal").exists()
        second.close()
        assert os.listdir(path.parent) == ["content.db"]

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
    def test_closing_leaves_no_descriptor(self, path: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            store = SqliteStore(str(path))
            store.create_tables(TABLES)
            store.close()
        assert len(os.listdir("/proc/self/fd")) == before

    @needs_locks
    def test_closing_a_store_keeps_the_locks_of_other_connections_of_the_process(self, path: Path) -> None:
        first = SqliteStore(str(path))
        first.create_tables(TABLES)
        own = sqlite3.connect(path)
        assert own.execute("SELECT count(*) FROM hbasemk_tables").fetchone() == (len(TABLES),)
        for _ in range(3):
            first.close()
            another_process_writes_and_closes(path)
            assert path.with_name("content.db-wal").exists()
            first = SqliteStore(str(path))
            assert has(first, b"other") == [True]
        open_files = len(os.listdir("/proc/self/fd"))
        own.close()
        first.close()
        SqliteStore(str(path)).close()
        assert len(os.listdir("/proc/self/fd")) < open_files - 2
        assert os.listdir(path.parent) == ["content.db"]

    @needs_locks
    def test_a_garbage_collected_store_holds_no_lock(self, path: Path) -> None:
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        del store
        another_process_writes_and_closes(path)
        assert os.listdir(path.parent) == ["content.db"]

    def test_garbage_collection_does_not_wait_for_a_lock_of_its_own_thread(self, path: Path) -> None:
        script = """
import os, sys
from hbasemk.store.abc import Get, Table
from hbasemk.store.sqlite import SqliteStore, descriptors, guard
path = sys.argv[1]
for held in (lambda one: one._lock, lambda one: guard._guards_lock, lambda one: descriptors._lock):
    store = SqliteStore(path)
    store.create_tables([Table("one", (b"d",), 1)])
    one = store._connections._idle[0].guard
    with held(one):
        del store
    other = SqliteStore(path)
    other.read("one", [Get(b"r")])
    other.close()
    assert os.listdir(os.path.dirname(path)) == ["content.db"], os.listdir(os.path.dirname(path))
"""
        subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=20)


OVERWRITE = """
import sys
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
for _ in range(10):
    value = b"newest" * 3000
    store.write("one", [Put(b"%d" % number, [NewCell(b"d", b"flag", value)]) for number in range(10)])
    if "restart" in sys.argv:
        store._connections.writing(lambda found: found.sql.execute("PRAGMA wal_checkpoint(RESTART)").fetchall())
store._connections.writing(lambda found: found.sql.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall())
store.close()
"""


class TestReadsThatLoseTheirLock:
    @pytest.mark.parametrize("how", ["restart", "move"])
    def test_a_read_sees_one_state(
        self, store: SqliteStore, path: Path, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = [b"%d" % number for number in range(10)]
        store.write("one", [flag(row, b"old" * 3000) for row in rows])
        if how == "move":
            # A read then uses no frame of the log.
            store._connections.writing(lambda found: found.sql.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall())
        # This connection has no pages in its cache.
        reader = SqliteStore(str(path))
        read = many_rows._group
        pending = [OVERWRITE]

        def slowly(*arguments: Any) -> list[Row]:
            # Eight rows; the other two follow.
            found = read(*arguments)
            if pending:
                path.with_name("content.db-shm").open("rb").close()
                subprocess.run([sys.executable, "-c", pending.pop(), str(path), how], check=True, timeout=60)
            return found

        monkeypatch.setattr(many_rows, "_group", slowly)
        found = reader.read("one", [Get(row) for row in rows])
        reader.close()
        assert not pending
        assert [row.cells[0].value[:6] for row in found] == [b"newest"] * 10

    def test_a_checkpoint_between_reads_does_not_repeat_the_next_reads(self, store: SqliteStore, path: Path) -> None:
        store.write("one", [flag(b"a")])
        asked = []
        for _ in range(3):
            subprocess.run([sys.executable, "-c", OVERWRITE, str(path), "restart"], check=True, timeout=60)
            store._connections.reading(asked.append)
            # At most one repetition, because of the change since the last read.
            assert 1 <= len(asked) <= 2
            asked.clear()
            store._connections.reading(asked.append)
            assert len(asked) == 1
            asked.clear()


@needs_locks
class TestHardLinks:
    """SQLite puts the log beside the name by which a file is opened, so commits by two names destroy each other."""

    READ = 'attempt(lambda: [row.key for row in store.scan("one", Scan(None, None, 10))])'

    def test_a_file_that_is_open_is_rejected_by_another_name(self, store: SqliteStore, path: Path) -> None:
        store.write("one", [flag(b"before")])
        other = path.with_name("other.db")
        other.hardlink_to(path)
        answers = run('attempt(lambda: store.write("one", [flag(b"lost")]))' + f"\n{self.READ}", other).splitlines()
        second = SqliteStore(str(other))
        with pytest.raises(StoreUnusableError) as raised:
            second.write("one", [flag(b"lost")])
        second.close()
        for answer in [*answers, f"StoreUnusableError {raised.value}"]:
            assert answer.startswith(
                f"StoreUnusableError {other} is the same file as a database that is open by another name"
            )
            assert "2 hard links" in answer
        assert not path.with_name("other.db-wal").exists()
        store.write("one", [flag(b"after")])
        assert has(store, b"before", b"after", b"lost") == [True, True, False]

    def test_one_name_after_the_other_is_fine(self, store: SqliteStore, path: Path) -> None:
        store.write("one", [flag(b"before")])
        other = path.with_name("other.db")
        other.hardlink_to(path)
        store.close()
        assert (
            run(f'store.write("one", [flag(b"other")])\n{self.READ}\nstore.close()', other) == "[b'before', b'other']\n"
        )
        assert run(self.READ, path) == "[b'before', b'other']\n"

    def test_the_name_stays_locked_until_the_log_is_in_the_file(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.write("one", [flag(b"before")])
        other = path.with_name("other.db")
        other.hardlink_to(path)
        answers: list[str] = []
        unlock = file_locks.FileLocks.unlock

        def unlock_and_look(locks: file_locks.FileLocks) -> None:
            was_held = locks.held
            unlock(locks)
            if was_held:
                answers.append(run(self.READ, other))

        monkeypatch.setattr(file_locks.FileLocks, "unlock", unlock_and_look)
        store.close()
        assert answers
        assert all("open by another name" in answer for answer in answers)

    def test_links_to_the_file_and_to_its_folder_are_the_same_name(self, store: SqliteStore, path: Path) -> None:
        file, folder = path.with_name("link.db"), path.parent / "folder"
        file.symlink_to(path)
        folder.symlink_to(path.parent, target_is_directory=True)
        for name in (file, folder / path.name):
            assert run(f'store.write("one", [flag(b"r")])\n{self.READ}', name) == "[b'r']\n"
        assert has(store, b"r") == [True]


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    shutil.copy(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


@pytest.mark.parametrize("change", [remove, replace])
@pytest.mark.parametrize("name", NAMES)
class TestReplacedFiles:
    def test_the_next_write_and_all_later_calls_are_rejected(
        self, store: SqliteStore, path: Path, name: str, change: Callable[[Path], None]
    ) -> None:
        store.write("one", [flag(b"before")])
        change(path.with_name(name))
        for _ in range(3):
            with pytest.raises(StoreUnusableError, match=rf"{name} was deleted or replaced"):
                store.write("one", [flag(b"after")])
        for call in (lambda: store.read("one", [Get(b"before")]), lambda: store.verify(TABLES)):
            with pytest.raises(StoreUnusableError, match="deleted or replaced"):
                call()

    def test_a_write_during_the_replacement_is_not_acknowledged(
        self, store: SqliteStore, path: Path, name: str, change: Callable[[Path], None]
    ) -> None:
        def clock() -> int:
            change(path.with_name(name))
            return 1

        store._clock = clock
        with pytest.raises(StoreUnknownError, match=rf"{name} was deleted or replaced"):
            store.write("one", [flag(b"r")])
        with pytest.raises(StoreUnusableError, match="deleted or replaced"):
            store.read("one", [Get(b"r")])

    def test_reads_detect_the_replacement(
        self,
        store: SqliteStore,
        path: Path,
        name: str,
        change: Callable[[Path], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(used_files, "CHECK_EVERY", 0.0)
        assert has(store, b"r") == [False]
        change(path.with_name(name))
        with pytest.raises(StoreUnusableError, match=rf"{name} was deleted or replaced"):
            store.read("one", [Get(b"r")])

    def test_the_change_counter_detects_the_replacement(
        self,
        store: SqliteStore,
        path: Path,
        name: str,
        change: Callable[[Path], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(used_files, "CHECK_EVERY", 0.0)
        assert store.change_counter() == store.change_counter()
        change(path.with_name(name))
        with pytest.raises(StoreUnusableError, match=rf"{name} was deleted or replaced"):
            store.change_counter()


def test_the_change_counter_raises_at_once_after_any_connection_noticed_a_loss(store: SqliteStore, path: Path) -> None:
    second = SqliteStore(str(path))
    assert store._connections.reading(lambda _: has(store, b"r")) == has(second, b"r") == [False]
    # Now the pool has two idle connections. No check of a read is due soon.
    path.unlink()
    with pytest.raises(StoreUnusableError, match="deleted or replaced"):
        store.write("one", [flag(b"r")])
    for one in (store, second):
        for _ in range(2):
            with pytest.raises(StoreUnusableError, match="deleted or replaced"):
                one.change_counter()
    second.close()


@needs_locks
def test_a_replaced_log_never_reaches_the_database(store: SqliteStore, path: Path) -> None:
    store.close()  # which moves the tables into the file
    store = SqliteStore(str(path))
    second = SqliteStore(str(path))
    assert has(second, b"r") == [False]
    store.write("one", [flag(b"r", b"x" * 50_000)])
    path.with_name("content.db-wal").unlink()
    path.with_name("content.db-shm").unlink()
    another_process_writes_and_closes(path)
    with pytest.raises(StoreUnusableError, match="deleted or replaced"):
        store.write("one", [flag(b"s")])
    with pytest.raises(StoreUnusableError, match="Close every repository"):
        SqliteStore(str(path)).verify(TABLES)
    with pytest.raises(StoreUnusableError, match="deleted or replaced"):
        second.write("one", [flag(b"s")])
    store.close()
    second.close()
    again = SqliteStore(str(path))
    assert has(again, b"r", b"s", b"other") == [False, False, True]
    again.close()
    plain = sqlite3.connect(path)
    assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    plain.close()


@pytest.mark.skipif(
    sqlite3.sqlite_version_info >= (3, 51), reason="this SQLite keeps its locks when another descriptor is closed"
)
def test_the_loss_is_detected_without_locks_of_open_file_descriptions(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    monkeypatch.setattr(ofd_locks, "_set_lock", None)
    store = SqliteStore(str(path))
    store.write("one", [flag(b"before")])
    path.open("rb").close()
    another_process_writes_and_closes(path)
    assert not path.with_name("content.db-wal").exists()
    with pytest.raises(StoreUnusableError, match="content.db-wal was deleted or replaced"):
        store.write("one", [flag(b"after")])
    store.close()
    # SQLite would give new connections of this process the old index.
    with pytest.raises(StoreUnusableError, match="deleted or replaced"):
        SqliteStore(str(path)).verify(TABLES)
    another_process_writes_and_closes(path)
    assert os.listdir(path.parent) == ["content.db"]
    plain = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    plain.close()


READ_ONLY = "attempt to write a readonly database"


def test_a_connection_that_opened_files_too_early_to_write_to_them_is_replaced(store: SqliteStore) -> None:
    used = []

    def write(connection: object) -> int:
        used.append(connection)
        if len(used) == 1:
            raise sqlite3.OperationalError(READ_ONLY)
        return 5

    assert store._connections.writing(write) == 5
    assert len(set(map(id, used))) == 2


def test_files_that_stay_read_only_are_an_error_soon(store: SqliteStore) -> None:
    def write(_: object) -> None:
        raise sqlite3.OperationalError(READ_ONLY)

    with pytest.raises(StoreUnusableError, match=READ_ONLY):
        store._connections.writing(write)
