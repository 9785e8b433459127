"""Poll beside many writers, idle and busy: ``python -m benchmarks.polls URL [WRITERS]...``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import mean, median
from typing import Final, NamedTuple

import click

import hbasemk
from benchmarks.workers import Gate, Job, WorkerError, Workers
from hbasemk import Repository, Settings
from hbasemk.opening import open_store
from hbasemk.repository import instance_of
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import CountingStore

SETTINGS: Final = Settings(lease_ms=3_600_000)
"""Nothing renews the leases of the writers, so they are long."""
PAUSE: Final = 0.05
"""Seconds between two polls."""
ALONE: Final = 60
"""Polls that follow one commit each."""


class Polls(NamedTuple):
    """What one poll costs: its time in the median, all else on average."""

    phase: str
    ms: float
    cpu_ms: float
    calls: float
    rows: float
    revisions: float


def write(gate: Gate, url: str, first: int, writers: int, seconds: float, rate: float) -> int:
    """Claim leases in a worker process, wait for the second gate, then commit by turns for some seconds; return the commits.

    ``rate`` is the greatest number of commits per second; 0 has no limit.
    """
    with ExitStack() as stack:
        store = open_store(url)[0]
        stack.callback(store.close)
        opened = [_writer(stack, store, f"/{first + number}") for number in range(writers)]
        gate()
        gate()
        began = time.monotonic()
        commits = 0
        while (now := time.monotonic() - began) < seconds:
            if rate and commits / rate > now:
                time.sleep(min(commits / rate, seconds) - now)
                continue
            _set(opened[commits % writers], f"/{first + commits % writers}", commits)
            commits += 1
        return commits


def _writer(stack: ExitStack, store: Store, path: str) -> Repository:
    repository = stack.enter_context(Repository(store, create=False, poll_interval=0, owns_store=False))
    with repository.transaction(base=repository.head) as tx:
        tx.add(path, {"n": -1})
    return repository


def _set(repository: Repository, path: str, value: int) -> None:
    """Commit without a poll."""
    with repository.transaction(base=repository.head) as tx:
        tx.set(path, "n", value)


def read(gate: Gate, url: str, first: int, seconds: float) -> list[Polls]:
    """Poll in a worker process: while nothing happens, after single commits, and while the writers are busy.

    The writers pass the second gate only after the single commits, so a slow machine does not mix the phases.
    """
    with ExitStack() as stack:
        counting = CountingStore(open_store(url)[0])
        reader = stack.enter_context(Repository(counting, create=False, poll_interval=0))
        store = open_store(url)[0]
        stack.callback(store.close)
        path = f"/alone{first}"
        other = _writer(stack, store, path)
        gate()
        began = time.monotonic()
        reader.refresh()
        idle = _measure("idle", reader, counting, _until(began + 0.5 * seconds))
        alone = _measure("one commit", reader, counting, _commits(other, path, began + seconds))
        gate()
        return [idle, alone, _measure("busy", reader, counting, _until(time.monotonic() + 0.9 * seconds))]


def _until(end: float) -> Iterator[None]:
    """Take turns until that time, at least one."""
    time.sleep(PAUSE)
    yield
    while time.monotonic() < end:
        time.sleep(PAUSE)
        yield


def _commits(other: Repository, path: str, end: float) -> Iterator[None]:
    """Commit once before each turn until that time, at least once."""
    for number in range(ALONE):
        if number and time.monotonic() > end:
            return
        _set(other, path, number)
        yield


def _measure(phase: str, reader: Repository, counting: CountingStore, turns: Iterator[None]) -> Polls:
    """Poll at each turn."""
    times, spent, all_calls, all_rows = list[float](), list[float](), list[int](), list[int]()
    known = instance_of(reader).head().position
    for _ in turns:
        counting.traffic()
        began, cpu = time.perf_counter(), time.process_time()
        reader.refresh()
        times.append(1000 * (time.perf_counter() - began))
        spent.append(1000 * (time.process_time() - cpu))
        used = counting.traffic()
        all_calls.append(used.calls)
        all_rows.append(used.rows_read)
    new = instance_of(reader).head().position - known
    return Polls(phase, median(times), mean(spent), mean(all_calls), mean(all_rows), new / len(times))


def measure(url: str, writers: tuple[int, ...], seconds: float, processes: int, rate: float) -> None:
    """Print a row for each number of writers and each phase.

    That many processes hold the leases of the writers, and commit together at most ``rate`` times per second.
    """
    hbasemk.connect(url, poll_interval=0, settings=SETTINGS).close()
    click.echo("| writers | phase | time of a poll | CPU | calls | rows read | new revisions | commits/s |")
    click.echo("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    workers = Workers()
    first = 0
    try:
        for count in writers:
            # Leases of the stage before have ended, so this stage takes the same machine ids again.
            jobs: list[Job] = [(read, (url, first, seconds))]
            for share in _shares(count, processes):
                jobs.append((write, (url, first, share, seconds, rate * share / count)))
                first += share
            polls, *commits = workers.run(jobs)
            for one in polls:
                made = sum(commits) / seconds if one.phase == "busy" else 0
                click.echo(
                    f"| {count:,} | {one.phase} | {one.ms:.2f} ms | {one.cpu_ms:.2f} ms | {one.calls:.2f} | {one.rows:,.1f} | "
                    f"{one.revisions:.1f} | {made:,.0f} |"
                )
    finally:
        workers.close()


def _shares(count: int, processes: int) -> list[int]:
    """Return how many of the writers each process holds; every process holds at least one."""
    used = min(count, processes)
    return [count // used + (number < count % used) for number in range(used)]


@click.command()
@click.argument("url")
@click.argument("writers", type=click.IntRange(min=1), nargs=-1)
@click.option("--seconds", type=click.FloatRange(min=1), default=6.0, show_default=True, help="The time of each half.")
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that commit.")
@click.option(
    "--rate", type=click.FloatRange(min=0), default=0, help="The greatest number of commits per second (0: no limit)."
)
def main(url: str, writers: tuple[int, ...], seconds: float, processes: int, rate: float) -> None:
    """Poll in one process, while other PROCESSES hold the leases of WRITERS (default: 20, 200 and 1000).

    The repository at URL must be new. In the first half nothing else happens, except that a few polls follow one commit each.
    In the second half the writers commit by turns, as fast as the processes can or at the given rate.
    """
    try:
        measure(url, writers or (20, 200, 1_000), seconds, processes, rate)
    except (hbasemk.HbasemkError, WorkerError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
