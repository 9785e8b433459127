"""Commands whose reader has ended, as `head` does: the result and the work stay what they are with a reader."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hbasemk
from hbasemk import connect
from hbasemk.check import IntegrityCheck
from hbasemk.format import paths, schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit.operations import SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.sqlite import SqliteStore
from hbasemk.system import SystemRuntime
from tests.support.commands import DONE, NO
from tests.support.tables import Tables

INTERRUPTED = 130
TERMINATED = 143


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path / 'content.db'}"
    settings = hbasemk.Settings(lease_ms=1000, max_clock_skew_ms=1000)
    with connect(made, poll_interval=0, settings=settings) as repository, repository.transaction() as tx:
        for path in ("/a", "/a/b", "/c"):
            tx.add(path, {"n": 1})
    return made


@pytest.fixture
def tables(url: str, tmp_path: Path) -> Iterator[Tables]:
    store = SqliteStore(str(tmp_path / "content.db"))
    runtime = SystemRuntime()

    def opened(_: int) -> Instance:
        return Instance.open(store, runtime)

    yield Tables(store, opened, runtime.sleep, runtime.now_ms)
    store.close()


def code_without_reader(url: str, *words: str, unbuffered: bool = True) -> int:
    """Run a command whose output has no reader, and meets that at its first line; it must print no message."""
    theirs, ours = os.pipe()
    os.close(theirs)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    command = [sys.executable, "-m", "hbasemk", "--url", url, *words]
    with subprocess.Popen(command, stdout=ours, stderr=subprocess.PIPE, env=environment) as running:
        os.close(ours)
        _, stderr = running.communicate()
    assert stderr == b""
    return running.returncode


def with_damage(tables: Tables) -> None:
    """Make a node undecodable, which no repair corrects."""
    revision = tables.commit(SetProperty("/a", "n", 2))
    tables.put(schema.NODES, paths.key("/a"), (schema.property_column("n"), b"\x77", revision))


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_check_that_finds_damage_ends_with_1(url: str, tables: Tables, form: str) -> None:
    with_damage(tables)
    assert code_without_reader(url, "check", "--output", form) == NO
    assert code_without_reader(url, "check", "--repair", "--output", form) == NO


def test_a_check_that_finds_only_a_note_first_goes_on(url: str, tables: Tables) -> None:
    # The blobs are checked last.
    tables.put(schema.BLOBS, bytes(36), ((schema.DATA, b"data"), b"part", None))
    assert code_without_reader(url, "check", "--blobs") == DONE
    other = b"\x01" * 32
    tables.put(schema.BLOBS, other, ((schema.DATA, b"length"), b"wrong", None))
    assert code_without_reader(url, "check", "--blobs") == NO


def test_a_repair_is_completed(url: str, tables: Tables) -> None:
    for name in ("one", "two", "three"):
        tables.forge(RowChange("/a", "changed", (), [name]))
    assert code_without_reader(url, "check", "--repair") == DONE
    assert tables.found() == []


def test_a_recovery_is_completed(url: str, tables: Tables) -> None:
    for name in ("p", "q", "r"):
        tables.dead_writer(RowChange("/a", "changed", [name]))
    tables.wait(2.5)
    assert code_without_reader(url, "recover") == DONE
    assert list(IntegrityCheck(tables.open_instance(40)).run()) == []


@pytest.mark.parametrize(
    "words",
    [(), ("--output", "json"), ("--paths",), ("--paths", "--depth", "0"), ("--paths", "--output", "json")],
    ids=" ".join,
)
def test_a_difference_ends_with_1(url: str, words: tuple[str, ...]) -> None:
    with connect(url, poll_interval=0) as repository:
        before = repository.head.revision
        with repository.transaction() as tx:
            for number in range(3):
                tx.add(f"/c/{number}")
        after = repository.head.revision
    assert code_without_reader(url, "diff", before, after, *words) == NO
    assert code_without_reader(url, "diff", after, after, *words) == DONE


@pytest.mark.parametrize("at_once", [True, False])
def test_a_watch_ends_with_its_reader_although_nothing_is_committed(url: str, at_once: bool) -> None:
    command = [sys.executable, "-m", "hbasemk", "--url", url, "watch"]
    with (
        connect(url, poll_interval=0) as repository,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running,
    ):
        assert running.stdout is not None
        assert running.stderr is not None
        if not at_once:
            wait_until_listening(repository, running)
        running.stdout.close()
        assert running.stderr.read().startswith(b"hbasemk: resume with --since ")
        assert running.wait(60) == DONE


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
def test_a_signal_is_the_normal_end_of_a_watch(url: str, number: int, code: int) -> None:
    command = [sys.executable, "-m", "hbasemk", "--url", url, "watch"]
    with (
        connect(url, poll_interval=0) as repository,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running,
    ):
        wait_until_listening(repository, running)
        running.send_signal(number)
        _, stderr = running.communicate()
        assert running.returncode == code
        token = resume_token(stderr)
        repository.run(lambda tx: tx.set("/a", "n", 0), "later")
        with repository.watch(since=token, timeout=0) as watch:
            assert [entry.message for entry in watch][-1] == "later"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
def test_a_signal_ends_a_watch_whose_reader_does_not_read(url: str, number: int, code: int) -> None:
    with connect(url, poll_interval=0) as repository:
        first = repository.head.revision
        for value in range(3):
            repository.run(lambda tx: tx.set("/a", "n", -value), "x" * 60_000)  # noqa: B023
        theirs, ours = os.pipe()
        command = [sys.executable, "-m", "hbasemk", "--url", url, "watch", "--since", first]
        with subprocess.Popen(command, stdout=ours, stderr=subprocess.PIPE) as running:
            room = select.poll()
            room.register(ours, select.POLLOUT)
            while room.poll(0):
                assert running.poll() is None
                SystemRuntime().sleep(0.01)
            running.send_signal(number)
            _, stderr = running.communicate()
        os.close(ours)
        os.close(theirs)
        assert running.returncode == code
        with repository.watch(since=resume_token(stderr), timeout=0) as watch:
            # It repeats what was not wholly written.
            assert len(list(watch)) in {2, 3}


def resume_token(stderr: bytes) -> str:
    """Return the token of a watch that has printed nothing else."""
    before, _, token = stderr.decode().partition("hbasemk: resume with --since ")
    assert (before, token.count("\n"), token[-1:]) == ("", 1, "\n")
    return token[:-1]


def wait_until_listening(repository: hbasemk.Repository, running: subprocess.Popen[bytes]) -> None:
    """Commit until a watch prints a line, and read what it prints."""
    assert running.stdout is not None
    os.set_blocking(running.stdout.fileno(), False)
    while not running.stdout.read():
        repository.run(lambda tx: tx.increment("/a", "n"))
        SystemRuntime().sleep(0.1)


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_repair_by_several_processes_is_completed(url: str, tables: Tables, unbuffered: bool) -> None:
    """What the reader did not read must not fail when a worker starts, which flushes the output before."""
    with connect(url, poll_interval=0) as repository, repository.transaction() as tx:
        for number in range(6000):
            tx.add(f"/c/{number}")
    # The process finds the first one before it starts workers; these find the second one.
    for path in ("/a", "/c/5999"):
        tables.forge(RowChange(path, "changed", (), ["lost"]))
    assert code_without_reader(url, "check", "--repair", "--workers", "2", unbuffered=unbuffered) == DONE
    assert tables.found() == []
