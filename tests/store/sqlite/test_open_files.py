"""A process that cannot open more files: calls fail for the time being, and say why."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk import connect
from hbasemk.errors import StoreNotAppliedError
from hbasemk.store.abc import Get
from hbasemk.store.sqlite import SqliteStore
from tests.support.sqlite import TABLES, flag


@contextlib.contextmanager
def open_files_left(count: int) -> Iterator[None]:
    """Let the process open only so many more files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.open(os.devnull, os.O_RDONLY)]
    # The system gives the lowest free number, so fill the gaps below the limit.
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[0] + 64, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(opened.pop())
        yield
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("left", range(6))
def test_a_call_says_that_too_many_files_are_open(tmp_path: Path, left: int) -> None:
    with contextlib.closing(SqliteStore(tmp_path / "content.db")) as made:
        made.create_tables(TABLES)
    with contextlib.closing(SqliteStore(tmp_path / "content.db")) as store:
        with open_files_left(left):
            with contextlib.suppress(StoreNotAppliedError):
                store.read("one", [Get(b"row")])
            if not left:
                with pytest.raises(StoreNotAppliedError, match=r"because too many files are open; .*ulimit -n"):
                    store.write("one", [flag(b"row")])
            else:
                with contextlib.suppress(StoreNotAppliedError):
                    store.write("one", [flag(b"row")])
        store.write("one", [flag(b"row")])


def test_a_commit_waits_until_files_can_be_opened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'content.db'}"
    connect(url).close()
    with connect(url, poll_interval=0) as repo:
        with open_files_left(0), contextlib.suppress(StoreNotAppliedError):
            repo.run(lambda tx: tx.add("/a"), retry_timeout=0)
        repo.run(lambda tx: tx.add("/b"))
