"""Processes that increment one property at the same time until each of them has committed often enough."""

from __future__ import annotations

import multiprocessing
from ctypes import c_int
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Barrier

import hbasemk
from tests.support.repositories import problems

PROCESSES = 6
EACH = 10
MOST = 600 * EACH
"""A limit far above the imbalance of turns on a machine that stalls: a process may commit some hundred times in one turn."""


def count(url: str, number: int, counts: SynchronizedArray[int], begin: Barrier) -> None:
    """Increment the same property until every process has enough increments."""
    with hbasemk.connect(url) as repo:
        # On a busy machine, the first process could reach the limit before the last one has started.
        begin.wait(120)
        while min(counts[:]) < EACH and max(counts[:]) <= MOST:
            repo.run(lambda tx: tx.increment("/a", "n", 1))
            counts[number] += 1


def run(url: str) -> None:
    """Run the processes, and check that each of them got its share and that no increment is lost."""
    with hbasemk.connect(url, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 0}))
        context = multiprocessing.get_context("spawn")
        counts: SynchronizedArray[int] = context.Array(c_int, PROCESSES)
        begin = context.Barrier(PROCESSES)
        started = [context.Process(target=count, args=(url, number, counts, begin)) for number in range(PROCESSES)]
        for process in started:
            process.start()
        for process in started:
            process.join()
        print("increments of each process:", counts[:])
        # No process ended with a ConflictError.
        assert [process.exitcode for process in started] == [0] * PROCESSES
        assert min(counts[:]) >= EACH
        assert max(counts[:]) <= MOST + 1
        assert repo.refresh()["/a"]["n"] == sum(counts[:])
        assert problems(repo) == []
