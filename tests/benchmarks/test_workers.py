"""Worker processes start together, report errors, and stop."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.workers import Gate, WorkerError, Workers
from tests.support.quick_processes import usual_context

HANGS = 120
"""Seconds after which the parent surely waits for the job that works."""


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.close()


def times(gate: Gate, pause: float) -> tuple[int, float, float]:
    time.sleep(pause)
    ready = time.monotonic()
    gate()
    return os.getpid(), ready, time.monotonic()


def takes_turns(gate: Gate, pause: float) -> tuple[float, float, float]:
    """Return the end of the first part, and the start and the end of the second."""
    gate()
    time.sleep(pause)
    first = time.monotonic()
    gate()
    second = time.monotonic()
    time.sleep(pause)
    return first, second, time.monotonic()


def fails(gate: Gate, before: bool) -> None:
    if before:
        raise ValueError("before the gate")
    gate()
    raise ValueError("after the gate")


def cannot(gate: Gate) -> None:
    raise NotImplementedError("not here")


def dies(gate: Gate) -> None:
    gate()
    os.kill(os.getpid(), signal.SIGKILL)


def ends_after(gate: Gate, file: str) -> None:
    gate()
    while not Path(file).exists():
        time.sleep(0.02)


def variable(gate: Gate, name: str) -> str | None:
    gate()
    return os.environ.get(name)


def test_workers_have_the_present_environment(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBASEMK_TEST_OF_WORKERS", "1")
    workers.run([(variable, ("HOME",))])
    other = Workers()
    monkeypatch.setenv("HBASEMK_TEST_OF_WORKERS", "2")
    assert other.run([(variable, ("HBASEMK_TEST_OF_WORKERS",))]) == ["2"]
    other.close()


def works_for_long(gate: Gate, file: str) -> None:
    gate()
    Path(file).write_text(str(os.getpid()))
    time.sleep(600)


def mask(gate: Gate) -> bool:
    gate()
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interruption_reaches_no_worker_that_starts(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker that has not yet ignored SIGINT would print a traceback. A fork has the mask of its server, not of its parent.
    monkeypatch.setattr(multiprocessing, "get_context", usual_context)
    assert workers.run([(mask, ())]) == [True]


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    job = (
        f"from tests.benchmarks.test_workers import works_for_long; Workers().run([(works_for_long, ({str(file)!r},))])"
    )
    parent = subprocess.Popen([sys.executable, "-c", f"from benchmarks.workers import Workers; {job}"])
    deadline = time.monotonic() + 60
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    worker = Path("/proc") / file.read_text()
    # The process that adopts it may leave its entry until it has asked for its status.
    while worker.exists() and "Z (zombie)" not in (worker / "status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_all_jobs_wait_until_all_are_ready(workers: Workers) -> None:
    times_of = workers.run([(times, (0.3,)), (times, (0.0,)), (times, (0.1,))])
    assert len({pid for pid, _, _ in times_of}) == 3
    assert max(ready for _, ready, _ in times_of) <= min(began for _, _, began in times_of)


def test_all_jobs_wait_again_at_their_second_gates(workers: Workers) -> None:
    times_of = workers.run([(takes_turns, (0.3,)), (takes_turns, (0.0,))])
    assert max(first for first, _, _ in times_of) <= min(second for _, second, _ in times_of)


def test_a_job_that_has_ended_does_not_close_the_gate_to_others(workers: Workers) -> None:
    (_, _, ended), (_, second, _) = workers.run([(times, (0.0,)), (takes_turns, (0.3,))])
    assert ended <= second


def test_a_failure_between_two_gates_stops_the_jobs_that_wait(workers: Workers) -> None:
    with pytest.raises(WorkerError, match="after the gate"):
        workers.run([(takes_turns, (0.0,)), (fails, (False,))])
    assert len(workers.run([(times, (0.0,)), (times, (0.0,))])) == 2


def test_processes_are_reused(workers: Workers) -> None:
    first = {pid for pid, _, _ in workers.run([(times, (0.0,)), (times, (0.0,))])}
    assert {pid for pid, _, _ in workers.run([(times, (0.0,))])} < first


@pytest.mark.parametrize("before", [True, False])
def test_a_failure_is_reported_and_releases_the_other_jobs(workers: Workers, before: bool) -> None:
    with pytest.raises(WorkerError, match="the gate"):
        workers.run([(times, (0.0,)), (fails, (before,))])
    assert len(workers.run([(times, (0.0,)), (times, (0.0,))])) == 2


def test_an_unsupported_operation_is_not_a_failure(workers: Workers) -> None:
    with pytest.raises(NotImplementedError, match="not here"):
        workers.run([(cannot, ()), (times, (0.0,))])


def test_a_dead_process_is_reported_while_an_earlier_job_works(workers: Workers, tmp_path: Path) -> None:
    ends = threading.Timer(HANGS, (tmp_path / "end").touch)
    ends.start()
    with pytest.raises(WorkerError, match="ended in the middle"):
        workers.run([(ends_after, (str(tmp_path / "end"),)), (dies, ())])
    ends.cancel()
    assert not (tmp_path / "end").exists()


def test_a_dead_process_is_reported_and_replaced(workers: Workers) -> None:
    with pytest.raises(WorkerError, match="ended in the middle"):
        workers.run([(dies, ())])
    assert len(workers.run([(times, (0.0,))])) == 1
