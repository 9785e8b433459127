"""Tables in the terminal."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.report import figures, targets
from benchmarks.results import Run

WIDE: Final = 140
"""Characters from which on the spread has room, too."""


def show(runs: list[Run], console: Console) -> None:
    """Print all figures of some runs, what is to be said besides, and the aims."""
    for run in runs:
        for scenario in dict.fromkeys(result.scenario for result in run.results):
            columns = figures.columns(run, scenario)
            table = Table(title=f"{run.store}: {scenario}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
            table.add_column("operation", min_width=24)
            for name in figures.heads(columns):
                table.add_column(name, justify="right")
            for line in figures.lines(run):
                if line.scenario == scenario:
                    table.add_row(line.operation, *figures.cells(line, columns, brief=console.width < WIDE))
            console.print(table)
        console.print(figures.about(run), style="dim", highlight=False, markup=False)
        for note in figures.notes(run):
            console.print(f"- {note}", highlight=False, markup=False)
    console.print(_aims(runs))


def _aims(runs: list[Run]) -> Table:
    table = Table(title="aims", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("store", "aim", "reached", ""):
        table.add_column(name)
    for one in targets.evaluate(runs):
        table.add_row(one.store, one.aim, one.reached, verdict(one))
    return table


def verdict(one: targets.Reached) -> str:
    """Yes, no, or nothing where nothing was measured."""
    return "" if one.enough is None else ("yes" if one.enough else "no")
