"""Write, read and collect for long: ``python -m benchmarks.retention URL --seconds 1800 --plot FILE.svg``."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple, TypeAlias

import click

import hbasemk
from benchmarks import whole_trees
from benchmarks.report.levels import Points, draw_levels
from benchmarks.runner import EXTRA
from benchmarks.space import space_in_use
from benchmarks.workers import Gate, WorkerError, Workers
from hbasemk import Snapshot, Transaction
from hbasemk.kernel.collection.collector import Collector
from hbasemk.repository import Repository, instance_of

RETENTION_S: Final = 60
"""The least retention."""
TOGETHER: Final = 5
"""The nodes that one commit changes to the same value, and that one read compares."""
CHURN: Final = 10
"""After so many commits of a process, one of them also adds a node and removes an older one."""
KEPT: Final = 20
"""So many added nodes of each process exist at the same time."""
HELD_S: Final = 20.0
"""For so long a reader holds a snapshot, and then reads it once more."""
_POSITIVE: Final = click.FloatRange(min=0, min_open=True)
NAME: Final = "turn"

Latency: TypeAlias = "tuple[float, float]"
"""When a commit or read began, in seconds since the begin, and how long it took."""


class Load(NamedTuple):
    """What all processes do: for so many seconds, commits or reads of each process per second, and the nodes of the tree."""

    seconds: float
    rate: float
    nodes: int

    def groups(self) -> list[list[str]]:
        """Return the nodes in groups that always change together."""
        nodes = whole_trees.nodes_of(self.nodes)
        return [nodes[at : at + TOGETHER] for at in range(0, len(nodes), TOGETHER)]

    def turns(self, per_second: float) -> Iterator[float]:
        """Yield the seconds since now at this rate, or more slowly, until the load ends."""
        began = due = time.monotonic()
        while (now := time.monotonic()) < began + self.seconds:
            if now < due:
                time.sleep(due - now)
                now = time.monotonic()
            yield now - began
            due = max(due + 1 / per_second, now)


class WrongReadError(Exception):
    """A reader found what no commit has written, or not what it had read before."""


def write(gate: Gate, url: str, load: Load, number: int, writers: int) -> list[Latency]:
    """Commit in a worker process; each writer has its own groups of nodes."""
    groups = load.groups()[number::writers]
    found: list[Latency] = []
    with hbasemk.connect(url, create=False) as repository:
        repository.run(lambda tx: tx.add(f"/{number}"))
        gate()
        for turn, at in enumerate(load.turns(load.rate)):

            def change(tx: Transaction, turn: int = turn) -> None:
                for path in groups[turn % len(groups)]:
                    tx.set(path, NAME, turn)
                added, churns = divmod(turn, CHURN)
                if not churns:
                    tx.add(f"/{number}/{added}", {"title": f"added in turn {turn}"})
                    if added >= KEPT:
                        tx.remove(f"/{number}/{added - KEPT}")

            began = time.perf_counter()
            repository.run(change)
            found.append((at, time.perf_counter() - began))
    return found


def group_in(snapshot: Snapshot, group: Sequence[str]) -> object:
    """Return the value that all nodes of a group have in a snapshot; raise WrongReadError if they differ."""
    values = [None if node is None else (node.get(NAME),) for node in snapshot.nodes(group).values()]
    if None in values or len(set(values)) > 1:
        raise WrongReadError(f"the nodes {', '.join(group)} have {values} at {snapshot.revision}; expected one value")
    return values[0]


def read(gate: Gate, url: str, load: Load, seed: int) -> list[Latency]:
    """Read groups in a worker process, at head and once more from a snapshot that it holds."""
    chance = random.Random(seed)
    groups = load.groups()
    found: list[Latency] = []
    with hbasemk.connect(url, create=False, cache_bytes=0) as repository:
        gate()
        held, group, since = repository.head, groups[0], 0.0
        value = group_in(held, group)
        for at in load.turns(load.rate):
            began = time.perf_counter()
            head, chosen = repository.head, chance.choice(groups)
            seen = group_in(head, chosen)
            found.append((at, time.perf_counter() - began))
            if at - since >= HELD_S:
                again = group_in(held, group)
                if again != value:
                    raise WrongReadError(
                        f"{group[0]} had {value} at {held.revision}, and {at - since:.0f} s later {again}"
                    )
                held, group, value, since = head, chosen, seen, at
    return found


def collect(gate: Gate, url: str, load: Load, every: float) -> int:
    """Collect in a worker process, as ``hbasemk collect`` does, and return the number of deleted cells."""
    deleted = 0
    with hbasemk.connect(url, create=False, collect=False) as repository:
        collector = Collector(instance_of(repository))
        gate()
        for at in load.turns(1 / every):
            if at + collector.grace < load.seconds:
                deleted += collector.run(1000 * RETENTION_S).cells.total()
    return deleted


def sample(gate: Gate, url: str, load: Load, every: float) -> list[tuple[float, float]]:
    """Measure the size in a worker process now and then."""
    with hbasemk.connect(url, create=False, collect=False) as repository:
        gate()
        return [(at, float(space_in_use(instance_of(repository)))) for at in load.turns(1 / every)]


def percentiles(latencies: Sequence[Latency]) -> tuple[float, float]:
    """Return the 50th and 99th percentile of latencies."""
    seconds = [one for _, one in latencies]
    return median(seconds), quantiles([*seconds, seconds[-1]], n=100, method="inclusive")[98]


def over_time(latencies: Sequence[Latency], every: float) -> tuple[Points, Points]:
    """Return the 50th and 99th percentiles of each period."""
    periods: dict[int, list[Latency]] = {}
    for latency in latencies:
        periods.setdefault(int(latency[0] // every), []).append(latency)
    found = [((number + 0.5) * every, percentiles(periods[number])) for number in sorted(periods)]
    return [(at, half) for at, (half, _) in found], [(at, most) for at, (_, most) in found]


def between(points: Sequence[tuple[float, float]], first: float, last: float) -> list[tuple[float, float]]:
    """Return the points of a part of the run."""
    return [point for point in points if first <= point[0] < last]


def tabulate(load: Load, sizes: Points, commits: Sequence[Latency], reads: Sequence[Latency], every: float) -> None:
    """Print a row for the begin, each third, and the end."""
    click.echo("| part | seconds | size, median | size, largest | commits | p50 | p99 | reads | p50 | p99 |")
    click.echo("| --- | ---: " + "| ---: " * 8 + "|")
    total, edge = load.seconds, min(2 * every, load.seconds / 3)
    parts = {
        "begin": (0.0, edge),
        "first third": (0.0, total / 3),
        "second third": (total / 3, total * 2 / 3),
        "last third": (total * 2 / 3, total),
        "end": (total - edge, total),
    }
    for name, (first, last) in parts.items():
        cells = [name, f"{first:.0f} to {last:.0f}"]
        measured = [size for _, size in between(sizes, first, last)]
        cells += [f"{size / 1e6:.2f} MB" for size in (median(measured), max(measured))] if measured else ["-", "-"]
        for latencies in (between(commits, first, last), between(reads, first, last)):
            cells.append(f"{len(latencies):,}")
            cells += [f"{1000 * one:.2f} ms" for one in percentiles(latencies)] if latencies else ["-", "-"]
        click.echo(f"| {' | '.join(cells)} |")


def run(
    url: str, load: Load, writers: int, readers: int, every: float, collect_every: float, plot: Path | None
) -> None:
    """Run all processes, print the table, check the repository, and draw the plot."""
    if plot is not None:
        check_plot(plot)
    with hbasemk.connect(url) as repository:
        repository.retention = RETENTION_S
        whole_trees.grow(repository, load.nodes)
    workers = Workers()
    try:
        deleted, sizes, *latencies = workers.run(
            [
                (collect, (url, load, collect_every)),
                (sample, (url, load, every)),
                *((write, (url, load, number, writers)) for number in range(writers)),
                *((read, (url, load, seed)) for seed in range(readers)),
            ]
        )
    finally:
        workers.close()
    commits = sorted(one for latency in latencies[:writers] for one in latency)
    reads = sorted(one for latency in latencies[writers:] for one in latency)
    tabulate(load, sizes, commits, reads, every)
    click.echo(
        f"\n{deleted:,} cells were deleted by runs of the collector, and others in the background of the writers."
    )
    with hbasemk.connect(url, create=False, collect=False) as repository:
        check(repository, [f"/{number}" for number in range(writers)])
    if plot is not None:
        lines = {}
        for name, found in (("commit", commits), ("read", reads)):
            lines[f"{name}, p50"], lines[f"{name}, p99"] = over_time(found, every)
        draw_levels(f"{writers} writers, {readers} readers, retention {RETENTION_S} s", sizes, lines, plot)


def check_plot(file: Path) -> None:
    """Raise an error if a plot cannot be drawn to a file: the run takes long."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError:
        raise click.UsageError(f"--plot needs matplotlib, which is not installed; run {EXTRA}") from None
    if file.suffix[1:] not in FigureCanvasAgg.get_supported_filetypes():
        raise click.UsageError(f"--plot must name a file with an ending such as .svg or .png, got {str(file)!r}")
    try:
        file.open("ab").close()
    except OSError as error:
        raise click.FileError(str(file), error.strerror or str(error)) from error


def check(repository: Repository, tops: Sequence[str]) -> None:
    """Check the repository, and that no removed node is there."""
    whole_trees.check(instance_of(repository))
    for top in tops:
        if len(names := repository.head.children(top)) > KEPT + 1:
            raise click.ClickException(f"{top} has {len(names)} children; expected at most {KEPT + 1}")
    click.echo("The integrity check found nothing.")


@click.command()
@click.argument("url")
@click.option("--seconds", type=click.FloatRange(min=1), default=1800, show_default=True, help="How long it runs.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw size and latencies to this file.")
@click.option("--writers", type=click.IntRange(min=1), default=4, show_default=True, help="Processes that commit.")
@click.option("--readers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that read.")
@click.option(
    "--rate",
    type=_POSITIVE,
    default=20,
    show_default=True,
    help="Commits or reads per second of each process.",
)
@click.option(
    "--every",
    type=_POSITIVE,
    default=10,
    show_default=True,
    help="Seconds between two measurements of the size.",
)
@click.option(
    "--collect-every",
    type=_POSITIVE,
    default=30,
    show_default=True,
    help="Seconds between runs of the collector.",
)
@click.option("--nodes", type=click.IntRange(min=50), default=2_000, show_default=True, help="Nodes of the tree.")
def main(
    url: str,
    seconds: float,
    plot: Path | None,
    writers: int,
    readers: int,
    rate: float,
    every: float,
    collect_every: float,
    nodes: int,
) -> None:
    """Commit and read in several processes for long, with a retention of 60 s, and show that size and latencies stay level.

    One more process collects, as a timer with `hbasemk collect` would; the writers also collect in the background. Readers
    check what they read, also from snapshots that they have held for 20 s. At the end the integrity check runs. The repository
    at URL must be new.
    """
    if writers * TOGETHER > nodes:
        raise click.UsageError(
            f"--writers needs {TOGETHER} nodes for each process, got {writers} writers and {nodes} nodes; "
            "use more --nodes or fewer --writers"
        )
    try:
        run(url, Load(seconds, rate, nodes), writers, readers, every, collect_every, plot)
    except (hbasemk.HbasemkError, WorkerError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
