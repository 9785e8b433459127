"""Commands that read files in the folder of the repository's own SQLite file, beside commits of other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbasemk import connect
from hbasemk.kernel.settings import Settings
from tests.support.imports import many_files
from tests.support.proof import PROOF
from tests.support.repositories import damage

WRITER = """
import sys
from hbasemk import connect
from hbasemk.kernel.settings import Settings

url, name = sys.argv[1:]
number = 0
while True:
    # Each commit opens and closes the file, as commands do.
    with connect(url, poll_interval=0) as repository:
        repository.run(lambda tx: tx.set("/" + name, f"n{number}", number))
    print(number, flush=True)
    number += 1
"""


class Writer:
    """A process that commits repeatedly and records its acknowledged commits."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, url, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.acknowledged: list[int] = []

    def stop(self) -> str:
        """End it between two commits or in the middle of one; returns its errors."""
        self._process.terminate()
        out, err = self._process.communicate(timeout=60)
        self.acknowledged = [int(line) for line in out.split()]
        return err


@contextmanager
def writers(url: str, count: int) -> Iterator[list[Writer]]:
    """Processes that commit while the block runs."""
    names = [f"writer{number}" for number in range(count)]
    with connect(url, poll_interval=0) as repository, repository.transaction() as tx:
        for name in names:
            tx.add(f"/{name}")
    with ExitStack() as stack:
        started = []
        for name in names:
            started.append(Writer(url, name))
            stack.callback(started[-1].stop)
        yield started
        errors = [one.stop() for one in started]
    assert errors == [""] * count


def hbasemk(url: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "hbasemk", "--url", url, "--output", "json", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def until_committed(url: str, started: list[Writer], least: int) -> None:
    """Wait until one of the processes has begun a commit after ``least`` of its own."""
    deadline = time.monotonic() + 120
    with connect(url, create=False, poll_interval=0) as repository:
        while all(f"n{least}" not in repository.refresh()[f"/{one.name}"] for one in started):
            assert time.monotonic() < deadline, "no process commits any more"
            time.sleep(0.05)


def lost(url: str, started: list[Writer]) -> list[str]:
    """The acknowledged commits that a fresh instance does not see."""
    with connect(url, create=False, poll_interval=0) as repository:
        head = repository.refresh()
        return [
            f"{one.name}: {number}"
            for one in started
            for number in one.acknowledged
            if head[f"/{one.name}"].get(f"n{number}") != number
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, the repository's SQLite file, and other names of it."""
    top = many_files(tmp_path / "docs", 200)
    url = f"sqlite:///{top / 'content.db'}"
    # Leases that end soon, since writers are killed.
    with connect(url, settings=Settings(lease_ms=1000, max_clock_skew_ms=2000), poll_interval=0):
        pass
    os.link(top / "content.db", top / "d001" / "hard link")
    (top / "link").symlink_to("content.db")
    return top


@pytest.mark.slow
@pytest.mark.parametrize(("others", "workers"), [(1, 1), pytest.param(2, 4, marks=PROOF)])
def test_an_import_of_the_folder_that_holds_the_repository_loses_no_commit(
    folder: Path, others: int, workers: int
) -> None:
    url = f"sqlite:///{folder / 'content.db'}"

    with writers(url, others) as started:
        for _ in range(3):
            ran = hbasemk(
                url,
                "import",
                ".",
                "--at",
                "/docs",
                "--batch",
                "5",
                "--workers",
                str(workers),
                "--retry-timeout",
                "60",
                cwd=folder,
            )
            assert ran.returncode == 0, ran.stderr
        until_committed(url, started, 11)
    result: Any = json.loads(ran.stdout)

    assert sum(len(one.acknowledged) for one in started) > 10
    assert lost(url, started) == []
    assert damage(url) == []
    assert result["differences"] == 0
    assert "content.db: " in ran.stderr
    with connect(url, create=False, poll_interval=0) as repository:
        head = repository.refresh()
        assert "content.db" not in head.children("/docs")
        assert "hard link" not in head.children("/docs/d001")
        assert head["/docs/link"][":target"] == "content.db"
