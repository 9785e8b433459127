"""The container in which the tests run HBase is removed with the last process that uses it (`tests/support/hbase_container.py`).

The processes here use no Docker engine: a script in its place records how it was called.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HANGS = 120
"""Seconds after which a container surely stays."""
USER = """
import pathlib, sys
from tests.support import hbase_container

class Container:
    def remove(self, **options):
        print("removed")

hbase_container._start = lambda known: known.write_text("this container")
hbase_container._find = lambda container: Container()
with hbase_container.shared_container(pathlib.Path(sys.argv[1])):
    print("uses it", flush=True)
    sys.stdin.read()
"""
"""A program that uses the container until its standard input ends."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which the script in place of `docker` writes its arguments."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "docker").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n')
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return tmp_path / "calls"


@contextmanager
def user(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that uses the container of a folder."""
    command = [sys.executable, "-c", USER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "uses it\n"
            yield process
        finally:
            process.kill()


def test_a_container_whose_users_are_killed_is_removed(tmp_path: Path, calls: Path) -> None:
    with user(tmp_path) as first, user(tmp_path) as second:
        first.kill()
        second.kill()
    deadline = time.monotonic() + HANGS
    while (tmp_path / "hbase.container").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert calls.read_text() == "rm --force --volumes this container\n"


def test_a_container_stays_while_a_process_uses_it(tmp_path: Path, calls: Path) -> None:
    with user(tmp_path) as first, user(tmp_path) as second:
        first.kill()
        first.wait()
        assert (tmp_path / "hbase.container").exists()
        assert second.communicate(timeout=HANGS)[0] == "removed\n"
    assert not (tmp_path / "hbase.container").exists()
    assert not calls.exists()
