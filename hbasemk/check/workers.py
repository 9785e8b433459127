"""The check of ``nodes`` by several processes, each with one batch of rows at a time.

Of all workers, one at a time reads the next rows. It passes on where they end before it checks them, so the others can read on.
A worker opens an instance of its own, and checks the view at its own beginning. The process of the check adds the numbers of the
cells that the workers find (``found_cells.py``), and compares them with the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Final, NamedTuple, Union

from hbasemk.check.context import CheckContext
from hbasemk.check.links import Links
from hbasemk.check.nodes import NodesCheck, first_scan
from hbasemk.check.problem import Problem
from hbasemk.check.statuses import Statuses
from hbasemk.errors import HbasemkError
from hbasemk.interrupts import Deferred
from hbasemk.kernel.inspection import HeadInspection
from hbasemk.kernel.instance import Instance
from hbasemk.processes import end_with_parent, ignore_interrupts, spawn
from hbasemk.store.abc import Scan

WORTH: Final = 5000
"""The number of rows and child columns that one process checks before workers start. Smaller tables do not need them."""
PROBLEMS: Final = 500
"""The largest number of problems in one message."""


class Workers(NamedTuple):
    """How many worker processes check nodes, and a function that opens an instance in each; ``pickle`` must know the function."""

    number: int
    opened: Callable[[], AbstractContextManager[Instance]]


class _Job(NamedTuple):
    """The parameters of all workers of a check."""

    opened: Callable[[], AbstractContextManager[Instance]]
    live: bool
    statuses: Statuses
    """What the process of the check has read; a fork of it need not read that again."""


class _Task(NamedTuple):
    """The scan of a batch to check; and the revisions that the process of the check must still end."""

    scan: Scan
    deferred: Sequence[int]


class _Ready(NamedTuple):
    """A worker has opened its instance."""


class _HasRead(NamedTuple):
    """A worker has read its batch; the scan of the rows behind it, None if it was the last one."""

    rest: Scan | None


class _Done(NamedTuple):
    """A worker has checked its batch of ``rows`` rows. ``found`` are the numbers of :class:`FoundCells`."""

    rows: int
    found: Mapping[int, int]


_Message = Union["list[Problem]", _Ready, _HasRead, _Done]


class _Worker:
    """A worker process from the view of the process that started it."""

    def __init__(self, job: _Job) -> None:
        self.process, self.pipe = spawn(_work, job, may_fork=True)

    def give(self, task: _Task) -> None:
        try:
            self.pipe.send(task)
        except OSError:
            # It has just died; the end of the pipe shows it.
            return

    def receive(self) -> _Message:
        """Return the next message; raises the error of the worker, or HbasemkError if it has died."""
        try:
            message: _Message | HbasemkError = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            raise HbasemkError(
                f"a worker process of the check ended unexpectedly, with exit code {self.process.exitcode}. Look for the cause: "
                "a message of the worker, or the system's log if it is -9. Then check again; fewer workers need less memory."
            ) from error
        if isinstance(message, HbasemkError):
            raise message
        return message


class NodesWorkers:
    """The workers of one check. Use it as a context manager; they end with it.

    ``local`` checks the rows until the workers are ready, ``context`` gets the found cells, and ``progress`` the numbers of
    checked rows.
    """

    def __init__(
        self, workers: Workers, context: CheckContext, local: NodesCheck, progress: Callable[[int], None]
    ) -> None:
        self._number = workers.number
        self._job = _Job(workers.opened, context.live, context.statuses)
        self._context = context
        self._local = local
        self._progress = progress
        self._workers: dict[Any, _Worker] = {}
        self._idle: list[_Worker] = []

    def __enter__(self) -> NodesWorkers:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with Deferred():
            # No worker outlives the check, not even one that has been stopped. Workers write nothing.
            for worker in self._workers.values():
                worker.process.kill()
                worker.pipe.close()
            for worker in self._workers.values():
                worker.process.join()

    def in_range(self, start: bytes | None, stop: bytes | None) -> Generator[Problem, None, int]:
        """Check a range of rows as :meth:`NodesCheck.in_range` does, and yield the problems in any order."""
        scan: Scan | None = first_scan(start, stop)
        rows = work = 0
        while scan is not None and not self._idle and not wait(list(self._workers), 0):
            batch, scan = self._local.read(scan)
            work += yield from self._local.check(batch)
            rows += len(batch.rows)
            if work >= WORTH and scan is not None:
                self._start()
        busy = 0
        while scan is not None or busy:
            if scan is not None and self._idle:
                self._idle.pop().give(_Task(scan, self._context.deferred()))
                scan = None
                busy += 1
            for pipe in wait(list(self._workers)):
                worker = self._workers[pipe]
                message = worker.receive()
                if isinstance(message, _HasRead):
                    scan = message.rest
                elif isinstance(message, _Ready):
                    self._idle.append(worker)
                elif isinstance(message, _Done):
                    self._idle.append(worker)
                    busy -= 1
                    rows += message.rows
                    self._progress(message.rows)
                    self._context.found.add(message.found)
                else:
                    yield from message
        return rows

    def _start(self) -> None:
        while len(self._workers) < self._number:
            with Deferred():
                # Every started worker is recorded.
                worker = _Worker(self._job)
                self._workers[worker.pipe] = worker


# --- in a worker ---------------------------------------------------------------------------------------------


class _WorkerInspection(HeadInspection):
    """The inspection of a worker. The process that has started the worker says which revisions it must still end."""

    deferred_by_parent: Sequence[int] = ()

    def deferred(self) -> Sequence[int]:
        return self.deferred_by_parent


def _work(job: _Job, pipe: Connection) -> None:
    """Check batches until the other process closes the pipe, or dies."""
    ignore_interrupts()
    end_with_parent()
    try:
        try:
            with job.opened() as instance:
                _check_batches(_WorkerInspection(instance), job, pipe)
        except HbasemkError as error:
            pipe.send(error)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        # The other process needs no more.
        return


def _check_batches(inspection: _WorkerInspection, job: _Job, pipe: Connection) -> None:
    context = CheckContext(inspection, live=job.live, statuses=job.statuses)
    nodes = NodesCheck(context, Links(context, inspection.cells), lambda _: None)
    pipe.send(_Ready())
    while True:
        task: _Task = pipe.recv()
        inspection.deferred_by_parent = task.deferred
        batch, rest = nodes.read(task.scan)
        pipe.send(_HasRead(rest))
        problems = nodes.check(batch)
        while found := list(islice(problems, PROBLEMS)):
            pipe.send(found)
        pipe.send(_Done(len(batch.rows), context.found.take()))
