"""Processes of a benchmark begin together, tell what went wrong, and end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from benchmarks.workers import Gate, WorkerError, Workers


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


def test_nobody_begins_before_all_are_ready(workers: Workers) -> None:
    told = workers.run([(times, (0.3,)), (times, (0.0,)), (times, (0.1,))])
    assert len({pid for pid, _, _ in told}) == 3
    assert max(ready for _, ready, _ in told) <= min(began for _, _, began in told)


def test_processes_are_used_again(workers: Workers) -> None:
    first = {pid for pid, _, _ in workers.run([(times, (0.0,)), (times, (0.0,))])}
    assert {pid for pid, _, _ in workers.run([(times, (0.0,))])} < first


@pytest.mark.parametrize("before", [True, False])
def test_what_failed_is_told_and_the_others_are_not_left_waiting(workers: Workers, before: bool) -> None:
    with pytest.raises(WorkerError, match="the gate"):
        workers.run([(times, (0.0,)), (fails, (before,))])
    assert len(workers.run([(times, (0.0,)), (times, (0.0,))])) == 2


def test_what_cannot_be_done_is_no_failure(workers: Workers) -> None:
    with pytest.raises(NotImplementedError, match="not here"):
        workers.run([(cannot, ()), (times, (0.0,))])


def test_a_process_that_dies_is_told_and_replaced(workers: Workers) -> None:
    with pytest.raises(WorkerError, match="ended in the middle"):
        workers.run([(dies, ())])
    assert len(workers.run([(times, (0.0,))])) == 1
