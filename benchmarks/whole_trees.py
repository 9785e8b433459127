"""Check, export and import a whole tree: ``python -m benchmarks.whole_trees URL [NODES]``."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click

import hbasemk
from hbasemk.check import IntegrityCheck, Workers
from hbasemk.format.plural import counted
from hbasemk.format.values import PropertyValue
from hbasemk.kernel.instance import Instance
from hbasemk.opening import opened_instance
from hbasemk.processes import usable_processors
from hbasemk.repository import Repository
from hbasemk.transfer.exporter import write_json
from hbasemk.transfer.files.importer import Import
from hbasemk.transfer.json.importer import JsonImport

TREE: Final = "/tree"
FOLDER: Final = 100
"""The nodes in a folder, itself included."""
COMMIT: Final = 1000
"""The nodes of one commit."""


def processor_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def report(work: str, nodes: int, do: Callable[[], object]) -> None:
    """Do some work on a number of nodes, and print a row of the table."""
    began, used = time.perf_counter(), processor_seconds()
    do()
    seconds, used = time.perf_counter() - began, processor_seconds() - used
    click.echo(f"| {work} | {nodes / seconds:,.0f} | {nodes / used:,.0f} | {used / nodes * 1e6:,.0f} µs |")


def grow(repository: Repository, nodes: int) -> None:
    """Add folders of nodes with three properties."""
    for first in range(0, nodes, COMMIT):
        with repository.transaction() as tx:
            if not first:
                tx.add(TREE)
            for number in range(first, min(first + COMMIT, nodes)):
                folder, place = divmod(number, FOLDER)
                if place:
                    kept: dict[str, PropertyValue] = {
                        "title": f"node {place} of {folder}",
                        "size": folder * place,
                        "flag": True,
                    }
                    tx.add(f"{TREE}/{folder}/{place}", kept)
                else:
                    tx.add(f"{TREE}/{folder}")


def nodes_of(count: int) -> list[str]:
    """Return the paths of the nodes with properties in a tree of :func:`grow`."""
    return [f"{TREE}/{number // FOLDER}/{number % FOLDER}" for number in range(count) if number % FOLDER]


def grow_files(top: Path, entries: int) -> None:
    """Write directories of files with some lines."""
    for number in range(entries):
        folder, place = divmod(number, FOLDER)
        where = top / str(folder)
        if place:
            (where / f"{place}.txt").write_text(f"line of {place} in {folder}\n" * 10, encoding="utf-8")
        else:
            where.mkdir(parents=True)


def check(instance: Instance, workers: Workers | None = None) -> None:
    """Check a repository, which must be intact."""
    problems = list(IntegrityCheck(instance, workers=workers).run())
    if problems:
        raise click.ClickException(f"the repository is damaged: {problems[0]}")


def measure(url: str, nodes: int, workers: int) -> None:
    """Print a row for each kind of work. Each begins with a new instance."""
    with tempfile.TemporaryDirectory() as folder:
        kept, files = Path(folder, "tree.json"), Path(folder, "files")
        with hbasemk.connect(url) as repository:
            grow(repository, nodes)
        grow_files(files, nodes)
        click.echo("| work | nodes per second | per second of processor time | processor time per node |")
        click.echo("| --- | ---: | ---: | ---: |")
        for count in sorted({1, usable_processors()}):
            with opened_instance(url) as instance:
                several = Workers(count, partial(opened_instance, url))
                report(f"check, {counted(count, 'worker')}", nodes, partial(check, instance, several))
        with hbasemk.connect(url) as repository:
            report("JSON export", nodes, lambda: write_json(repository.head, TREE, kept))
        report("JSON import", nodes, lambda: JsonImport(url, kept, "/json").run(verify=False))
        report("JSON import, verified", nodes, lambda: JsonImport(url, kept, "/verified").run())
        for count in sorted({1, workers}):
            report(
                f"file import, {counted(count, 'worker')}",
                nodes,
                Import(url, str(files), f"/files{count}", workers=count).run,
            )


@click.command()
@click.argument("url")
@click.argument("nodes", type=click.IntRange(min=1), default=20_000)
@click.option(
    "--workers", type=click.IntRange(min=1), default=4, show_default=True, help="Processes of the file import."
)
def main(url: str, nodes: int, workers: int) -> None:
    """Check, export and import a tree of NODES nodes (default: 20,000) in the new repository at URL."""
    try:
        measure(url, nodes, workers)
    except hbasemk.HbasemkError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
