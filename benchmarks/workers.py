"""Processes that do a part of a scenario each, started once and used for all systems.

A job is a function of this package that gets a gate and its arguments; it makes itself ready, passes the gate when all others
are ready, too, works, and returns what it found.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

Gate: TypeAlias = Callable[[], None]
Job: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"


class WorkerError(Exception):
    """What went wrong in a process, with its trace."""


class _Stopped(Exception):
    """The others are not ready and will not be."""


def _serve(pipe: Connection) -> None:
    """One process: jobs until None comes. Ctrl-C is for the one who started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def gate() -> None:
        pipe.send(("ready", None))
        if not pipe.recv():
            raise _Stopped

    while (job := pipe.recv()) is not None:
        function, arguments = job
        try:
            found = ("done", function(gate, *arguments))
        except NotImplementedError as error:
            found = ("impossible", str(error))
        except _Stopped:
            found = ("stopped", "another process failed before the start")
        except Exception:
            found = ("failed", traceback.format_exc())
        pipe.send(found)


class Workers:
    """Started as they are needed, by spawning, so that nothing is inherited."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[tuple[BaseProcess, Connection]] = []
        self._working = False

    def run(self, jobs: Sequence[Job]) -> list[Any]:
        """What the jobs return, one a process, all begun together.

        Raises WorkerError with the trace of the first that failed, NotImplementedError when one cannot be done.
        """
        while len(self._processes) < len(jobs):
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._processes.append((process, ours))
        self._working = True
        try:
            told = self._told([pipe for _, pipe in self._processes[: len(jobs)]], jobs)
        except (EOFError, OSError) as error:
            self.close()
            raise WorkerError(f"a process ended in the middle of its job ({error!r})") from error
        self._working = False
        # Those that did not begin because of another one have less to tell than that one.
        for kind, found in sorted(told, key=lambda one: one[0] == "stopped"):
            if kind == "impossible":
                raise NotImplementedError(found)
            if kind in {"failed", "stopped"}:
                raise WorkerError(found)
        return [found for _, found in told]

    def _told(self, pipes: Sequence[Connection], jobs: Sequence[Job]) -> list[tuple[str, Any]]:
        for pipe, job in zip(pipes, jobs, strict=True):
            pipe.send(job)
        said = [pipe.recv() for pipe in pipes]
        ready = all(kind == "ready" for kind, _ in said)
        for pipe, (kind, _) in zip(pipes, said, strict=True):
            if kind == "ready":
                pipe.send(ready)
        return [pipe.recv() if first[0] == "ready" else first for pipe, first in zip(pipes, said, strict=True)]

    def close(self) -> None:
        """End the processes; at once if they are in the middle of something."""
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
