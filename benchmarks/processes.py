"""Commits per second of several processes on one repository: on nodes of their own, a tenth on a shared one as well."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import hbasemk
from hbasemk import Transaction


def work(url: str, number: int, commits: int, shared: bool, pipe: Connection) -> None:
    """One process: waits for the start, commits, tells its seconds and conflicts."""
    with hbasemk.connect(url) as repository:
        repository.run(lambda tx: tx.add(f"/own{number}"))
        pipe.send("ready")
        pipe.recv()
        began = time.perf_counter()
        for turn in range(commits):

            def change(tx: Transaction, turn: int = turn) -> None:
                tx.set(f"/own{number}", "turn", turn)
                if shared and turn % 10 == number % 10:
                    tx.increment("/shared", "count")

            repository.run(change)
        pipe.send((time.perf_counter() - began, repository.statistics.conflicts))


def measure(url: str, processes: int, commits: int, shared: bool) -> dict[str, Any]:
    """One run on a repository that is empty before it."""
    with hbasemk.connect(url) as repository:
        repository.run(lambda tx: tx.add("/shared"))
    context = multiprocessing.get_context("spawn")
    pipes, started = [], []
    for number in range(processes):
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(url, number, commits, shared, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        started.append(process)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    told = [pipe.recv() for pipe in pipes]
    for process in started:
        process.join()
    seconds = max(one[0] for one in told)
    return {
        "processes": processes,
        "shared": "10 %" if shared else "none",
        "commits_per_second": round(processes * commits / seconds),
        "conflicts": sum(one[1] for one in told),
    }
