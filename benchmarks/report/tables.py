"""Tables in the terminal."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.report import figures, targets
from benchmarks.results import Run

WIDE: Final = 140
"""The least width in characters at which tables show the quartiles."""


def show(runs: list[Run], console: Console) -> None:
    """Print the figures of runs, their notes, and the targets."""
    for run in runs:
        for scenario in dict.fromkeys(result.scenario for result in run.results):
            columns = figures.columns(run, scenario)
            table = Table(title=f"{run.store}: {scenario}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
            table.add_column("operation", min_width=24)
            for name in figures.headers(columns):
                table.add_column(name, justify="right")
            for line in figures.lines(run):
                if line.scenario == scenario:
                    table.add_row(line.operation, *figures.cells(line, columns, brief=console.width < WIDE))
            console.print(table)
        console.print(figures.describe(run), style="dim", highlight=False, markup=False)
        for note in figures.notes(run):
            console.print(f"- {note}", highlight=False, markup=False)
    console.print(_targets(runs))


def _targets(runs: list[Run]) -> Table:
    table = Table(title="targets", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("store", "target", "measured", "met"):
        table.add_column(name)
    for one in targets.evaluate(runs):
        table.add_row(one.store, one.target, one.measured, verdict(one))
    return table


def verdict(one: targets.TargetResult) -> str:
    """Return ``yes`` or ``no``, or an empty text if there is no measurement."""
    return "" if one.met is None else ("yes" if one.met else "no")
