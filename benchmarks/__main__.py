"""``python -m benchmarks URL``: measure a store, print tables, and append the results to a file of JSON lines."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import floor, operations, processes


@click.command()
@click.argument("url")
@click.option("--turns", default=300, show_default=True, help="Repetitions of a single operation.")
@click.option("--nodes", default=10_000, show_default=True, help="Nodes in the folder that is read.")
@click.option("--processes", "counts", default="1,2,4,8", show_default=True, help="Numbers of processes to compare.")
@click.option("--commits", default=200, show_default=True, help="Commits of each process.")
@click.option(
    "--json", "file", type=click.Path(path_type=Path), help="Append the results here, one JSON object a line."
)
def main(url: str, turns: int, nodes: int, counts: str, commits: int, file: Path | None) -> None:
    """Measure the store at URL, e.g. sqlite:////tmp/bench.db or "hbase://127.0.0.1:9091/?prefix=bench_".

    Every part takes a repository of its own, beside or below that URL. Times on a shared machine mean little; ratios within
    one run mean something.
    """
    environment = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "store": url.partition(":")[0],
    }
    run = uuid.uuid4().hex[:6]
    results: list[dict[str, Any]] = []

    def take(title: str, rows: list[dict[str, Any]]) -> None:
        table = Table(title=title)
        for name in rows[0]:
            table.add_column(name.replace("_", " "))
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        Console().print(table)
        results.extend({**environment, "part": title, **row} for row in rows)

    take("operations", operations.measure(_own(url, f"{run}o"), turns, nodes))
    if url.startswith("hbase:"):
        take("a commit and its four raw calls", [floor.measure(_own(url, f"{run}f"), turns)])
    rows = []
    for shared in (False, True):
        for count in map(int, counts.split(",")):
            rows.append(processes.measure(_own(url, f"{run}p{count}{shared}"), count, commits, shared))  # noqa: PERF401
    take("processes", rows)
    if file is not None:
        with file.open("a", encoding="utf-8") as out:
            out.writelines(json.dumps(result) + "\n" for result in results)


def _own(url: str, name: str) -> str:
    """The URL of a repository of its own."""
    if url.startswith("sqlite:"):
        return f"{url}-{name}"
    return f"{url}{name}_" if "prefix=" in url else f"{url.rstrip('/')}/?prefix={name}_"


main()
