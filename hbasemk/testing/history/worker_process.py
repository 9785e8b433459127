"""One process of a history: ``python -m hbasemk.testing.history.worker_process URL FILE``; runs until SIGTERM or a kill.

The worker hands every line of the history to the operating system before the commit in question begins, and again
before the next transaction begins.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click

from hbasemk.errors import StoreNotAppliedError, StoreUnknownError
from hbasemk.opening import connect
from hbasemk.repository import Repository, instance_of
from hbasemk.testing.history.recorder import Attempt, Moments
from hbasemk.testing.history.records import Transaction
from hbasemk.testing.history.worker import Worker
from hbasemk.testing.history.workloads import WORKLOADS

MOST_WORKERS = 256
GENERATION = 2.0
"""The time in seconds after which workers start new lists and counters."""
OPENING = 60.0
"""The time in seconds for which a worker retries opening the repository."""


def appending(file: Path) -> Callable[[Transaction], None]:
    """Return a sink that appends each line to a file at once."""

    def write(one: Transaction) -> None:
        with file.open("a") as out:
            out.write(one.line() + "\n")

    return write


def opened(url: str) -> Repository:
    """Open the repository; retry while the store is temporarily unreachable."""
    deadline = time.monotonic() + OPENING
    while True:
        try:
            return connect(url, create=False, poll_interval=0.05)
        except (StoreNotAppliedError, StoreUnknownError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@click.command()
@click.argument("url")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--number", type=click.IntRange(0, MOST_WORKERS - 1), required=True, help="The worker's number; unique.")
@click.option("--seed", type=int, required=True, help="The seed of the worker's choices.")
@click.option("--origin", type=float, required=True, help="The start of the history, on the machine's monotonic clock.")
@click.option("--workload", "names", type=click.Choice(list(WORKLOADS)), multiple=True, help="Default: all workloads.")
def main(url: str, file: Path, number: int, seed: int, origin: float, names: tuple[str, ...]) -> None:
    """Run transactions on the repository at URL and write their history to FILE until SIGTERM."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    workloads = [WORKLOADS[name] for name in names or WORKLOADS]
    chance = random.Random(seed)
    with opened(url) as repository:
        worker = Worker(
            f"w{number}",
            instance_of(repository),
            appending(file),
            Moments(time.monotonic),
            chance,
            number=number,
            workers=MOST_WORKERS,
            generation=lambda: int((time.monotonic() - origin) / GENERATION),
        )
        while not stopping:
            chance.choice(workloads).turn(worker)
            time.sleep(chance.choice((0.0, 0.0, 0.002, 0.01, 0.05)))
        worker.read(lambda attempt: read_all(attempt, names))


def read_all(attempt: Attempt, names: tuple[str, ...] = ()) -> None:
    """Read the data of all workloads."""
    for name in names or WORKLOADS:
        WORKLOADS[name].read_all(attempt)


if __name__ == "__main__":
    main()
