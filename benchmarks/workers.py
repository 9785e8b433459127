"""Worker processes for scenarios with several processes. They start once and serve all systems.

A job is a function of this package. It receives a gate and its arguments, prepares itself, calls the gate, works, and returns
its result. The gate returns when all jobs that have not ended have called it. A job may call it again between two parts of its
work.
"""

from __future__ import annotations

import contextlib
import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from hbasemk.processes import end_with_parent, spawn

Gate: TypeAlias = Callable[[], None]
Job: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"


class WorkerError(Exception):
    """A job failed. The text contains the traceback of the worker process."""


class _Stopped(Exception):
    """Another job failed before its gate, so this one does not go on."""


def _serve(_: None, pipe: Connection) -> None:
    """Run jobs in a worker process until None arrives. The parent process handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()

    def gate() -> None:
        pipe.send(("ready", None))
        if not pipe.recv():
            raise _Stopped

    while (job := pipe.recv()) is not None:
        function, arguments = job
        try:
            reply = ("done", function(gate, *arguments))
        except NotImplementedError as error:
            reply = ("not supported", str(error))
        except _Stopped:
            reply = ("stopped", "another process failed before this gate")
        except Exception:
            reply = ("failed", traceback.format_exc())
        pipe.send(reply)


def _receive(pipes: Sequence[Connection]) -> dict[Connection, tuple[str, Any]]:
    """Return a reply of each process, or raise EOFError or OSError as soon as one of them has died."""
    replies: dict[Connection, tuple[str, Any]] = {}
    while missing := [pipe for pipe in pipes if pipe not in replies]:
        for pipe in wait(missing):
            assert isinstance(pipe, Connection)
            replies[pipe] = pipe.recv()
    return replies


class Workers:
    """Worker processes, spawned on demand so that they inherit no state."""

    def __init__(self) -> None:
        self._processes: list[tuple[BaseProcess, Connection]] = []
        self._working = False

    def run(self, jobs: Sequence[Job]) -> list[Any]:
        """Run each job in its own process and return their results. All jobs pass their gates together.

        Raises WorkerError with the traceback of the first failed job, or NotImplementedError if a job raised that.
        """
        while len(self._processes) < len(jobs):
            self._processes.append(spawn(_serve, None))
        self._working = True
        try:
            replies = self._exchange([pipe for _, pipe in self._processes[: len(jobs)]], jobs)
        except (EOFError, OSError) as error:
            self.close()
            raise WorkerError(f"a worker process ended in the middle of its job ({error!r})") from error
        self._working = False
        # A stopped job is only a consequence of another job's failure, so it comes last.
        for kind, result in sorted(replies, key=lambda one: one[0] == "stopped"):
            if kind == "not supported":
                raise NotImplementedError(result)
            if kind in {"failed", "stopped"}:
                raise WorkerError(result)
        return [result for _, result in replies]

    def _exchange(self, pipes: Sequence[Connection], jobs: Sequence[Job]) -> list[tuple[str, Any]]:
        for pipe, job in zip(pipes, jobs, strict=True):
            pipe.send(job)
        replies = _receive(pipes)
        while waiting := [pipe for pipe in pipes if replies[pipe][0] == "ready"]:
            opens = all(kind in {"ready", "done"} for kind, _ in replies.values())
            for pipe in waiting:
                pipe.send(opens)
            replies |= _receive(waiting)
        return [replies[pipe] for pipe in pipes]

    def close(self) -> None:
        """Stop the processes; terminate them if a job is still running."""
        for process, pipe in self._processes:
            if self._working:
                process.terminate()
            else:
                with contextlib.suppress(OSError):
                    pipe.send(None)
        for process, pipe in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()
        self._processes.clear()
        self._working = False
