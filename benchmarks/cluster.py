"""Compare commits of several writers with their raw calls, on divided tables too: ``python -m benchmarks.cluster URL``."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Final

import click

import hbasemk
from benchmarks.registry import Entry, entries
from benchmarks.runner import place_of
from benchmarks.scenarios.multiprocess import WorkResult
from benchmarks.scenarios.nodes import properties
from benchmarks.system import Properties, System
from benchmarks.systems.hbase_baseline import TABLES, with_tables
from benchmarks.workers import Gate, Workers
from hbasemk.format import schema
from hbasemk.layout import lay_out
from hbasemk.store.abc import Table
from hbasemk.store.hbase import HBaseStore

WRITERS: Final = 8
"""Folders, each of which one writer uses at a time."""
OWN: Final = 10
"""Nodes in a writer's folder."""
SPLITS: Final = ("/3/0/0", "/6/0/0")
"""The nodes of the writers lie at depth 3, so these paths divide them into three regions."""
TIME_LIMIT: Final = 30.0
"""Seconds after which a writer stops early."""
OWN_NODES: Final = "own nodes, one region"
DIVIDED: Final = "own nodes, three regions"
CHILDREN: Final = "children of one node"
KINDS: Final = (OWN_NODES, DIVIDED, CHILDREN)
Tree = tuple[Entry, str]
"""A system, and the address of its tree."""


def write(gate: Gate, tree: Tree, kind: str, folder: str, parent: str, commits: int) -> WorkResult:
    """Commit in a worker process: set numbers of the nodes in a folder, or add children to the common parent."""
    entry, address = tree
    system = entry.load().join(address)
    try:
        # The first commit also acquires a lease and connects.
        system.set(folder, "ready", 1)
        system.refresh()
        before = system.retries
        gate()
        started = time.monotonic()
        done = 0
        while done < commits and time.monotonic() - started < TIME_LIMIT:
            if kind == CHILDREN:
                system.add([(f"{parent}/{folder.replace('/', '-')}-{done}", properties(done))])
            else:
                system.set(f"{folder}/{done % OWN}", "number", OWN + done)
            done += 1
        return WorkResult(started, time.monotonic(), done, system.retries - before)
    finally:
        system.close()


@contextmanager
def tree(entry: Entry, place: str, splits: Sequence[str]) -> Iterator[Tree]:
    """Create the tables of a system, with the root and a folder for each writer; drop them at the end."""
    tables: Sequence[Table] = schema.TABLES if entry.role == "hbasemk" else TABLES

    def create(store: HBaseStore) -> None:
        lay_out(store, place, splits, None)
        store.create_tables(tables)

    try:
        with_tables(place, create)
        address, _, prefix = place.partition("/")
        found = f"hbase://{address}/?prefix={prefix}" if entry.role == "hbasemk" else place
        if entry.role == "hbasemk":
            hbasemk.connect(found).close()
        with joined((entry, found)) as system:
            system.add([(f"/{number}", {}) for number in range(WRITERS)])
        yield entry, found
    finally:
        with_tables(place, lambda store: store.drop_tables(tables))


@contextmanager
def joined(one: Tree) -> Iterator[System]:
    """Connect to a tree."""
    entry, address = one
    system = entry.load().join(address)
    try:
        yield system
    finally:
        system.close()


def rate(workers: Workers, one: Tree, kind: str, writers: int, turn: str, commits: int) -> float:
    """Return the commits per second of all writers together."""
    folders = [f"/{number * WRITERS // writers}/{turn}" for number in range(writers)]
    parent = f"/0/{turn}c"
    nodes: list[tuple[str, Properties]] = [(parent, {})]
    for folder in folders:
        nodes.append((folder, {}))
        nodes += [(f"{folder}/{own}", properties(own)) for own in range(OWN)]
    with joined(one) as system:
        system.add(nodes)
    results = workers.run([(write, (one, kind, folder, parent, commits // writers)) for folder in folders])
    seconds = max(result.ended for result in results) - min(result.started for result in results)
    done = sum(result.commits for result in results)
    return float(done / seconds)


def spread(samples: Sequence[float], form: str) -> str:
    """Return the median, with the least and the greatest sample."""
    least, middle, greatest = (format(one, form) for one in (min(samples), median(samples), max(samples)))
    return f"{middle} ({least}-{greatest})"


def measure(url: str, counts: Sequence[int], rounds: int, commits: int) -> None:
    """Let the systems take turns, and print a row for each kind of commits and number of writers."""
    place = f"{place_of(url).where}{uuid.uuid4().hex[:6]}_"
    chosen = [entry for entry in entries("hbase") if entry.role in {"hbasemk", "baseline"}]
    rates: dict[tuple[str, int, str], list[float]] = {}
    workers = Workers()
    loads = [os.getloadavg()[0]]
    with ExitStack() as stack:
        stack.callback(workers.close)
        trees = {
            kind: [
                stack.enter_context(tree(entry, f"{place}{number}{entry.key}_", SPLITS if kind == DIVIDED else ()))
                for entry in chosen
            ]
            for number, kind in enumerate(KINDS)
        }
        # The first round warms HBase up.
        for turn in range(rounds + 1):
            for kind in KINDS:
                for count in counts:
                    for one in trees[kind][turn % 2 :] + trees[kind][: turn % 2]:
                        found = rate(workers, one, kind, count, f"{count}.{turn}", commits)
                        if turn:
                            rates.setdefault((kind, count, one[0].role), []).append(found)
            click.echo(f"round {turn} of {rounds}, load average {os.getloadavg()[0]:.1f}", err=True)
            loads.append(os.getloadavg()[0])
    click.echo(f"load average {min(loads):.0f} to {max(loads):.0f}\n")
    click.echo("| commits | writers | hbasemk /s | raw calls /s | hbasemk ÷ raw calls |")
    click.echo("| --- | ---: | ---: | ---: | ---: |")
    for kind in KINDS:
        for count in counts:
            ours, raw = (rates[kind, count, role] for role in ("hbasemk", "baseline"))
            ratios = [one / other for one, other in zip(ours, raw, strict=True)]
            click.echo(f"| {kind} | {count} | {spread(ours, '.0f')} | {spread(raw, '.0f')} | {spread(ratios, '.2f')} |")


@click.command()
@click.argument("url")
@click.option(
    "--writers", "counts", type=click.IntRange(1, WRITERS), multiple=True, default=(1, 4, 8), show_default=True
)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--commits", type=click.IntRange(min=WRITERS), default=240, show_default=True, help="Of all writers together."
)
def main(url: str, counts: tuple[int, ...], rounds: int, commits: int) -> None:
    """Compare the commits per second of 1, 4 and 8 writers with the raw calls, in turns, on the HBase at URL.

    URL names one gateway: hbase://host:port/?prefix=bench_. Figures are medians, with the least and the greatest of all rounds.
    """
    try:
        measure(url, tuple(dict.fromkeys(counts)), rounds, commits)
    except hbasemk.HbasemkError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
