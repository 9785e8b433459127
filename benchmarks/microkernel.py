"""Measure the calls of MicroKernel clients and work on large trees: ``python -m benchmarks.microkernel URL``."""

from __future__ import annotations

import gc
import json
import statistics
import threading
import time
from collections.abc import Callable
from typing import Final

import click

import hbasemk
from hbasemk import MicroKernel, Repository

THREADS: Final = 10
"""The threads that use branches at the same time."""
CYCLES: Final = 50
"""The branches of each thread."""
BATCH: Final = 500
"""The commits of one turn of ``poll_interval``."""


def seconds_of(call: Callable[[], object]) -> float:
    """Return the duration of a call."""
    start_time = time.perf_counter()
    call()
    return time.perf_counter() - start_time


def row(work: str, seconds: float, more: str = "") -> None:
    """Print one row of the table."""
    click.echo(f"| {work} | {seconds * 1000:,.3f} ms | {more} |")


def in_turns(turns: int, **calls: Callable[[], object]) -> dict[str, float]:
    """Return the median duration of each call, in seconds. The calls take turns."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            samples[name].append(seconds_of(call))
    return {name: statistics.median(values) for name, values in samples.items()}


class Client:
    """A client of the MicroKernel interface that works below one node."""

    def __init__(self, mk: MicroKernel, path: str) -> None:
        self._mk = mk
        self._path = path
        self._count = 0
        tree = {str(number): {"title": f"node {number}", "n": 0} for number in range(10)}
        mk.commit("/", f'+"{path[1:]}":{json.dumps({"n": 0, **tree})}')

    def read(self) -> None:
        """Read one node without its children's contents."""
        self._mk.get_nodes(f"{self._path}/3", depth=0)

    def commit(self, at: str | None = None) -> str:
        """Set one property."""
        self._count += 1
        return self._mk.commit(self._path, f'^"n":{self._count}', at)

    def cycle(self) -> None:
        """Make a commit through a branch, as a JCR client does for each save."""
        branch = self.commit(self._mk.branch())
        self._mk.merge(self._mk.rebase(branch))


def small_calls(repository: Repository, turns: int) -> None:
    """Print the rows of small calls, which take turns."""
    mk = MicroKernel(repository)
    client = Client(mk, "/client")
    # On HBase, the commits after a merge to the same node cost more calls.
    branches = Client(mk, "/branches")
    number = iter(range(10**9))

    def transaction() -> None:
        with repository.transaction() as tx:
            tx.set("/client", "m", next(number))

    medians = in_turns(turns, transaction=transaction, read=client.read, commit=client.commit, cycle=branches.cycle)
    commit = medians["commit"]
    row("transaction: set one property", medians["transaction"])
    row("get_nodes, depth 0", medians["read"])
    row("commit of one property", commit, f"{commit / medians['transaction']:.2f} times the transaction")
    row("branch, commit, rebase, merge", medians["cycle"], f"{medians['cycle'] / commit:.2f} times the commit")


def many_branches(repository: Repository) -> None:
    """Print the row of threads that use branches at the same time."""
    clients = [Client(MicroKernel(repository), f"/thread{number}") for number in range(THREADS)]
    failures: list[BaseException] = []

    def work(client: Client) -> None:
        try:
            for _ in range(CYCLES):
                client.cycle()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]

    def run() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    seconds = seconds_of(run)
    if failures:
        raise failures[0]
    row(f"{THREADS} threads, each {CYCLES} branches", seconds, f"{THREADS * CYCLES} merges")


def tokens(repository: Repository, children: int, turns: int) -> None:
    """Print the rows of tokens of a wide node, and of the diff that adds it."""
    mk = MicroKernel(repository)
    before = mk.get_head_revision()
    with repository.transaction() as tx:
        tx.add("/wide")
        for number in range(children):
            tx.add(f"/wide/{number:06}", {"n": number, "title": f"node {number}"})
    after = mk.get_head_revision()

    def token(name: str) -> str:
        shown = mk.get_nodes("/wide", depth=0, max_child_nodes=0, filter=json.dumps({"properties": [name]}))
        assert shown is not None
        return str(json.loads(shown)[name])

    row(f":hash of {children:,} nodes, first", seconds_of(lambda: token(":hash")))
    medians = in_turns(
        turns,
        unchanged=lambda: token(":hash"),
        commit=lambda: mk.commit("/wide/000001", f'^"n":{time.perf_counter_ns()}'),
        changed=lambda: token(":hash"),
        elsewhere=lambda: mk.commit("/client", f'^"m":{time.perf_counter_ns()}'),
        id=lambda: token(":id"),
    )
    row(":hash, again", medians["unchanged"])
    row(":hash, after a commit to one of the nodes", medians["changed"])
    row(":id, after a commit elsewhere", medians["id"])
    shown = ""

    def diff() -> None:
        nonlocal shown
        shown = mk.diff(before, after, None, 0)

    row(f"diff to depth 0 of {children:,} added nodes", seconds_of(diff), f"{len(shown):,} characters")


def logs(repository: Repository, revisions: int) -> None:
    """Print the rows of logs of single paths, after a number of revisions."""

    def commit(path: str) -> None:
        with repository.transaction() as tx:
            tx.set(path, "n", time.perf_counter_ns())

    commit("/client/5")
    for number in range(revisions):
        commit(f"/client/{number % 3}")
    for path, found in (("/never", 0), ("/client/5", 2)):
        entries: list[object] = []
        seconds = seconds_of(lambda path=path, entries=entries: entries.extend(repository.log(path)))  # type: ignore[misc]
        if len(entries) != found:
            raise click.ClickException(f"the log of {path} has {len(entries)} entries; expected {found}")
        row(f"log of {path} among {revisions:,} revisions", seconds, f"{len(entries)} entries")


def polls(url: str) -> None:
    """Print the rows of commits with background polls and without. Instances with either take turns."""
    connect: dict[str, Callable[[], Repository]] = {
        "background polling": lambda: hbasemk.connect(url),
        "poll_interval=0": lambda: hbasemk.connect(url, poll_interval=0),
    }
    used: dict[str, list[float]] = {name: [] for name in connect}
    for _ in range(5):
        for name, open_one in connect.items():
            with open_one() as repository:
                for count in (BATCH // 10, BATCH):  # the first ones fill the caches
                    begin = time.process_time()
                    for number in range(count):
                        with repository.transaction() as tx:
                            tx.set("/client", "polls", number)
                used[name].append((time.process_time() - begin) / BATCH)
    background, without = map(statistics.median, used.values())
    row("a transaction with background polling", background, "processor time")
    row("a transaction with poll_interval=0", without, f"processor time, {without / background:.2f} times")


def large_commits(repository: Repository, nodes: int) -> None:
    """Print the rows of one commit that adds many nodes, and of one that moves them."""

    def add() -> None:
        with repository.transaction() as tx:
            for folder in range(0, nodes, 1000):
                tx.add(f"/large/{folder}" if folder else "/large")
                for number in range(1, min(1000, nodes - folder)):
                    tx.add(f"/large/{folder}-{number}" if not folder else f"/large/{folder}/{number}", {"n": number})

    def move() -> None:
        with repository.transaction() as tx:
            tx.move("/large", "/moved")

    gc.collect()
    for name, call in (("adds", add), ("moves", move)):
        seconds = seconds_of(call)
        row(f"one commit that {name} {nodes:,} nodes", seconds, f"{seconds / nodes * 1e6:,.0f} µs for each node")
    found = sum(1 for _ in repository.head.walk("/moved"))
    if found != nodes:
        raise click.ClickException(f"/moved has {found} nodes; expected {nodes}")


@click.command()
@click.argument("url")
@click.option("--turns", type=click.IntRange(min=1), default=300, show_default=True, help="Calls of each kind.")
@click.option("--children", type=click.IntRange(min=2), default=10_000, show_default=True, help="Nodes of the tokens.")
@click.option(
    "--revisions", type=click.IntRange(min=1), default=20_000, show_default=True, help="Revisions of the logs."
)
@click.option("--nodes", type=click.IntRange(min=2), default=200_000, show_default=True, help="Nodes of one commit.")
def main(url: str, turns: int, children: int, revisions: int, nodes: int) -> None:
    """Measure the calls of MicroKernel clients, and work on large trees, in the new repository at URL."""
    if url == "memory://":
        raise click.ClickException("a repository at memory:// is private to one connection; name it: memory://bench")
    try:
        # This instance keeps a repository in memory until all rows are measured, and does nothing else.
        with hbasemk.connect(url, poll_interval=0) as kept:
            if kept.head.children("/"):
                raise click.ClickException(f"the repository at {url} has nodes; expected a new one: give another URL")
            click.echo("| work | time | |\n| --- | ---: | --- |")
            with hbasemk.connect(url) as repository:
                small_calls(repository, turns)
                many_branches(repository)
                tokens(repository, children, turns // 10 or 1)
                logs(repository, revisions)
                large_commits(repository, nodes)
            polls(url)
    except hbasemk.HbasemkError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
