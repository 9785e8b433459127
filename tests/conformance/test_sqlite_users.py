"""Tests of one SQLite file with several users: some may only read, some share it with their group.

The processes take the ids of users that need not exist, which takes root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hbasemk import connect
from tests.support.repositories import damage

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="takes the ids of other users, which needs root"
)


class User(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


OWNER = User(64_001, 64_001, (64_010,))
COLLEAGUE = User(64_002, 64_002, (64_010,))
READER = User(64_003, 64_003)

HEAD = """
import os, select, signal, sqlite3, sys, time
# Import all modules now: the user may not be able to read the interpreter's files later.
import hbasemk, hbasemk.branch, hbasemk.store.sqlite, hbasemk.cli.main, hbasemk.transfer.exporter, hbasemk.kernel.log
import mmap, rich.progress, rich.table, hbasemk.check, encodings.idna, random, pwd, urllib.parse
path, uid, gid, groups = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [int(one) for one in sys.argv[4].split(",") if one]
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
os.umask(0o022)
url = "sqlite:///" + path
def say(*what): print(*what, flush=True)
def wait(): sys.stdin.readline()
def attempt(call):
    try: say("done", call())
    except Exception as error: say(type(error).__name__, error)
"""


def command(user: User, script: str, path: Path) -> list[str]:
    groups = ",".join(map(str, user.groups))
    return [sys.executable, "-c", HEAD + script, str(path), str(user.uid), str(user.gid), groups]


def run(user: User, script: str, path: Path) -> list[str]:
    """Run a script as a user and return the lines that it prints."""
    ran = subprocess.run(command(user, script, path), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout.splitlines()


CREATE = """
settings = hbasemk.Settings(lease_ms=2000, max_clock_skew_ms=500)
with hbasemk.connect(url, settings=settings) as repo: repo.run(lambda change: change.add("/a", {"x": 0}))
"""


class Running:
    """A script that runs as a user; :meth:`go` makes it continue after each ``wait()``."""

    def __init__(self, user: User, script: str, path: Path) -> None:
        self.process = subprocess.Popen(
            command(user, script, path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process of user {self.process.args[-3]} ended early"  # type: ignore[index]
        return line.rstrip("\n")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")

    def end(self) -> None:
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        with self.process:
            pass


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that every user may write to; other users cannot enter pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="hbasemk-users-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@pytest.fixture
def path(folder: Path) -> Iterator[Path]:
    """Create the owner's repository, with a node ``/a`` with ``x=0``."""
    path = folder / "content.db"
    run(OWNER, CREATE, path)
    assert [one.name for one in folder.iterdir()] == ["content.db"]
    yield path
    assert damage(f"sqlite:///{path}") == []


COMMIT = 'with hbasemk.connect(url, poll_interval=0) as repo: repo.run(lambda change: change.set("/a", "x", "{}"))\n'
READ_ALL = """
with hbasemk.connect(url, poll_interval=0.05) as repo:
    head = repo.head
    say(head["/a"]["x"], [node.path for node in head.walk()], len(list(repo.log())), head.child_count("/"))
    say(repo.at(head.revision)["/a"]["x"], list(repo.diff(head)), list(repo.watch(timeout=0.3)))
"""
EXPECTED = ["0 ['/', '/a'] 2 1", "0 [] []"]


def owners(folder: Path) -> set[int]:
    return {one.stat().st_uid for one in folder.iterdir()}


class TestReaders:
    @pytest.mark.parametrize("mode", [0o777, 0o755])
    def test_reading_creates_no_files_and_does_not_hinder_the_owner(self, path: Path, folder: Path, mode: int) -> None:
        folder.chmod(mode)
        assert run(READER, READ_ALL, path) == EXPECTED
        assert [one.name for one in folder.iterdir()] == ["content.db"]
        folder.chmod(0o777)
        run(OWNER, COMMIT.format(1), path)
        assert owners(folder) == {OWNER.uid}

    def test_a_rejected_write_names_user_and_file(self, path: Path) -> None:
        (said,) = run(READER, f"attempt(lambda: exec({COMMIT.format(1)!r}))", path)
        assert said.startswith(f"StoreUnusableError {path} is open for reading only: user {READER.uid} may not write")
        assert f"owner {OWNER.uid}" in said

    def test_reading_beside_a_live_and_a_killed_writer(self, path: Path, folder: Path) -> None:
        script = """
repo = hbasemk.connect(url, poll_interval=0)
for number in range(1, 3):
    repo.run(lambda change: change.set("/a", "x", number))
    say(number)
    wait()
"""
        writer = Running(OWNER, script, path)
        assert writer.line() == "1"
        reader = Running(READER, 'repo = hbasemk.connect(url)\nsay(repo.head["/a"]["x"])\n' + WATCH_ONE, path)
        assert reader.line() == "1"
        assert reader.line() == "watching"
        writer.go()
        assert writer.line() == "2"
        assert reader.line() == "seen 2"
        reader.end()
        writer.kill()
        for mode in (0o777, 0o755):
            folder.chmod(mode)
            assert run(READER, 'say(hbasemk.connect(url).head["/a"]["x"])', path) == ["2"]
        assert owners(folder) == {OWNER.uid}
        folder.chmod(0o777)
        run(OWNER, COMMIT.format(3), path)
        assert os.listdir(folder) == ["content.db"]

    def test_a_writer_may_start_during_a_read(self, path: Path, folder: Path) -> None:
        reader = Running(READER, 'repo = hbasemk.connect(url)\nsay(repo.head["/a"]["x"])\n' + WATCH_ONE, path)
        assert reader.line() == "0"
        assert reader.line() == "watching"
        run(OWNER, COMMIT.format("new"), path)
        assert reader.line() == "seen new"
        reader.end()
        assert owners(folder) == {OWNER.uid}

    def test_the_change_counter_shows_commits_of_writers_that_start_and_end(self, path: Path, folder: Path) -> None:
        script = """
from hbasemk.store.sqlite import SqliteStore
store = SqliteStore(path)
while True:
    say(store.change_counter())
    assert store.change_counter() == store.change_counter()
    wait()
"""
        reader = Running(READER, script, path)
        seen = [reader.line()]
        for number in range(3):
            run(OWNER, COMMIT.format(number), path)
            reader.go()
            seen.append(reader.line())
        assert len(set(seen)) == 4
        reader.kill()
        assert owners(folder) == {OWNER.uid}

    def test_reads_are_correct_beside_writers_that_start_and_end(self, path: Path, folder: Path) -> None:
        write = """
number = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    with hbasemk.connect(url, poll_interval=0) as repo:
        for _ in range(3):
            number += 1
            repo.run(lambda change: (change.set("/a", "x", number), change.set("/a", "y", "%d" % number * 3000)))
say(number)
"""
        read = """
until = time.monotonic() + 4
seen = set()
while time.monotonic() < until or len(seen) < 2:
    with hbasemk.connect(url, poll_interval=0) as repo:
        for _ in range(20):
            node = repo.refresh()["/a"]
            assert node.get("y", "") == "%d" % node["x"] * 3000 or not node["x"], node["x"]
            if seen: assert node["x"] >= max(seen), (node["x"], max(seen))
            seen.add(node["x"])
say(len(seen))
"""
        writer, *readers = [Running(OWNER, write, path), Running(READER, read, path), Running(READER, read, path)]
        seen = [int(one.line()) for one in readers]
        # The writer goes on until both readers have seen enough.
        writer.go()
        written = int(writer.line())
        for one in (writer, *readers):
            one.end()
        assert written > 3
        assert min(seen) > 1
        assert run(OWNER, 'say(hbasemk.connect(url).head["/a"]["x"])', path) == [str(written)]
        assert owners(folder) == {OWNER.uid}

    def test_the_command_line_can_read(self, path: Path, folder: Path) -> None:
        target = folder / "out"
        target.mkdir(mode=0o777)
        target.chmod(0o777)
        for arguments in (
            ["ls", "/"],
            ["cat", "/a"],
            ["log"],
            ["status"],
            ["check"],
            ["export", "--format", "json", "/", str(target / "tree.json")],
        ):
            run(READER, f"hbasemk.cli.main.main(['--url', url, *{arguments!r}])", path)
        assert (target / "tree.json").stat().st_size > 0
        shutil.rmtree(target)
        assert os.listdir(folder) == ["content.db"]


WATCH_ONE = """
found = repo.watch(timeout=60)
say("watching")
next(found)
say("seen", repo.head["/a"]["x"])
repo.close()
"""
PLAIN_READ = """
plain = sqlite3.connect(path)
plain.execute("SELECT count(*) FROM hbasemk_tables").fetchone()
say("open")
"""


class TestForeignFiles:
    def leave_foreign(self, path: Path) -> None:
        """Leave the files as a killed reader or an older version leaves them."""
        run(READER, PLAIN_READ + "os._exit(0)", path)
        assert {path.with_name(f"content.db-{one}").stat().st_uid for one in ("wal", "shm")} == {READER.uid}

    def test_the_owner_replaces_files_of_a_reader(self, path: Path, folder: Path) -> None:
        self.leave_foreign(path)
        run(OWNER, COMMIT.format(1), path)
        assert os.listdir(folder) == ["content.db"]
        assert run(READER, 'say(hbasemk.connect(url).head["/a"]["x"])', path) == ["1"]

    def test_commits_in_a_foreign_log_are_kept(self, path: Path, folder: Path) -> None:
        run(OWNER, COMMIT.format(1).replace("with", "if 1: repo =", 1).replace(" as repo:", ";") + "os._exit(0)", path)
        for one in ("wal", "shm"):
            os.chown(f"{path}-{one}", READER.uid, READER.gid)
        assert path.with_name("content.db-wal").stat().st_size > 0
        run(OWNER, COMMIT.format(2), path)
        with connect(f"sqlite:///{path}", create=False) as repo:
            assert [entry.message for entry in repo.log("/a")] == ["", "", ""]
            assert repo.head["/a"]["x"] == "2"
        assert os.listdir(folder) == ["content.db"]

    def test_the_error_names_file_owner_and_command_while_the_other_user_is_connected(self, path: Path) -> None:
        reader = Running(READER, PLAIN_READ + "wait(); plain.close()", path)
        assert reader.line() == "open"
        script = """
store = hbasemk.store.sqlite.SqliteStore(path)
attempt(lambda: store.verify([]))
wait()
attempt(lambda: store.verify([]))
store.close()
"""
        owner = Running(OWNER, script, path)
        said = owner.line()
        assert said.startswith(f"ForeignFilesError user {OWNER.uid} may not write to {path}-wal (owner {READER.uid}")
        assert "another process has the database open" in said
        assert f"chown --reference={path} {path}-wal {path}-shm" in said
        reader.go()
        reader.end()
        owner.go()
        assert owner.line() == "done None"
        owner.end()

    def test_a_folder_with_the_sticky_bit(self, path: Path, folder: Path) -> None:
        self.leave_foreign(path)
        folder.chmod(0o1777)
        (said,) = run(OWNER, f"attempt(lambda: exec({COMMIT.format(1)!r}))", path)
        assert said.startswith(f"ForeignFilesError user {OWNER.uid} may not write to {path}-wal (owner {READER.uid}")
        fix = said.rpartition("run as root: ")[2]
        subprocess.run(fix, shell=True, check=True)
        run(OWNER, COMMIT.format(1), path)


class TestGroups:
    @pytest.mark.parametrize("set_group_id", [True, False])
    def test_two_users_of_a_group_can_write(self, path: Path, folder: Path, set_group_id: bool) -> None:
        group = OWNER.groups[0]
        os.chown(path, OWNER.uid, group)
        path.chmod(0o664)
        os.chown(folder, 0, group)
        folder.chmod(0o2775 if set_group_id else 0o775)
        script = """
repo = hbasemk.connect(url, poll_interval=0)
for number in range(20):
    repo.run(lambda change: change.set("/a", f"{uid}-{number}", number))
    say(number)
    if number in {0, 10}: wait()
if "killed" in sys.argv: os._exit(0)
repo.close()
"""
        both = [Running(one, script, path) for one in (OWNER, COLLEAGUE)]
        for _ in range(2):
            for one in both:
                while one.line() not in {"0", "10"}:
                    pass
            for one in both:
                one.go()
        for one in both:
            one.end()
        for user in (COLLEAGUE, OWNER):
            # A killed process leaves its files; the other process continues to use them.
            run(user, COMMIT.format(user.uid) + "os._exit(0)", path)
        with connect(f"sqlite:///{path}", create=False) as repo:
            wanted = {f"{user.uid}-{number}" for user in (OWNER, COLLEAGUE) for number in range(20)}
            assert wanted <= set(repo.head["/a"])

    def test_a_user_outside_the_group_can_read(self, path: Path, folder: Path) -> None:
        path.chmod(0o664)
        assert run(READER, READ_ALL, path) == EXPECTED
        assert os.listdir(folder) == ["content.db"]
