"""Measure a node that many commits have changed: ``python -m benchmarks.long_life URL YOUNG [REVISIONS]...``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Final

import click

import hbasemk
from benchmarks.space import SpaceError, flush, space
from benchmarks.systems.batch_history import write_history
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.instance import Instance
from hbasemk.repository import Repository, instance_of

NODE: Final = "/often/changed"
YOUNG: Final = 10
"""The revisions of the node with which a node of many is compared."""
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


def starts(url: str) -> float:
    """Return the time of a start with the first read."""

    def start() -> None:
        with opened(url) as repository:
            repository.head[NODE]

    return milliseconds(start)


def figures(urls: Sequence[str], turns: int) -> list[list[float]]:
    """Return, for each repository, the median times of the operations in the table's columns. They take turns."""
    found: list[list[tuple[float, ...]]] = [[] for _ in urls]
    with ExitStack() as stack:
        pairs = [(stack.enter_context(opened(url)), stack.enter_context(opened(url))) for url in urls]
        for value in range(turns):
            for url, (writing, reading), times in zip(urls, pairs, found, strict=True):
                began = starts(url)
                committed = milliseconds(partial(change, writing, -value))
                polled = milliseconds(reading.refresh)
                times.append((began, milliseconds(partial(read, reading)), committed, polled))
    return [[median(column) for column in zip(*times, strict=True)] for times in found]


def read(repository: Repository) -> None:
    """Read the node at the newest snapshot that the instance knows."""
    repository.head[NODE]


def collect(url: str, revisions: int) -> int:
    """Collect all but the newest of so many revisions; return the number of deleted cells."""
    deleted = 0
    with opened(url) as repository:
        for _ in range(ATTEMPTS):
            time.sleep(1)
            deleted += Collector(instance_of(repository), searched_ms=0).run(RETENTION_MS).cells.total()
            # Each revision has at least one version of the changed property that a later one supersedes.
            if deleted >= revisions - 1:
                return deleted
    raise click.ClickException(
        f"the collector deleted {deleted:,} cells of {revisions:,} revisions in {ATTEMPTS} runs; expected one for each "
        "revision or more. `hbasemk status` says what holds the collection back."
    )


def in_container(urls: Sequence[str], work: Callable[[Instance], object]) -> None:
    """Flush or compact the tables of each repository on HBase."""
    for url in urls:
        with opened(url) as repository:
            if instance_of(repository).store.supports_transactions:
                raise click.ClickException(f"--container needs repositories on HBase, got {url}; leave it out")
            work(instance_of(repository))


def check_stages(stages: Sequence[int], added: int) -> None:
    """Raise an error for a stage that the node has passed before, because ``added`` revisions follow each stage."""
    for before, stage in pairwise(stages):
        if stage < before + added:
            raise click.UsageError(
                f"REVISIONS must be at least {before + added:,} after {before:,}, got {stage:,}: the turns between them add "
                f"{added:,} revisions. Use another number or fewer --turns."
            )


def measure(url: str, young: str, stages: tuple[int, ...], turns: int, container: str | None) -> None:
    """Print a row for each number of revisions, and one after the collection of all of them.

    If ``container`` names the container of HBase, print two more rows each time. One follows a major compaction, which
    leaves one file of each table, and one a flush, which adds a second file.
    """
    grow(young, 0, YOUNG)
    click.echo("| revisions of the node | start and first read | read | commit | poll of one commit |")
    click.echo("| --- | ---: | ---: | ---: | ---: |")

    def row(title: str) -> None:
        old, new = figures([url, young], turns)
        ratios = (f"{ms:.3f} ms ({ms / base:.2f})" for ms, base in zip(old, new, strict=True))
        click.echo(f"| {title} | {' | '.join(ratios)} |")

    made = 0

    def rows(title: str) -> None:
        nonlocal made
        row(title)
        made += turns
        if container is not None:
            for state, work in (("one file", space), ("two files", flush)):
                in_container([url, young], partial(work, container=container))
                row(f"{title}, {state}")
                made += turns

    for revisions in stages:
        grow(url, made, revisions)
        made = max(made, revisions)
        rows(f"{revisions:,}")
    deleted = collect(url, made)
    rows(f"{made:,}, collected ({deleted:,} cells)")


@click.command()
@click.argument("url")
@click.argument("young")
@click.argument("stages", metavar="[REVISIONS]...", type=click.IntRange(min=1), nargs=-1)
@click.option(
    "--turns",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How often each operation is timed for a row. The table shows medians.",
)
@click.option(
    "--container", help="Also measure with one and with two files of each table of HBase in this container (docker/)."
)
def main(url: str, young: str, stages: tuple[int, ...], turns: int, container: str | None) -> None:
    """Change one node again and again, and measure after REVISIONS commits (default: 10,000 and 1,000,000).

    At the end collect all old revisions, and measure once more. The numbers in brackets are ratios to a node in the
    repository at YOUNG that has ten revisions at first, and one more after each turn. The same operation on both follows
    each other. The repositories at URL and YOUNG must be new.
    """
    stages = stages or (10_000, 1_000_000)
    check_stages(stages, turns * (1 if container is None else 3))
    try:
        measure(url, young, stages, turns, container)
    except (hbasemk.HbasemkError, SpaceError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
