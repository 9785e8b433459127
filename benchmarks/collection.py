"""Collect many old versions, alone and beside a writer: ``python -m benchmarks.collection URL COPY [VERSIONS]``."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

import hbasemk
from benchmarks import whole_trees
from benchmarks.long_life import RETENTION_MS
from benchmarks.space import SpaceError, space
from benchmarks.systems.batch_history import write_history
from benchmarks.workers import Gate, WorkerError, Workers
from hbasemk.kernel.collection.background import REST
from hbasemk.kernel.collection.collector import Collector, Report
from hbasemk.kernel.collection.node_cells import SUPERSEDED
from hbasemk.repository import instance_of
from hbasemk.transfer.exporter import write_json
from hbasemk.transfer.json.importer import JsonImport

SETTLED_S: Final = 7.0
"""After so many seconds without commits the watermark passes the last commit, and the horizon may follow."""
TOGETHER: Final = 10
"""The nodes that one revision changes."""
NAME: Final = "size"
"""The property that they change."""
BOTH, WRITER, COLLECTOR = range(3)
"""The numbers of the turns, by the processes that work."""


class Span(NamedTuple):
    """A commit, or a step of the collector with the number of versions that it deleted, on the clock of the machine."""

    began: float
    ended: float
    number: int


class Turns(NamedTuple):
    """The turns, one after another: collector and writer together; the writer alone; the collector alone.

    Each process reads the clock that all processes of a machine share, so none waits for the other.
    """

    seconds: float

    def begin(self, others: int) -> int:
        """Wait while it is the turn of the others, which have this number; return the number of the present turn."""
        while (turn := int((now := time.monotonic()) // self.seconds % 3)) == others:
            time.sleep(self.seconds - now % self.seconds)
        return turn


def collect_in_turns(gate: Gate, url: str, done: str, turns: Turns, rest: float) -> tuple[list[Span], list[Span]]:
    """Collect in a worker process, one window of the journal in each step, and create the file ``done`` at the end.

    Beside the writer rest for ``rest`` times the duration of each step. Returns the steps, and the steps with their rests.
    """
    with hbasemk.connect(url, create=False, collect=False) as repository:
        instance = instance_of(repository)
        collector = Collector(instance, searched_ms=0)
        collector.publish(RETENTION_MS)
        time.sleep(1 + collector.grace)
        gate()
        steps: list[Span] = []
        periods: list[Span] = []
        try:
            finished = False
            while not finished:
                turn = turns.begin(WRITER)
                report, began = Report(), time.monotonic()
                finished = collector.collect(RETENTION_MS, report, windows=1)
                if finished:
                    while instance.store.give_back_space():
                        pass
                ended = time.monotonic()
                steps.append(Span(began, ended, report.cells[SUPERSEDED]))
                if turn == BOTH:
                    time.sleep(rest * (ended - began))
                periods.append(Span(began, time.monotonic(), 0))
        finally:
            Path(done).touch()
        return steps, periods


def commit_in_turns(gate: Gate, url: str, done: str, turns: Turns, nodes: Sequence[str]) -> list[Span]:
    """Commit changes of single nodes in a worker process until the file ``done`` exists."""
    with hbasemk.connect(url, create=False, collect=False) as repository:
        gate()
        spans: list[Span] = []
        for number, path in enumerate(itertools.cycle(nodes)):
            turns.begin(COLLECTOR)
            if Path(done).exists():
                return spans
            began = time.monotonic()
            with repository.transaction() as tx:
                tx.set(path, "title", f"changed {number}")
            spans.append(Span(began, time.monotonic(), 1))
    raise AssertionError("the nodes never end")


def rate(spans: Sequence[Span]) -> float:
    """Return the sum of the numbers of spans per second of their own time."""
    seconds = sum(span.ended - span.began for span in spans)
    return sum(span.number for span in spans) / seconds if seconds else 0.0


def divided(spans: Sequence[Span], others: Sequence[Span]) -> tuple[list[Span], list[Span]]:
    """Divide spans in those at which nothing of the others happened, and those that lay inside the work of the others."""
    alone: list[Span] = []
    beside: list[Span] = []
    place = 0
    for span in spans:
        while place < len(others) and others[place].ended <= span.began:
            place += 1
        (beside if place < len(others) and others[place].began < span.ended else alone).append(span)
    return alone, beside


def grow(url: str, nodes: int, versions: int) -> int:
    """Make a tree and so many old versions; return the number of old versions."""
    with hbasemk.connect(url, collect=False) as repository:
        whole_trees.grow(repository, nodes)
        chosen = whole_trees.nodes_of(nodes)
        # A change supersedes a version of the property and one of ``lastRevision``.
        together = min(TOGETHER, len(chosen))
        revisions = -(-versions // (2 * together))
        write_history(instance_of(repository), chosen, NAME, revisions, lambda: False, together)
        return revisions * together * 2


def copied(url: str, copy: str) -> None:
    """Copy the tree to another new repository."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "tree.json")
        with hbasemk.connect(url, create=False) as repository:
            write_json(repository.head, whole_trees.TREE, kept)
        JsonImport(copy, kept, whole_trees.TREE).run()


def collect_the_rest(url: str) -> None:
    """Collect what was committed beside the collector, and check the repository."""
    with hbasemk.connect(url, create=False, collect=False) as repository:
        # Journal rows go when the horizon is a retention above them.
        with repository.transaction() as tx:
            tx.set(whole_trees.TREE, "collected", True)
        time.sleep(SETTLED_S)
        instance = instance_of(repository)
        # Without an order of writes, a run deletes the journal rows that an earlier one has used.
        for _ in range(1 if instance.store.supports_transactions else 2):
            Collector(instance, searched_ms=0).run(RETENTION_MS)
        whole_trees.check(instance)


def sizes(url: str, container: str | None) -> dict[str, int]:
    """Return the space of a repository, which no process uses."""
    with hbasemk.connect(url, create=False, collect=False) as repository:
        instance = instance_of(repository)
        found = space(instance, container)
        if instance.store.supports_transactions:
            with tempfile.TemporaryDirectory() as folder:
                vacuumed = Path(folder, "vacuumed.db")
                with sqlite3.connect(instance.location) as sql:
                    sql.execute("VACUUM INTO ?", (str(vacuumed),))
                sql.close()
                found["the file after VACUUM"] = vacuumed.stat().st_size
        return found


def row(title: str, *figures: str) -> None:
    """Print a row of the table."""
    click.echo(f"| {title} | {' | '.join(figures)} |")


def check_places(url: str, copy: str, container: str | None) -> None:
    """Raise an error if the repositories are not two new ones, or not on HBase with a container."""
    locations = []
    for place in (url, copy):
        with hbasemk.connect(place, collect=False) as repository:
            instance = instance_of(repository)
            if container is not None and instance.store.supports_transactions:
                raise click.ClickException(f"--container needs repositories on HBase, got {place}; leave it out")
            if repository.head.children("/"):
                raise click.ClickException(f"{place} must be a new repository, got one with nodes; choose another one")
            locations.append(instance.location)
    if locations[0] == locations[1]:
        raise click.ClickException(f"{url} is also the repository at COPY; choose another one for the copy")


def measure(
    url: str,
    copy: str,
    nodes: int,
    versions: int,
    turns: Turns,
    rest: float,
    container: str | None,
) -> None:
    """Make old versions, collect them in turns with a writer, and compare the space with that of a copy."""
    check_places(url, copy, container)
    made = grow(url, nodes, versions)
    time.sleep(SETTLED_S)
    before = sizes(url, container)
    workers = Workers()
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = str(Path(folder, "done"))
            (steps, periods), commits = workers.run(
                [
                    (collect_in_turns, (url, done, turns, rest)),
                    (commit_in_turns, (url, done, turns, whole_trees.nodes_of(nodes))),
                ]
            )
    finally:
        workers.close()
    deleted = sum(step.number for step in steps)
    if deleted < made:
        raise click.ClickException(
            f"the collector deleted {deleted:,} superseded versions; expected {made:,} or more. `hbasemk status` says what "
            "holds the collection back."
        )
    row("", "alone", "beside the other", "ratio")
    row("---", "---:", "---:", "---:")
    for title, found in (
        ("versions collected per second", divided(steps, commits)),
        ("commits per second", divided(commits, periods)),
    ):
        alone, beside = map(rate, found)
        row(title, f"{alone:,.0f}", f"{beside:,.0f}", f"{beside / alone:.2f}" if alone else "-")
    collect_the_rest(url)
    copied(url, copy)
    click.echo()
    row("bytes", f"with {made:,} old versions", "collected", "fresh copy", "collected ÷ copy")
    row("---", "---:", "---:", "---:", "---:")
    after, fresh = sizes(url, container), sizes(copy, container)
    for name, size in after.items():
        row(name, f"{before[name]:,}", f"{size:,}", f"{fresh[name]:,}", f"{size / fresh[name]:.2f}")


@click.command()
@click.argument("url")
@click.argument("copy")
@click.argument("versions", type=click.IntRange(min=1), default=400_000)
@click.option("--nodes", type=click.IntRange(min=2), default=10_000, show_default=True, help="Nodes of the tree.")
@click.option("--turn", type=click.FloatRange(min=0.01), default=2.0, show_default=True, help="Seconds of a turn.")
@click.option(
    "--rest",
    type=click.FloatRange(min=0),
    default=REST,
    show_default=True,
    help="Beside the writer the collector rests so many times as long as each step took: as in the background (4), or "
    "as `hbasemk collect` (0).",
)
@click.option("--container", help="Compact HBase's tables in this container (docker/), and measure their files.")
def main(
    url: str,
    copy: str,
    versions: int,
    nodes: int,
    turn: float,
    rest: float,
    container: str | None,
) -> None:
    """Collect VERSIONS old versions (default: 400,000) of a tree, in turns with a process that commits.

    The turns are: collector and writer together, the writer alone, the collector alone. At the end copy the tree, and compare
    the space. The repositories at URL and COPY must be new.
    """
    try:
        measure(url, copy, nodes, versions, Turns(turn), rest, container)
    except (hbasemk.HbasemkError, WorkerError, SpaceError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
