"""Tests of one SQLite file with several processes: concurrent, killed and forked ones."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hbasemk.errors import StoreNotAppliedError
from hbasemk.store.abc import ALL_VERSIONS, Get, NewCell, Put, Scan, Table
from hbasemk.store.sqlite import SqliteStore, wal_index

MANY = Table("many", (b"c", b"d"), ALL_VERSIONS)
ONE = Table("one", (b"d",), 1)
FLAG = (b"d", b"flag")

HEAD = """
import os, sys, threading
from hbasemk.store.abc import *
from hbasemk.store.sqlite import SqliteStore
path = sys.argv[1]
FLAG = (b"d", b"flag")
def flag(row, value): return Put(row, [NewCell(b"d", b"flag", value)])
"""

COUNT = """
store = SqliteStore(path)
for turn in range(int(sys.argv[2])):
    while True:
        found = store.read("one", [Get(b"counter")])[0].cells[0].value
        if store.check_and_write("one", FLAG, found, flag(b"counter", b"%d" % (int(found) + 1)), durable=turn % 10 == 0):
            break
store.close()
"""

WRITE = """
store = SqliteStore(path)
number = int(sys.argv[2])
while True:
    number += 1
    value = b"%d" % number
    cells = [NewCell(family, name, value, number) for family in (b"c", b"d") for name in (b"p", b"q")]
    store.write("many", [Put(b"row1", cells), Put(b"row2", cells)], durable=number % 3 == 0)
    print(number, flush=True)
"""

FORK_THEN_CLOSE = """
store = SqliteStore(path)
store.write("one", [flag(b"parent", b"1")])
from_child, to_parent = os.pipe()
from_parent, to_child = os.pipe()
child = os.fork()
if not child:
    store.write("one", [flag(b"child before", b"1")])
    os.write(to_parent, b"x")
    os.read(from_parent, 1)
    store.write("one", [flag(b"child after", b"1")])
    os._exit(0)
os.read(from_child, 1)
store.close()
os.write(to_child, b"x")
sys.exit(os.waitpid(child, 0)[1])
"""

FORK_DURING_CALLS = """
store = SqliteStore(path, busy_timeout=60)
stop = threading.Event()
def work(number):
    turn = 0
    while not stop.is_set():
        turn += 1
        store.write("one", [flag(b"thread%d" % number, b"%d" % turn)])
        store.read("one", [Get(b"thread%d" % number)])
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
failed = 0
for number in range(20):
    child = os.fork()
    if not child:
        status = 1
        try:
            store.write("one", [flag(b"child%d" % number, b"1")])
            assert store.read("one", [Get(b"child%d" % number)])[0].cells
            store.close()
            status = 0
        finally:
            os._exit(status)
    failed += os.waitpid(child, 0)[1] != 0
stop.set()
for thread in threads: thread.join()
store.write("one", [flag(b"parent", b"1")])
sys.exit(failed)
"""

WRITE_ONE = """
store = SqliteStore(path)
store.write("one", [flag(b"other", b"1")])
store.close()
"""

COUNT_CHANGES_BESIDE_A_CHILD = """
store = SqliteStore(path)
store.verify([])
before = store.change_counter()
child = os.fork()
if not child:
    status = 1
    try:
        own = store.change_counter()
        store.write("one", [flag(b"child", b"1")])
        assert store.change_counter() != own
        store.close()
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
assert store.change_counter() != before
assert store.change_counter() == store.change_counter()
store.close()
"""

UNREPORTED_FORK = """
import ctypes
store = SqliteStore(path)
store.write("one", [flag(b"parent", b"1")])
child = ctypes.PyDLL(None).fork()
if not child:
    status = 1
    try:
        store.write("one", [flag(b"child", b"1")])
        store.close()
        status = 0
    finally:
        os._exit(status)
status = os.waitpid(child, 0)[1]
store.write("one", [flag(b"parent again", b"1")])
sys.exit(status != 0)
"""


def start(script: str, path: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + script, str(path), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "content.db"
    store = SqliteStore(str(path))
    store.create_tables([MANY, ONE])
    store.close()
    return path


def rows_of(path: Path) -> set[bytes]:
    store = SqliteStore(str(path))
    rows = {row.key for row in store.scan("one", Scan(None, None, 1000))}
    store.close()
    return rows


def is_sound(path: Path) -> bool:
    plain = sqlite3.connect(path)
    try:
        return plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        plain.close()


def test_no_compare_and_set_of_many_processes_is_lost(path: Path) -> None:
    store = SqliteStore(str(path))
    store.write("one", [Put(b"counter", [NewCell(*FLAG, b"0")])])
    processes = [start(COUNT, path, 150) for _ in range(4)]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert store.read("one", [Get(b"counter")])[0].cells[0].value == b"600"
    store.close()
    assert is_sound(path)


def test_processes_may_create_the_same_file_concurrently(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    script = """
store = SqliteStore(path)
tables = [Table("many", (b"c", b"d"), ALL_VERSIONS), Table("one", (b"d",), 1)]
store.create_tables(tables)
store.write("one", [flag(b"process" + sys.argv[2].encode(), b"1")])
store.verify(tables)
store.close()
"""
    processes = [start(script, path, number) for number in range(6)]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert rows_of(path) == {b"process%d" % number for number in range(6)}


def test_a_killed_writer_leaves_whole_batches_and_all_acknowledged_ones(path: Path) -> None:
    seed = int(os.environ.get("HBASEMK_TEST_SEED", "1"))
    print(f"repeat with HBASEMK_TEST_SEED={seed}")
    chance = random.Random(seed)
    reached = 0
    for _ in range(8):
        process = start(WRITE, path, reached)
        assert process.stdout is not None
        acknowledged = reached
        for _ in range(chance.randrange(1, 300)):
            acknowledged = int(process.stdout.readline())
        process.kill()
        rest = process.communicate(timeout=60)[0].split()
        assert process.returncode == -signal.SIGKILL
        # The last line may be incomplete.
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1])])
        store = SqliteStore(str(path))
        found = store.read("many", [Get(b"row1", versions=ALL_VERSIONS), Get(b"row2", versions=ALL_VERSIONS)])
        store.close()
        reached = found[0].cells[0].timestamp
        assert reached >= acknowledged
        for row in found:
            assert len(row.cells) == 4 * reached
            assert {cell.timestamp for cell in row.cells} == set(range(1, reached + 1))
    assert is_sound(path)


def test_a_busy_file_raises_an_error_that_names_it_until_its_holder_is_killed(path: Path) -> None:
    script = """
import sqlite3, time
sql = sqlite3.connect(path, isolation_level=None)
sql.execute("BEGIN IMMEDIATE")
print("holding", flush=True)
time.sleep(600)
"""
    holder = start(script, path)
    assert holder.stdout is not None
    holder.stdout.readline()
    store = SqliteStore(str(path), busy_timeout=0.2)
    for call in (
        lambda: store.write("one", [Put(b"r", [NewCell(*FLAG, b"1")])]),
        lambda: store.check_and_write("one", FLAG, None, Put(b"r", [NewCell(*FLAG, b"1")])),
        lambda: store.delete_rows("one", [b"r"]),
    ):
        with pytest.raises(StoreNotAppliedError, match=r"content\.db locked for 0\.2 s"):
            call()
    # Readers do not wait for writers.
    assert not store.read("one", [Get(b"r")])[0].cells
    holder.kill()
    holder.communicate()
    store.write("one", [Put(b"r", [NewCell(*FLAG, b"1")])])
    assert store.read("one", [Get(b"r")])[0].cells
    store.close()


class TestChangeCounter:
    def test_it_shows_a_commit_of_another_process(self, path: Path) -> None:
        store = SqliteStore(str(path))
        store.verify([ONE])
        before = store.change_counter()
        assert store.change_counter() == before
        start(WRITE_ONE, path).communicate(timeout=60)
        assert rows_of(path) == {b"other"}
        assert store.change_counter() != before
        store.close()

    def test_it_shows_a_commit_while_this_process_had_closed_the_files(self, path: Path) -> None:
        store = SqliteStore(str(path))
        store.verify([ONE])
        before = store.change_counter()
        store._connections.before_fork()
        try:
            assert os.listdir(path.parent) == [path.name]
            start(WRITE_ONE, path).communicate(timeout=60)
            # The log and its index are new at the next use, as they were at the first.
            assert os.listdir(path.parent) == [path.name]
        finally:
            store._connections.after_fork(child=False)
        assert store.change_counter() != before
        assert rows_of(path) == {b"other"}
        store.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
    def test_it_shows_a_commit_of_a_child(self, path: Path) -> None:
        process = start(COUNT_CHANGES_BESIDE_A_CHILD, path)
        process.communicate(timeout=60)
        assert process.returncode == 0

    def test_an_index_of_an_unknown_version_has_none(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wal_index, "INDEX_VERSION", 1)
        store = SqliteStore(str(path))
        store.write("one", [Put(b"row", [NewCell(*FLAG, b"1")])])
        assert store.change_counter() is None
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
class TestForks:
    def test_a_childs_writes_survive_the_parents_closing(self, path: Path) -> None:
        process = start(FORK_THEN_CLOSE, path)
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert rows_of(path) == {b"parent", b"child before", b"child after"}
        assert is_sound(path)

    def test_children_forked_during_calls_of_other_threads_can_write(self, path: Path) -> None:
        process = start(FORK_DURING_CALLS, path)
        process.communicate(timeout=120)
        assert process.returncode == 0
        assert rows_of(path) == {
            b"parent",
            *(b"thread%d" % number for number in range(3)),
            *(b"child%d" % number for number in range(20)),
        }
        assert is_sound(path)

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="calls the C library's fork")
    def test_a_fork_that_python_does_not_report_leaves_the_parents_connections_alone(self, path: Path) -> None:
        process = start(UNREPORTED_FORK, path)
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert rows_of(path) == {b"parent", b"child", b"parent again"}
        assert is_sound(path)
