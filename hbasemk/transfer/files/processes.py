"""Start a process for an import, and end it with its parent; Ctrl-C reaches the parent only."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TypeVar

Job = TypeVar("Job")


def spawn(target: Callable[[Job, Connection], object], job: Job) -> tuple[BaseProcess, Connection]:
    """Start a new process that runs ``target(job, pipe)``; return the process and the parent's end of the pipe.

    The process inherits that SIGINT is blocked; ``target`` ignores it.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(job, theirs), daemon=True)
    # Before SIGINT is blocked: starting the tracker unblocks it, so that Ctrl-C would reach a child that begins.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return process, ours


def end_with_parent() -> None:
    """End this process, which multiprocessing has started, as soon as its parent has died, whatever it is doing then.

    Call it after the process has forked: it starts a thread.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), name="hbasemk-parent", daemon=True).start()


def _exit_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
