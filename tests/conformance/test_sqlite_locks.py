"""SQLite loses its locks when its process closes a file of the repository, while other processes come and go.

POSIX drops all locks of a process on a file when the process closes any descriptor of that file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hbasemk
from hbasemk import StoreNotAppliedError
from tests.support.repositories import Checked

HEAD = """
import itertools, os, sys, threading, time
import hbasemk
path, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
url = "sqlite:///" + path
until = time.monotonic() + seconds

def commit(repo, number):
    repo.run(lambda change: change.set("/" + name, f"k{number}", number))
    print(number, flush=True)

def open_and_close():
    while time.monotonic() < until:
        for suffix in ("", "-wal", "-shm"):
            try:
                open(path + suffix, "rb").close()
            except FileNotFoundError:
                pass
"""
COMMITTER = """
if "opens" in sys.argv:
    threading.Thread(target=open_and_close, daemon=True).start()
with hbasemk.connect(url, poll_interval=0) as repo:
    repo.run(lambda change: change.add("/" + name))
    for number in itertools.count():
        if number and time.monotonic() >= until:
            break
        commit(repo, number)
"""
COMES_AND_GOES = """
hbasemk.connect(url, poll_interval=0).run(lambda change: change.add("/" + name))
for number in itertools.count():
    if number and time.monotonic() >= until:
        break
    with hbasemk.connect(url, poll_interval=0) as repo:
        commit(repo, number)
"""


def start(script: str, path: Path, *arguments: object, stdin: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + script, str(path), *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_no_acknowledged_commit_is_lost_when_a_process_opens_and_closes_the_files(
    tmp_path: Path, checked: Checked
) -> None:
    path = tmp_path / "content.db"
    url = checked(f"sqlite:///{path}")
    hbasemk.connect(url).close()
    started = {
        "opens0": start(COMMITTER, path, "opens0", 4, "opens"),
        "opens1": start(COMMITTER, path, "opens1", 4, "opens"),
        "plain": start(COMMITTER, path, "plain", 4),
        "goes0": start(COMES_AND_GOES, path, "goes0", 4),
        "goes1": start(COMES_AND_GOES, path, "goes1", 4),
    }
    acknowledged = {}
    failed = {}
    for name, process in started.items():
        printed, errors = process.communicate(timeout=60)
        acknowledged[name] = [int(line) for line in printed.split()]
        if process.returncode:
            failed[name] = errors[-1000:]
    with hbasemk.connect(url, create=False, poll_interval=0) as repo:
        missing = {
            name: [number for number in numbers if f"k{number}" not in repo.head["/" + name]]
            for name, numbers in acknowledged.items()
        }
    assert {name: len(numbers) for name, numbers in missing.items() if numbers} == {}
    assert failed == {}
    assert all(acknowledged.values()), acknowledged


CLOSES = """
from hbasemk.store.sqlite.file_locks import FileLocks

repo = hbasemk.connect(url, poll_interval=0)
commit(repo, 1)
unlock = FileLocks.unlock

def unlock_and_wait(locks):
    FileLocks.unlock = unlock
    unlock(locks)
    # SQLite now gets the exclusive lock. It vanishes if another thread closes a file, so others can open the database.
    print("closing", flush=True)
    sys.stdin.readline()
    for suffix in ("-wal", "-shm"):
        os.unlink(path + suffix)

FileLocks.unlock = unlock_and_wait
repo.close()
"""


def test_nobody_opens_the_files_while_the_last_process_closes_them(tmp_path: Path, checked: Checked) -> None:
    path = tmp_path / "content.db"
    url = checked(f"sqlite:///{path}")
    with hbasemk.connect(url) as repo:
        repo.run(lambda change: change.add("/closes"))
    with start(CLOSES, path, "closes", 4, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["1\n", "closing\n"]
        try:
            with pytest.raises(StoreNotAppliedError, match="locked"):
                hbasemk.connect(f"{url}?busy_timeout=0.3&retry_timeout=0.5", create=False, poll_interval=0)
        finally:
            _, errors = process.communicate("\n", timeout=60)
        assert (process.returncode, errors) == (0, "")
    with hbasemk.connect(url, create=False, poll_interval=0) as repo:
        repo.run(lambda change: change.set("/closes", "k2", 2))
        assert dict(repo.head["/closes"]) == {"k1": 1, "k2": 2}
