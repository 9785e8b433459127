"""Imports whose workers die, that are interrupted, or whose store fails."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hbasemk import (
    CommitUnknownError,
    HbasemkError,
    InvalidChangeError,
    LeaseLostError,
    Repository,
    StoreNotAppliedError,
    StoreUnknownError,
    connect,
)
from hbasemk.repository import instance_of
from hbasemk.transfer import retry
from hbasemk.transfer.files.importer import Import
from hbasemk.transfer.files.worker import Report
from tests.support.imports import (
    AT,
    around_runs,
    assert_imported,
    bring_in,
    in_tree,
    many_files,
    on_disk,
    one_batch,
    totals,
    write_files,
)


def busy_pids(running: Import) -> list[int]:
    return [
        worker.process.pid for worker in running._workers if worker.batch is not None and worker.process.pid is not None
    ]


def test_a_killed_worker_is_replaced_and_nothing_is_lost_or_doubled(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "docs", 200)
    killed: list[int] = []

    def kill(report: Report, total: int) -> None:
        if report.added and not killed:
            killed.append(busy_pids(running)[0])
            os.kill(killed[0], signal.SIGKILL)

    running = Import(url, str(top), AT, workers=4, batch=5, on_report=kill)
    result = running.run()

    assert killed
    assert result.restarts == 1
    assert any(str(killed[0]) in note for note in result.notes)
    assert_imported(url, top)


def test_workers_that_die_repeatedly_end_the_import_and_the_next_one_finishes(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "docs", 100)

    def kill_all(report: Report, total: int) -> None:
        for pid in busy_pids(running):
            # One that was killed after an earlier report may not be replaced yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    running = Import(url, str(top), AT, workers=2, batch=2, on_report=kill_all)
    with pytest.raises(HbasemkError, match="ended unexpectedly"):
        running.run()

    bring_in(url, top)
    assert_imported(url, top)


def test_an_interrupted_import_leaves_no_process_and_can_resume(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "docs", 200)

    def interrupt(report: Report, total: int) -> None:
        if running.result.added >= 30:
            raise KeyboardInterrupt

    running = Import(url, str(top), AT, workers=4, batch=5, on_report=interrupt)
    with pytest.raises(KeyboardInterrupt):
        running.run()

    assert not any(worker.process.is_alive() for worker in running._workers)
    with connect(url) as repository:
        assert not instance_of(repository).journal.pending
    first = len(in_tree(url, AT))
    assert 30 <= first < len(on_disk(top))
    assert totals(url, AT)[":nodes"] == first

    result = bring_in(url, top)

    assert result.added == len(on_disk(top)) - first
    assert_imported(url, top)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for the store."""
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        CommitUnknownError("the reply was lost", revision="0000000000000000"),
        StoreUnknownError("the reply was lost"),
        StoreNotAppliedError("the store is away"),
        LeaseLostError("paused for too long", machine=1),
    ],
)
def test_a_commit_with_an_unknown_outcome_is_retried_and_counts_once(
    url: str, tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch, error: HbasemkError, applied: bool
) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1", "two": b"22"})
    runs: list[int] = []

    def fail(number: int) -> None:
        runs.append(number)
        if number == 1:
            raise error

    with one_batch(url, top) as (worker, batch):
        around_runs(monkeypatch, **{"after" if applied else "before": fail})
        report = worker.do(batch)

    assert runs == [1, 2]
    assert report.notes == [f"retrying for up to 30 s: {error}"]
    assert report.retries == 1
    assert_imported(url, top)


def test_an_import_fails_when_the_store_stays_unreachable_past_the_retry_timeout(
    url: str, tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1"})

    def run(self: Repository, *arguments: Any) -> Any:
        raise StoreNotAppliedError("the store is away")

    with one_batch(url, top, retry_timeout=0.01) as (worker, batch):
        monkeypatch.setattr(Repository, "run", run)
        with pytest.raises(StoreNotAppliedError, match="away"):
            worker.do(batch)


def test_an_error_of_a_worker_is_raised_by_the_import(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1"})
    (top / "directory").mkdir()
    running = Import(url, str(top), AT, workers=1)
    start = running._start

    def spoil_and_start() -> Any:
        with connect(url, poll_interval=0) as repository:
            repository.run(lambda tx: tx.set(AT, ":nodes", "no number"))
        return start()

    running._start = spoil_and_start  # type: ignore[method-assign]
    with pytest.raises(InvalidChangeError, match="nodes"):
        running.run()
    assert not any(worker.process.is_alive() for worker in running._workers)


def test_batches_that_are_committed_at_the_same_time_do_not_conflict(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1"})
    before = {":kind": "file", ":mode": 0, ":mtime": 0, ":size": 5}
    with one_batch(url, top) as (worker, _):
        base = worker.repository.refresh()
        for name in ("a", "b"):
            with worker.repository.transaction("", base) as tx:
                worker._apply(tx, {f"{AT}/{name}": before}, ())
        found = worker.repository.head[AT]
        assert (found[":nodes"], found[":files"], found[":bytes"]) == (2, 2, 10)


PARENT = """
import os, signal, sys
from hbasemk.processes import spawn
from hbasemk.transfer.files.worker import Job, work

process, pipe = spawn(work, Job(sys.argv[1], sys.argv[2], "/docs", 600.0))
print(process.pid, flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_ends_with_its_parent_while_it_waits_for_the_store(tmp_path: Path) -> None:
    """It went on for the retry timeout, and could commit a batch that a later import had replaced."""
    top = write_files(tmp_path / "docs", {"one": b"1"})
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        url = f"hbase://127.0.0.1:{gateway.getsockname()[1]}/?prefix=gone_"
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, url, str(top)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert parent.stdin is not None
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        gateway.settimeout(60)
        gateway.accept()[0].close()
    try:
        # The output ends when the worker and its reader have ended, which inherit it.
        parent.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.kill(worker, signal.SIGKILL)
        raise
    finally:
        parent.wait()
