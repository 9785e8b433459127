"""Measure a node that many commits have changed: ``python -m benchmarks.long_life URL [REVISIONS]...``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Final

import click

import hbasemk
from benchmarks.systems.batch_history import write_history
from hbasemk.kernel.collection.collector import Collector
from hbasemk.repository import Repository, instance_of

NODE: Final = "/often/changed"
TURNS: Final = 50
RETENTION_MS: Final = 1_000
"""Far below the least retention of a repository: nobody reads an old snapshot here."""
ATTEMPTS: Final = 30
"""How often the collector runs, a second apart, until it has collected all but the newest revisions."""


@contextmanager
def opened(url: str) -> Iterator[Repository]:
    """Open a repository that polls on request, keeps nothing in its cache and collects nothing by itself."""
    with hbasemk.connect(url, poll_interval=0, cache_bytes=0, collect=False) as repository:
        yield repository


def change(repository: Repository, value: int) -> None:
    """Commit one change of the node, without a poll."""
    with repository.transaction(base=repository.head) as tx:
        tx.set(NODE, "n", value)


def grow(url: str, made: int, revisions: int) -> None:
    """Let the node have so many revisions; ``made`` says how many it has."""
    with opened(url) as repository:
        if not made:
            with repository.transaction() as tx:
                tx.add("/often")
                tx.add(NODE, {"n": 0, "title": "a node that changes often"})
        write_history(instance_of(repository), [NODE], "n", revisions - max(made, 1), lambda: False)


def milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


def figures(url: str) -> list[float]:
    """Return the time in ms of a start with the first read, a read, a commit, and a poll that finds one commit."""

    def start() -> None:
        with opened(url) as repository:
            repository.head[NODE]

    starts = [milliseconds(start) for _ in range(TURNS)]
    with opened(url) as repository, opened(url) as other:
        reads = [milliseconds(lambda: repository.head[NODE]) for _ in range(TURNS)]
        commits, polls = list[float](), list[float]()
        for value in range(TURNS):
            commits.append(milliseconds(partial(change, other, -value)))
            polls.append(milliseconds(repository.refresh))
    return [median(one) for one in (starts, reads, commits, polls)]


def collect(url: str, revisions: int) -> int:
    """Collect all but the newest of so many revisions; return the number of deleted cells."""
    deleted = 0
    with opened(url) as repository:
        for _ in range(ATTEMPTS):
            time.sleep(1)
            deleted += Collector(instance_of(repository)).run(RETENTION_MS).cells.total()
            # Each revision has at least one version of the changed property that a later one supersedes.
            if deleted >= revisions - 1:
                return deleted
    raise click.ClickException(
        f"the collector deleted {deleted:,} cells of {revisions:,} revisions in {ATTEMPTS} runs; expected one for each "
        "revision or more. `hbasemk status` says what holds the collection back."
    )


def measure(url: str, stages: tuple[int, ...]) -> None:
    """Print a row for each number of revisions, and one after the collection of all of them."""
    hbasemk.connect(url, collect=False).close()
    click.echo("| revisions of the node | start and first read | read | commit | poll of one commit |")
    click.echo("| --- | ---: | ---: | ---: | ---: |")
    first: list[float] = []

    def row(title: str) -> None:
        found = figures(url)
        first[:] = first or found
        ratios = (f"{ms:.3f} ms ({ms / base:.2f})" for ms, base in zip(found, first, strict=True))
        click.echo(f"| {title} | {' | '.join(ratios)} |")

    made = 0
    for revisions in stages:
        grow(url, made, revisions)
        row(f"{revisions:,}")
        made = max(made, revisions) + TURNS
    deleted = collect(url, made)
    row(f"{made:,}, collected ({deleted:,} cells)")


@click.command()
@click.argument("url")
@click.argument("stages", metavar="[REVISIONS]...", type=click.IntRange(min=1), nargs=-1)
def main(url: str, stages: tuple[int, ...]) -> None:
    """Change one node again and again, and measure after REVISIONS commits (default: 10, 10,000 and 1,000,000).

    At the end collect all old revisions, and measure once more. The repository at URL must be new. The numbers in brackets
    are ratios to the first row.
    """
    try:
        measure(url, stages or (10, 10_000, 1_000_000))
    except hbasemk.HbasemkError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
