"""Processes that adjust one property at the same time, some of which are killed, and the exact sum at the end."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection

import hbasemk
from hbasemk import Transaction
from hbasemk.repository import instance_of
from tests.support.repositories import problems

FIELD = 40
"""Each process adds to bits of its own in the shared number."""
LEAST = 20
"""Commits of each process that is not killed."""
RETRY_TIMEOUT = 60.0
"""Seconds after which a test gives up."""
LEASE_MS = 6000
"""A process that a busy machine stops for longer loses its lease, and its commit counts as a conflict."""


def adjust(url: str, number: int, pipe: Connection) -> None:
    """Adjust the shared number, and count the commits on a node of one's own, until the pipe has a message."""
    repository = hbasemk.connect(url, create=False)
    done = 0

    def change(tx: Transaction) -> None:
        tx.adjust("/shared", "count", 1 << (FIELD * number))
        tx.set(f"/own{number}", "done", done)

    pipe.send("ready")
    while done < LEAST or not pipe.poll():
        done += 1
        repository.run(change)
    pipe.recv()
    pipe.send((done, repository.statistics.conflicts))
    repository.close()


def run(url: str, processes: int, seconds: float, kills: int) -> tuple[int, int]:
    """Run the processes, kill some of them while others start, and check; return the numbers of commits and slots."""
    settings = hbasemk.Settings(lease_ms=LEASE_MS, max_clock_skew_ms=500)
    with hbasemk.connect(url, settings=settings) as repository, repository.transaction() as tx:
        tx.add("/shared")
        for number in range(processes + kills):
            tx.add(f"/own{number}", {"done": 0})
    context = multiprocessing.get_context("spawn")
    started: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []

    def start() -> Connection:
        ours, theirs = context.Pipe()
        process = context.Process(target=adjust, args=(url, len(started), theirs), daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
        return ours

    try:
        for pipe in [start() for _ in range(processes)]:
            assert pipe.recv() == "ready"
        for number in range(kills):
            time.sleep(seconds / (kills + 1))
            started[number][0].kill()
            assert start().recv() == "ready"
        time.sleep(seconds / (kills + 1))
        alive = started[kills:]
        for _, pipe in alive:
            pipe.send(None)
        acknowledged = {kills + at: pipe.recv() for at, (_, pipe) in enumerate(alive)}
        for process, _ in started:
            process.join(60)
    finally:
        for process, _ in started:
            process.kill()
    assert {conflicts for _, conflicts in acknowledged.values()} == {0}
    with hbasemk.connect(url, create=False, poll_interval=0.05) as fresh:
        deadline = time.monotonic() + RETRY_TIMEOUT
        while time.monotonic() < deadline and (instance_of(fresh).journal.pending or problems(fresh)):
            time.sleep(0.2)
        head = fresh.refresh()
        total = head["/shared"]["count"]
        assert isinstance(total, int)
        commits = 0
        for number in range(processes + kills):
            counted = total >> (FIELD * number) & ((1 << FIELD) - 1)
            # Both are written by one commit, so also those of a killed process agree.
            assert counted == head[f"/own{number}"]["done"]
            if number in acknowledged:
                assert counted == acknowledged[number][0]
            commits += counted
        assert problems(fresh) == []
        state = instance_of(fresh).require(instance_of(fresh).head(), "/shared")
        return commits, len(state.property_of("count").totals)
