"""Adjust one property from many processes, and measure a read of it: ``python -m benchmarks.counter URL [ADJUSTS]``."""

from __future__ import annotations

import time
from typing import Final

import click

import hbasemk
from benchmarks.workers import Gate, WorkerError, Workers
from hbasemk import Transaction
from hbasemk.opening import open_store
from hbasemk.testing.wrapped import CountingStore

PATH: Final = "/counter"
NAME: Final = "count"
STAGE: Final = 10
"""A read follows after so many times the adjusts of the read before it."""


def adjust(gate: Gate, url: str, adjusts: int, together: int) -> tuple[int, int]:
    """Adjust the property in a worker process, ``together`` times in each commit; return the commits and the conflicts."""
    commits = 0
    with hbasemk.connect(url, create=False) as repository:
        gate()
        while adjusts:
            part = min(together, adjusts)

            def change(tx: Transaction, part: int = part) -> None:
                for _ in range(part):
                    tx.adjust(PATH, NAME, 1)

            repository.run(change)
            commits += 1
            adjusts -= part
        return commits, repository.statistics.conflicts


def read(url: str) -> tuple[object, int, int, float]:
    """Read the property in a new instance; return its value, the calls and cells of the read, and its seconds."""
    counting = CountingStore(open_store(url)[0])
    with hbasemk.Repository(counting, create=False, poll_interval=0) as repository:
        head = repository.head
        counting.traffic()
        began = time.perf_counter()
        value = head[PATH][NAME]
        seconds = time.perf_counter() - began
        used = counting.traffic()
        return value, used.calls, used.cells_read, seconds


def measure(url: str, adjusts: int, processes: int, together: int) -> None:
    """Adjust in stages, each from new processes, and print what a read costs after each."""
    with hbasemk.connect(url) as repository:
        repository.run(lambda tx: tx.add(PATH, {NAME: 0}))
    workers = Workers()
    done = commits = 0
    click.echo("| adjusts | commits | conflicts | adjusts per second | value read | calls | cells | time |")
    click.echo("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    try:
        while done < adjusts:
            goal = min(adjusts, max(done * STAGE, processes * together))
            shares = [(goal - done + number) // processes for number in range(processes)]
            began = time.monotonic()
            results = workers.run([(adjust, (url, share, together)) for share in shares])
            rate = (goal - done) / (time.monotonic() - began)
            done = goal
            commits += sum(of_process for of_process, _ in results)
            conflicts = sum(of_process for _, of_process in results)
            value, calls, cells, seconds = read(url)
            if value != done:
                raise click.ClickException(f"{PATH} must have the {NAME} {done}, got {value}")
            click.echo(
                f"| {done:,} | {commits:,} | {conflicts} | {rate:,.0f} | {value:,} | {calls} | {cells} | "
                f"{seconds * 1000:,.2f} ms |"
            )
    finally:
        workers.close()


@click.command()
@click.argument("url")
@click.argument("adjusts", type=click.IntRange(min=1), default=10_000_000)
@click.option("--processes", type=click.IntRange(min=1), default=16, show_default=True)
@click.option("--together", type=click.IntRange(min=1), default=100, show_default=True, help="Adjusts in each commit.")
def main(url: str, adjusts: int, processes: int, together: int) -> None:
    """Adjust one property ADJUSTS times (default: 10,000,000) from many processes, and measure a read of it.

    The repository at URL must be new. A table row follows after each tenfold number of adjusts.
    """
    try:
        measure(url, adjusts, processes, together)
    except (hbasemk.HbasemkError, WorkerError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
