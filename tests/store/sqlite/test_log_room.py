"""Tests of the room that the SQLite store keeps at the end of the write-ahead log (decision 51)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hbasemk.store.abc import Scan
from hbasemk.store.sqlite import SqliteStore, log_room
from hbasemk.store.sqlite.wal_index import INDEX_VERSION, LogState
from tests.support.full_disk import largest_file
from tests.support.sqlite import HEAD, TABLES, flag

WRITES = 200


@pytest.fixture
def log(path: Path) -> Path:
    return Path(f"{path}-wal")


def sizes_after_writes(store: SqliteStore, log: Path, *, durable: bool = True) -> list[int]:
    sizes = []
    for number in range(WRITES):
        store.write("one", [flag(b"%d" % number)], durable=durable)
        sizes.append(log.stat().st_size)
    return sizes


def checkpoint(store: SqliteStore, mode: str) -> None:
    with contextlib.closing(sqlite3.connect(store.location)) as sql:
        assert sql.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0] == 0


def test_few_durable_writes_change_the_size_of_the_log(store: SqliteStore, log: Path) -> None:
    sizes = sizes_after_writes(store, log)
    # Each of them writes at least one page.
    assert sizes[-1] > WRITES * 4096
    assert len(set(sizes)) <= 1 + sizes[-1] // log_room.ROOM


def test_writes_that_are_not_durable_leave_the_size_to_sqlite(store: SqliteStore, log: Path) -> None:
    store.close()
    store = SqliteStore(store.location)
    sizes = sizes_after_writes(store, log, durable=False)
    store.close()
    assert len(set(sizes)) == WRITES


def test_there_is_always_room_for_a_small_write(store: SqliteStore, log: Path) -> None:
    other = SqliteStore(store.location)
    for number in range(WRITES):
        # Each of the two finds the log longer than it left it.
        (store, other)[number % 2].write("one", [flag(b"%d" % number)])
        state = store._connections.reading(lambda found: found.guard.read_log_state())
        assert state is not None
        assert log.stat().st_size - state.used >= log_room.LEAST
    other.close()


def test_a_large_log_gets_no_room(store: SqliteStore, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_room, "MOST", log_room.ROOM // 2)
    sizes = sizes_after_writes(store, log)
    assert len(set(sizes)) > WRITES // 2


def test_a_log_that_begins_again_needs_no_more_room(store: SqliteStore, log: Path) -> None:
    """A checkpoint moves all frames into the file. Then SQLite overwrites the log from its start."""
    sizes_after_writes(store, log)
    checkpoint(store, "PASSIVE")
    size = log.stat().st_size
    assert set(sizes_after_writes(store, log)[: WRITES // 2]) == {size}


def test_a_truncated_log_gets_room_again(store: SqliteStore, log: Path) -> None:
    sizes_after_writes(store, log)
    checkpoint(store, "TRUNCATE")
    assert log.stat().st_size == 0
    sizes = sizes_after_writes(store, log)
    assert len(set(sizes)) <= 1 + sizes[-1] // log_room.ROOM


def test_a_killed_process_loses_no_write_and_the_room_is_no_damage(path: Path, log: Path, tmp_path: Path) -> None:
    script = """
store.create_tables([Table("many", (b"c", b"d"), ALL_VERSIONS), Table("one", (b"d",), 1)])
for number in range(100): store.write("one", [flag(b"%d" % number)])
print("written", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", HEAD + script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    assert not log.read_bytes()[-log_room.LEAST :].strip(b"\0")
    # A copy without the index, as after a crash of the machine.
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    shutil.copy(log, f"{copy}-wal")
    for found in (path, copy):
        store = SqliteStore(str(found))
        assert len(store.scan("one", Scan(None, None, 1000))) == 100
        store.write("one", [flag(b"after")])
        store.close()
        with contextlib.closing(sqlite3.connect(found)) as sql:
            assert sql.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_disk_without_space_for_room_still_takes_writes(store: SqliteStore, log: Path) -> None:
    store.write("one", [flag(b"before")])
    limit = log.stat().st_size + log_room.LEAST
    with largest_file(limit):
        number = 0
        while store._connections.reading(lambda found: found.guard.read_log_state()).used < limit - 20_000:
            store.write("one", [flag(b"%d" % number)])
            number += 1
    assert number > 1
    assert log.stat().st_size <= limit
    store.write("one", [flag(b"after")])
    assert len(store.scan("one", Scan(None, None, 1000))) == number + 2


def test_after_a_full_disk_the_log_gets_room_again(store: SqliteStore, log: Path, path: Path) -> None:
    # While another connection is open, the process goes on with what it knows of the log.
    other = SqliteStore(str(path))
    assert other.scan("one", Scan(None, None, 1)) == []
    store.write("one", [flag(b"before")])
    limit = log.stat().st_size + log_room.LEAST
    with largest_file(limit):
        while store._connections.reading(lambda found: found.guard.read_log_state()).used < limit - 20_000:
            store.write("one", [flag(b"full")])
    checkpoint(store, "TRUNCATE")
    sizes = sizes_after_writes(store, log)
    assert len(set(sizes)) <= 2 + sizes[-1] // log_room.ROOM
    other.close()


def test_another_file_in_the_place_of_the_log_is_not_written_to(path: Path, log: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected"
    expected.touch()
    log.write_bytes(b"foreign")
    room = log_room.LogRoom(str(path))
    state = LogState(INDEX_VERSION, b"salt", frames=1, moved=0, used=4152, data=b"")
    room.make(state, (expected.stat().st_dev, expected.stat().st_ino))
    assert log.read_bytes() == b"foreign"
    # The failure is remembered until the file is closed.
    room.make(state, (log.stat().st_dev, log.stat().st_ino))
    assert log.read_bytes() == b"foreign"
    room.close()
    room.make(state, (log.stat().st_dev, log.stat().st_ino))
    assert log.stat().st_size == len(b"foreign") + log_room.ROOM
    room.close()


def test_a_file_that_took_the_number_of_the_closed_descriptor_is_not_written_to(
    path: Path, log: Path, tmp_path: Path
) -> None:
    log.touch()
    identity = (log.stat().st_dev, log.stat().st_ino)
    room = log_room.LogRoom(str(path))
    room.make(LogState(INDEX_VERSION, b"salt", frames=1, moved=0, used=4152, data=b""), identity)
    assert room._descriptor is not None
    os.close(room._descriptor)
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    assert other == room._descriptor
    room.make(LogState(INDEX_VERSION, b"salt", frames=99, moved=0, used=log_room.ROOM, data=b""), identity)
    room.close()
    assert os.fstat(other).st_size == 0
    os.close(other)


def test_no_descriptor_stays_open(path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for _ in range(3):
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        store.close()
    assert opened() == before


def test_a_forked_child_keeps_no_descriptor_of_the_log(store: SqliteStore, log: Path) -> None:
    store.write("one", [flag(b"r")])
    identity = (log.stat().st_dev, log.stat().st_ino)
    child = os.fork()
    if not child:
        found = [os.fstat(int(name)) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
        os._exit(sum((one.st_dev, one.st_ino) == identity for one in found))
    assert os.waitpid(child, 0)[1] == 0
