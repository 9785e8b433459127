"""Measure the child count of a very wide node: ``python -m benchmarks.child_count URL [CHILDREN]``."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import click

import hbasemk
from hbasemk.opening import open_store
from hbasemk.testing.wrapped import CountingStore

BATCH = 10_000
PHASES = ("load", "second process", "third process", "fourth process")


def measure(label: str, counting: CountingStore, call: Callable[[], object]) -> None:
    counting.take()
    start_time = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start_time
    calls = counting.take()
    detail = ", ".join(f"{method} {table} {number}" for (method, table), number in sorted(calls.items()))
    print(f"| {label} | {result} | {seconds * 1000:,.2f} ms | {calls.total()} ({detail or 'none'}) |", flush=True)


def phase(url: str, name: str, children: int) -> None:
    store, _, _ = open_store(url)
    counting = CountingStore(store)
    with hbasemk.Repository(counting, poll_interval=0) as repo:

        def add(begin: int, end: int) -> None:
            with repo.transaction() as tx:
                for number in range(begin, end):
                    tx.add(f"/n/{number:08}")

        def load() -> int:
            repo.run(lambda tx: tx.add("/n"))
            for begin in range(0, children, BATCH):
                add(begin, min(begin + BATCH, children))
            return children

        def add_100() -> int:
            for number in range(100):
                add(children + number, children + number + 1)
            return 100

        if name == "load":
            measure("load, commits of 10,000", counting, load)
            measure("names of all", counting, lambda: len(repo.head.children("/n")))
            measure("first count ever", counting, lambda: repo.head.child_count("/n"))
            measure("again, same process", counting, lambda: repo.head.child_count("/n"))
        else:
            measure(f"first count, {name}", counting, lambda: repo.head.child_count("/n"))
        if name == "second process":
            measure("100 commits of one more child", counting, add_100)
            measure("then, same process", counting, lambda: repo.head.child_count("/n"))


@click.command()
@click.argument("url")
@click.argument("children", type=click.IntRange(min=1), default=1_000_000)
@click.argument("name", metavar="[PHASE]", type=click.Choice(PHASES), required=False)
def main(url: str, children: int, name: str | None) -> None:
    """Measure the child count of a node with CHILDREN children (default: 1,000,000).

    The repository at URL must be new. Each phase runs in its own process; with PHASE, only this one runs.
    """
    try:
        if name is not None:
            phase(url, name, children)
            return
        open_store(url)[0].close()
    except hbasemk.HbasemkError as error:
        raise click.ClickException(str(error)) from error
    click.echo("| operation | result | time | round trips |\n| --- | ---: | ---: | --- |")
    for one in PHASES:
        command = [sys.executable, "-m", "benchmarks.child_count", url, str(children), one]
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(code)  # the process has printed the error


if __name__ == "__main__":
    main()
