"""A check by several processes finds what one process finds, and leaves no process behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import hbasemk
from hbasemk import Settings, processes
from hbasemk.check import IntegrityCheck, Problem, Workers, journal, workers
from hbasemk.check import problem as kinds
from hbasemk.check.nodes import ROWS, first_scan
from hbasemk.errors import HbasemkError, StoreUnusableError
from hbasemk.format import paths, schema
from hbasemk.format.changes import ADDED, RowChange
from hbasemk.kernel.instance import Instance
from hbasemk.opening import opened_instance
from hbasemk.store.sqlite import SqliteStore
from hbasemk.system import SystemRuntime
from tests.support.check_workers import use_for_all_rows
from tests.support.corruptions import CASES
from tests.support.machines import Machine
from tests.support.tables import Tables

NODES = 4 * ROWS
SETTINGS = Settings(lease_ms=1000, max_clock_skew_ms=1000)


def choose_way(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Choose how workers start. A process that runs tests may have other threads."""
    if way == "fork" and sys.platform != "linux":
        pytest.skip("forks are safe on Linux only")
    monkeypatch.setattr(processes.threading, "active_count", lambda: 1 if way == "fork" else 2)


@pytest.fixture(params=["fork", "spawn"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Start workers in this way, for small tables too, and let them check all rows but the first ones."""
    choose_way(monkeypatch, request.param)
    use_for_all_rows(monkeypatch)
    return str(request.param)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a repository with some folders."""
    url = f"sqlite:///{tmp_path / 'content.db'}"
    with hbasemk.connect(url, poll_interval=0, settings=SETTINGS) as repo:
        for first in range(0, NODES, 100):
            with repo.transaction() as tx:
                tx.add(f"/{first}")
                for number in range(first + 1, first + 100):
                    tx.add(f"/{first}/{number}", {"n": number, "text": f"node {number}"})
    return url


@pytest.fixture
def tables(url: str) -> Iterator[Tables]:
    """Return the tables of the same repository, on the real clock."""
    store = SqliteStore(url.removeprefix("sqlite:///"))
    runtime = SystemRuntime()

    def opened(mac: int) -> Instance:
        return Instance.open(store, Machine(mac))

    yield Tables(store, opened, runtime.sleep, runtime.now_ms)
    store.close()


def several(url: str, number: int = 3) -> Workers:
    """Return workers of a check of this repository."""
    return Workers(number, partial(opened_instance, url))


def check(url: str, number: int, **options: Any) -> tuple[list[str], dict[str, int]]:
    """Check with some workers; return the sorted problems, and the numbers of checked rows."""
    with opened_instance(url) as instance:
        run = IntegrityCheck(instance, workers=several(url, number), notes=True, **options)
        found = sorted(f"{one!r} {one.cells}" for one in run.run())
    assert multiprocessing.active_children() == []
    return found, run.counted


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("path", [None, "/100", "/nowhere"])
def test_an_intact_repository_has_no_problems(url: str, path: str | None) -> None:
    alone = check(url, 1, path=path)
    assert alone[0] == []
    assert check(url, 3, path=path) == alone


@pytest.mark.usefixtures("way")
def test_what_workers_find_is_not_read_for_the_journal_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    compare = journal.compare

    def count(context: Any, declared: Sequence[tuple[int, RowChange]], *, exact: bool) -> Iterator[Problem]:
        compared.extend(revision for revision, _ in declared)
        return compare(context, declared, exact=exact)

    monkeypatch.setattr(journal, "compare", count)
    assert check(url, 3)[0] == []
    assert compared == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("moves_watermark", [False, True])
def test_workers_find_all_damage_that_one_process_finds(url: str, tables: Tables, moves_watermark: bool) -> None:
    together = [case for case in CASES.values() if not case.alone and case.moves_watermark is moves_watermark]
    together.sort(key=lambda case: case.kind in {kinds.OUTSIDE_LEASE, kinds.OFF_CLOCK})
    for number, case in enumerate(together):
        case.damage(tables, f"/damaged{number:02}")
    tables.wait(3)
    alone = check(url, 1, live=True)
    assert len(alone[0]) >= len(together)
    assert check(url, 3, live=True) == alone


@pytest.mark.usefixtures("way")
def test_more_problems_than_fit_into_a_message_arrive(
    url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "PROBLEMS", 2)
    revision = tables.forge(*(RowChange(f"/{number:03}", ADDED) for number in range(100)))
    for number in range(100):
        tables.node(f"/{number:03}", revision, (schema.DELETED, b"?"))
    alone = check(url, 1)
    assert len(alone[0]) >= 100
    assert check(url, 3) == alone


@contextmanager
def killed(_: str) -> Iterator[Instance]:
    """Kill the worker that opens an instance."""
    os._exit(7)
    yield


@contextmanager
def refused(url: str) -> Iterator[Instance]:
    """Fail to open an instance."""
    raise StoreUnusableError(f"{url} is not there")
    yield


@contextmanager
def endless(_: str) -> Iterator[Instance]:
    """Never open an instance."""
    time.sleep(600)
    yield


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("opened", "error", "message"),
    [
        (killed, HbasemkError, "with exit code 7. Look for the cause"),
        (refused, StoreUnusableError, "content.db is not there"),
    ],
)
def test_a_check_fails_with_its_workers(url: str, opened: Any, error: type[HbasemkError], message: str) -> None:
    with opened_instance(url) as instance:
        run = IntegrityCheck(instance, workers=Workers(2, partial(opened, url)))
        with pytest.raises(error, match=message):
            list(run.run())
    assert multiprocessing.active_children() == []


def assert_interrupted(url: str, progress: Callable[[str, int], None]) -> None:
    """Check with several workers until ``progress`` raises KeyboardInterrupt. No worker may be left then."""
    with opened_instance(url) as instance:
        run = IntegrityCheck(instance, workers=several(url), progress=progress)
        with pytest.raises(KeyboardInterrupt):
            list(run.run())
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("way")
def test_no_worker_outlives_an_interrupted_check(url: str) -> None:
    def interrupt(table: str, rows: int) -> None:
        if table == schema.NODES and rows > NODES // 2:
            assert multiprocessing.active_children()
            raise KeyboardInterrupt

    assert_interrupted(url, interrupt)


def test_not_even_a_stopped_worker_outlives_a_check(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check waited for it to end, and no signal but SIGKILL ended the check."""
    # Only forks are children of this process, for which it can wait.
    choose_way(monkeypatch, "fork")
    use_for_all_rows(monkeypatch)

    def stop(table: str, rows: int) -> None:
        if table == schema.NODES and rows > NODES // 2:
            for worker in multiprocessing.active_children():
                assert worker.pid is not None
                os.kill(worker.pid, signal.SIGSTOP)
                os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
            raise KeyboardInterrupt

    assert_interrupted(url, stop)


@pytest.mark.usefixtures("way")
def test_no_worker_outlives_an_abandoned_check(url: str, tables: Tables) -> None:
    for number in range(1, NODES, 100):
        tables.remove(schema.NODES, paths.key(f"/{number - 1}/{number}"), schema.property_column("n"))
    with opened_instance(url) as instance:
        found = IntegrityCheck(instance, workers=several(url)).run()
        next(found)
        found.close()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_the_process_checks_rows_until_its_workers_are_ready(
    url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_way(monkeypatch, way)
    monkeypatch.setattr(workers, "WORTH", 1)
    with opened_instance(url) as instance:
        run = IntegrityCheck(instance, workers=Workers(2, partial(endless, url)))
        assert list(run.run()) == []
        assert run.rows == NODES + 1
    assert multiprocessing.active_children() == []


def test_small_tables_need_no_workers(url: str) -> None:
    with opened_instance(url) as instance:
        run = IntegrityCheck(instance, workers=Workers(2, partial(killed, url)))
        assert list(run.run()) == []


PARENT = """
import os, signal, sys
from functools import partial
from hbasemk import processes
from hbasemk.check import IntegrityCheck, Workers, workers
from hbasemk.opening import opened_instance
from tests.check.test_workers import endless

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    processes.threading.active_count = lambda: 1 if sys.argv[2] == "fork" else 2
    workers.WORTH = 1
    start = workers.NodesWorkers._start
    def start_and_die(self):
        start(self)
        die()
    workers.NodesWorkers._start = start_and_die
    with opened_instance(sys.argv[1]) as instance:
        list(IntegrityCheck(instance, workers=Workers(2, partial(endless, sys.argv[1]))).run())
"""


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_workers_end_with_a_killed_process(url: str, way: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    root = Path(__file__).parents[2]
    # The output ends when the workers have ended, which inherit it.
    ended = subprocess.run(
        [sys.executable, str(script), url, way],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=60,
    )
    assert ended.returncode == -9


def test_revisions_that_the_process_must_still_end_are_no_problem(url: str, tables: Tables) -> None:
    """The worker learns which ones these are with each batch."""
    revision = tables.dead_writer(RowChange("/left", ADDED), aborted=True)
    tables.node("/left", revision, (schema.DELETED, schema.ALIVE))
    ours, theirs = multiprocessing.Pipe()
    ours.send(workers._Task(first_scan(paths.key("/left"), None), (revision,)))
    ours.send(workers._Task(first_scan(paths.key("/left"), None), ()))
    answers = []
    with opened_instance(url) as instance:
        job = workers._Job(partial(opened_instance, url), False, workers.Statuses())

        def check_batches() -> None:
            with suppress(EOFError):
                workers._check_batches(workers._WorkerInspection(instance), job, theirs)

        check = Thread(target=check_batches)
        check.start()
        while sum(isinstance(one, workers._Done) for one in answers) < 2:
            answers.append(ours.recv())
        ours.close()
        check.join()
    first = answers.index(next(one for one in answers if isinstance(one, workers._Done)))
    assert not [one for one in answers[: first + 1] if isinstance(one, list)]
    (found,) = [one for one in answers if isinstance(one, list)]
    assert [(one.kind, one.path) for one in found] == [(kinds.ABORTED, "/left")]


def test_hashes_are_the_same_in_all_processes() -> None:
    shown = (
        "from hbasemk.check.found_cells import hash_of, hash_of_path, with_flag; column = (b'c', b'x'); "
        "print(with_flag(hash_of(hash_of_path('/a'), column), column, b'?'))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", shown],
            stdout=subprocess.PIPE,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
