"""Start processes that work for this one, and end them with it; Ctrl-C reaches the parent only."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import TypeVar

from hbasemk.interrupts import NUMBERS

Job = TypeVar("Job")


def spawn(
    target: Callable[[Job, Connection], object], job: Job, *, may_fork: bool = False
) -> tuple[BaseProcess, Connection]:
    """Start a new process that runs ``target(job, pipe)``; return the process and the parent's end of the pipe.

    The process inherits that SIGINT is blocked; ``target`` calls :func:`ignore_interrupts`. With ``may_fork``, it is a fork of
    this process where that is safe: on Linux, and if this process has no other thread. A fork takes 10 ms to start; a new
    process imports all modules again, which takes some hundred.
    """
    if may_fork and sys.platform == "linux" and threading.active_count() == 1:
        context: ForkContext | SpawnContext = multiprocessing.get_context("fork")
    else:
        context = multiprocessing.get_context("spawn")
        # Before SIGINT is blocked: starting the tracker unblocks it, so that Ctrl-C would reach a child that begins.
        resource_tracker.ensure_running()
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(job, theirs), daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return process, ours


def usable_processors() -> int:
    """Return the number of processors that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if usable is None else len(usable(0))


def ignore_interrupts() -> None:
    """Let this process ignore Ctrl-C, which reaches the whole group of processes: the parent decides.

    Other signals end it, even if it is a fork of a process that handles them.
    """
    for number in NUMBERS:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


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
