"""Processes that commit to one repository under load, and the checks of the result."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

import hbasemk
from hbasemk import CommitUnknownError, Outcome, Repository, StoreNotAppliedError, StoreUnknownError, Transaction
from hbasemk.format import journal_row, schema
from hbasemk.store.abc import Scan, scan_all
from tests.support.repositories import problems

AWAY: float = 120.0
"""Seconds for which a process retries during an outage of the store."""
_PAUSE: float = 0.1
"""Seconds between two attempts."""


@dataclass(frozen=True)
class WorkerReport:
    """The result of one process: acknowledged commits, those on the shared column, and its errors."""

    number: int
    acknowledged: int
    shared: int
    conflicts: int
    unknown: int
    errors: list[str]
    seconds: float


def retried(call: Callable[[], Any], failed: Callable[[Exception], None] = lambda _: None) -> Any:
    """Return the result of a call; repeat it while the store is away. ``failed`` receives each error."""
    deadline = time.monotonic() + AWAY
    while True:
        try:
            return call()
        except (StoreNotAppliedError, StoreUnknownError) as error:
            failed(error)
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


def connect(url: str, **options: Any) -> Repository:
    """Open a repository; retry while the store is away, as after a start of a gateway on a slow machine.

    `hbasemk.connect` reports at once that a gateway is away or slow; only `run` is expected to retry.
    """
    repository = retried(partial(hbasemk.connect, url, **options))
    assert isinstance(repository, Repository)
    return repository


def fingerprint(repository: Repository) -> str:
    """Return a hash of the whole tree at head after a poll."""
    digest = hashlib.sha256()
    for node in repository.refresh().walk():
        digest.update(repr((node.path, sorted(node.items()))).encode())
    return digest.hexdigest()


def hammer(url: str, number: int, commits: int, pipe: Connection) -> None:
    """Commit to this process's node, ``commits`` times or more, until the pipe has a message; count some on a shared node."""
    errors: list[str] = []
    unknown = 0

    def run_with_retries(call: Callable[[], Any]) -> Any:
        def attempt() -> Any:
            nonlocal unknown
            while True:
                try:
                    return call()
                except CommitUnknownError as error:
                    unknown += 1
                    errors.append(type(error).__name__)
                    if run_with_retries(partial(repository.outcome, error.revision)) is Outcome.COMMITTED:
                        return None

        return retried(attempt, lambda error: errors.append(type(error).__name__))

    repository = connect(url)
    began = time.monotonic()
    acknowledged = shared = 0
    while acknowledged < commits or not pipe.poll():
        turn = acknowledged
        counts = turn % 10 == number % 10

        def change(tx: Transaction, turn: int = turn, counts: bool = counts) -> None:
            tx.set(f"/own{number}", "turn", turn)
            if counts:
                tx.increment("/shared", "count", 1)

        run_with_retries(partial(repository.run, change))
        acknowledged += 1
        shared += counts
    seconds = time.monotonic() - began
    pipe.recv()
    pipe.send(WorkerReport(number, acknowledged, shared, repository.statistics.conflicts, unknown, errors, seconds))
    pipe.recv()
    pipe.send(run_with_retries(lambda: fingerprint(repository)))
    repository.close()


def run(url: str, processes: int, commits: int, meanwhile: Callable[[], None] | None = None) -> list[WorkerReport]:
    """Run the processes, do something ``meanwhile``, and check all that must hold at the end.

    Each process makes at least ``commits`` commits, and goes on until ``meanwhile`` is done.
    """
    with connect(url) as repository, repository.transaction() as tx:
        tx.add("/shared", {"count": 0})
        for number in range(processes):
            tx.add(f"/own{number}")
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    started: list[Any] = []
    for number in range(processes):
        ours, theirs = context.Pipe()
        process = context.Process(target=hammer, args=(url, number, commits, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        started.append(process)
    try:
        return _end(url, pipes, started, meanwhile)
    finally:
        for process in started:
            process.kill()
            process.join()


def _end(
    url: str, pipes: list[Connection], started: list[Any], meanwhile: Callable[[], None] | None
) -> list[WorkerReport]:
    if meanwhile is not None:
        meanwhile()
    for worker in pipes:
        worker.send(None)
    reports: list[WorkerReport] = []
    left = list(pipes)
    while left:
        for pipe in wait(left):
            assert isinstance(pipe, Connection)
            reports.append(pipe.recv())
            left.remove(pipe)
    for worker in pipes:
        worker.send(None)
    prints = {worker.recv() for worker in pipes}
    for process in started:
        process.join(60)
        assert process.exitcode == 0

    with connect(url, create=False, poll_interval=0) as fresh:
        head = fresh.refresh()
        assert head["/shared"]["count"] == sum(one.shared for one in reports)
        for report in reports:
            assert head[f"/own{report.number}"]["turn"] == report.acknowledged - 1
        assert prints == {fingerprint(fresh)}
        flags = (schema.COMMITTED, schema.ABORT)
        rows = scan_all(fresh.store, schema.JOURNAL, Scan(None, None, 1000, columns=flags))
        assert [row.revision for row in journal_row.decode(rows) if row.outcome is Outcome.PENDING] == []
        assert problems(fresh) == []
    return reports
