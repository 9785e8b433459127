"""The main job as a user runs it: real processes and directories, SQLite and HBase, and interruptions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbasemk import connect
from hbasemk.kernel.settings import Settings
from tests.support.hbase import HBase
from tests.support.imports import in_tree, many_files, on_disk, totals
from tests.support.proof import PROOF
from tests.support.repositories import damage

STDLIB = Path(sysconfig.get_path("stdlib"))
LEFT_OUT = ("__pycache__", "site-packages", "dist-packages")
EXCLUDE = [part for name in LEFT_OUT for part in ("--exclude", name)]
WITHIN = 60.0
"""The limit in seconds of each wait of a test."""


def command(url: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "hbasemk", "--url", url, *arguments]


def done(url: str, *arguments: str, code: int = 0) -> Any:
    """Run a command to its end; return its JSON output."""
    ran = subprocess.run(
        command(url, "--output", "json", *arguments), capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout)


def expected_entries(top: Path) -> dict[str, tuple[str, str]]:
    """Return the entries below a directory that the tests import."""
    return {path: found for path, found in on_disk(top).items() if not set(path.split("/")) & set(LEFT_OUT)}


def assert_there(url: str, top: Path, at: str) -> None:
    """Assert that the tree equals the directory, that the totals are right, and that the repository is intact."""
    entries = expected_entries(top)
    assert in_tree(url, at) == entries
    found = totals(url, at)
    assert found[":nodes"] == len(entries)
    assert found[":bytes"] == sum(os.path.getsize(top / path) for path, (kind, _) in entries.items() if kind == "file")
    assert damage(url) == []


# --- the standard library ---------------------------------------------------------------------------------


def test_a_part_of_the_standard_library_is_imported_by_four_workers_on_sqlite(tmp_path: Path) -> None:
    # scripts/main-job imports all of it; .ci/run runs that.
    url = f"sqlite:///{tmp_path / 'content.db'}"
    top = STDLIB / "encodings"

    result = done(url, "import", str(top), "--at", "/part", "--workers", "4", "--batch", "10", *EXCLUDE)

    assert result["entries"] == result["nodes_added"] == len(expected_entries(top))
    assert result["differences"] == 0
    # Each worker commits at least once, and their commits do not conflict.
    assert result["commits"] >= 4 > result["conflicts"]
    assert_there(url, top, "/part")


@pytest.mark.integration
def test_a_part_of_the_standard_library_is_imported_by_four_workers_on_hbase(hbase: HBase) -> None:
    url = hbase.url(hbase.new_prefix())
    top = STDLIB / "email"

    result = done(url, "import", str(top), "--workers", "4", "--batch", "10", *EXCLUDE)

    assert result["differences"] == 0
    assert result["nodes_added"] == len(expected_entries(top))
    assert_there(url, top, "/email")
    assert done(url, "import", str(top), "--workers", "4", *EXCLUDE)["nodes_added"] == 0


# --- interruptions ----------------------------------------------------------------------------------------


ON_HBASE = pytest.mark.integration


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A repository on SQLite, or on the store that a test's parameter names. Leases of dead writers end soon."""
    if getattr(request, "param", "sqlite") == "hbase":
        hbase: HBase = request.getfixturevalue("hbase")
        made = hbase.url(hbase.new_prefix())
    else:
        made = f"sqlite:///{tmp_path / 'content.db'}"
    with connect(made, settings=Settings(lease_ms=1000, max_clock_skew_ms=2000), poll_interval=0):
        pass
    return made


@pytest.fixture
def top(url: str, tmp_path: Path) -> Path:
    return many_files(tmp_path / "docs", 1500 if url.startswith("hbase:") else 2000)


WAITS = """
import sys
from hbasemk.__main__ import run
from hbasemk.transfer.files.importer import Import
left = int(sys.argv.pop(1))
give = Import._give
def given(self, worker, batch):
    global left
    left -= 1
    if left == 0:
        sys.stdin.readline()
    give(self, worker, batch)
Import._give = given
run()
"""
"""The command line, whose import waits for a line of input before it gives its workers the batch of that number."""


class Running:
    """An import in its own process group. It waits before its last batches, so that a slow test still meets it."""

    def __init__(self, url: str, top: Path) -> None:
        self.url = url
        batches = len(list(top.rglob("*"))) // 4
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", WAITS, str(batches - 20), "--url", url),
                *("--output", "json", "import", str(top), "--workers", "4", "--batch", "4"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A test run in the background may ignore SIGINT, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]

    def until_under_way(self, nodes: int = 100) -> None:
        """Wait until so many nodes are committed and the import still runs."""
        deadline = time.monotonic() + WITHIN
        with connect(self.url, create=False, poll_interval=0) as watching:
            while True:
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < deadline
                root = watching.refresh().nodes(["/docs"])["/docs"]
                if root is not None and int(str(root[":nodes"])) >= nodes:
                    return
                time.sleep(0.01)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate("\n", timeout=WITHIN)
        return self.process.returncode, out, err


@pytest.fixture
def running(url: str, top: Path) -> Iterator[Running]:
    """A running import; at the end none of its processes may remain."""
    started = Running(url, top)
    try:
        started.until_under_way()
        yield started
    finally:
        if started.process.poll() is None:
            os.killpg(started.process.pid, signal.SIGKILL)
            started.process.communicate()


def alive(pids: list[int]) -> list[int]:
    """Return the processes that exist and are not zombies."""
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found.append(pid)
    return found


def until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + WITHIN
    while alive(pids):
        assert time.monotonic() < deadline, f"still there: {alive(pids)}"
        time.sleep(0.01)


def resume(url: str, top: Path) -> Any:
    """Start the import again, and check that it imports exactly the rest."""
    before = totals(url, "/docs")[":nodes"]
    assert before == len(in_tree(url, "/docs"))
    assert 0 < before < len(expected_entries(top))
    result = done(url, "import", str(top), "--workers", "4")
    assert result["nodes_added"] == len(expected_entries(top)) - before
    assert result["nodes_changed"] == result["nodes_removed"] == result["differences"] == 0
    assert_there(url, top, "/docs")
    return result


GROUP = "the whole group, as Ctrl-C does"
PARENT = "the parent"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "whom", "number"),
    [
        ("sqlite", GROUP, signal.SIGINT),
        ("sqlite", PARENT, signal.SIGTERM),
        pytest.param("sqlite", PARENT, signal.SIGINT, marks=PROOF),
        pytest.param("sqlite", GROUP, signal.SIGTERM, marks=PROOF),
        pytest.param("hbase", GROUP, signal.SIGINT, marks=ON_HBASE),
        pytest.param("hbase", PARENT, signal.SIGTERM, marks=ON_HBASE),
    ],
    indirect=["url"],
)
def test_an_interrupted_import_reports_it_and_the_next_one_finishes(
    running: Running, url: str, top: Path, whom: str, number: signal.Signals
) -> None:
    workers = running.workers()
    assert len(workers) == 4

    if whom == PARENT:
        running.process.send_signal(number)
    else:
        os.killpg(running.process.pid, number)
    code, out, err = running.end()

    assert code == 128 + number
    assert out == ""
    assert err.count("\n") == 1
    assert "again to continue" in err
    assert alive(workers) == []
    counted = re.search(r"; (at least )?(\d+) nodes added, 0 changed and 0 removed in \d+ commits stay", err)
    assert counted is not None, err
    there = totals(url, "/docs")[":nodes"]
    assert int(counted[2]) <= there if counted[1] else int(counted[2]) == there
    resume(url, top)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_import_finishes(running: Running, url: str, top: Path) -> None:
    victim = running.workers()[0]

    os.kill(victim, signal.SIGKILL)
    code, out, err = running.end()

    assert code == 0, err
    result = json.loads(out)
    assert result["workers_restarted"] == 1
    assert str(victim) in err
    assert result["differences"] == 0
    assert_there(url, top, "/docs")


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite", pytest.param("hbase", marks=ON_HBASE)], indirect=True)
def test_workers_of_a_killed_import_end_silently_and_the_next_import_finishes(
    running: Running, url: str, top: Path
) -> None:
    workers = running.workers()

    running.process.kill()
    _, _, err = running.end()

    until_gone(workers)
    assert err == ""
    resume(url, top)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite", pytest.param("hbase", marks=ON_HBASE)], indirect=True)
def test_the_next_import_finishes_after_all_processes_are_killed(running: Running, url: str, top: Path) -> None:
    workers = running.workers()

    os.killpg(running.process.pid, signal.SIGKILL)
    running.end()

    until_gone(workers)
    resume(url, top)
