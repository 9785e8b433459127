"""One process of a history: ``python -m hbasemk.testing.history.worker URL FILE``, until it is told to end, or is killed.

Every line of the history is in the operating system's hands before the commit that it tells of begins, and again before the
next transaction does.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click

from hbasemk.connect import connect
from hbasemk.errors import StoreNotAppliedError, StoreUnknownError
from hbasemk.repository import Repository
from hbasemk.testing.history.recorder import Attempt, Moments, Worker
from hbasemk.testing.history.records import Transaction
from hbasemk.testing.history.workloads import WORKLOADS

MOST_WORKERS = 256
GENERATION = 2.0
"""Seconds after which lists and counters begin anew."""
OPENING = 60.0
"""Seconds that a worker goes on trying to open the repository."""


def appending(file: Path) -> Callable[[Transaction], None]:
    """Where the lines go: each is the operating system's at once."""

    def write(one: Transaction) -> None:
        with file.open("a") as out:
            out.write(one.line() + "\n")

    return write


def opened(url: str) -> Repository:
    """The repository, also if the store is out of reach for a while."""
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
@click.option("--number", type=click.IntRange(0, MOST_WORKERS - 1), required=True, help="Another one for each worker.")
@click.option("--seed", type=int, required=True, help="Of the worker's choices.")
@click.option("--origin", type=float, required=True, help="When the history began, on this machine's monotonic clock.")
@click.option("--workload", "names", type=click.Choice(list(WORKLOADS)), multiple=True, help="None: all.")
def main(url: str, file: Path, number: int, seed: int, origin: float, names: tuple[str, ...]) -> None:
    """Run transactions on the repository at URL and write their history to FILE, until SIGTERM comes."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda which, _: stopping.append(which))
    workloads = [WORKLOADS[name] for name in names or WORKLOADS]
    chance = random.Random(seed)
    with opened(url) as repository:
        worker = Worker(
            f"w{number}",
            repository.instance,
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
        worker.look(lambda attempt: read_all(attempt, names))


def read_all(attempt: Attempt, names: tuple[str, ...] = ()) -> None:
    """Read what all workloads left."""
    for name in names or WORKLOADS:
        WORKLOADS[name].read_all(attempt)


if __name__ == "__main__":
    main()
