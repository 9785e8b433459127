"""Plots with matplotlib's file-only backend: bars for each scenario, lines over the number of processes, latencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.report import figures
from benchmarks.report.drawing import draw_over_processes, draw_rows, new_figure, prepare, save
from benchmarks.report.latencies import latencies
from benchmarks.results import Result, Run

UNITS: Final = {"s": "seconds (logarithmic)", "1/s": "per second", "B": "bytes (logarithmic)"}


def draw(runs: list[Run], folder: Path, form: str = "svg") -> list[Path]:
    """Draw each scenario of each run into its own file. Returns the files; raises ImportError without matplotlib."""
    prepare()
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for run in runs:
        for name, figure in _figures(run):
            file = folder / f"{run.store}-{name}.{form}"
            figure.suptitle(f"{run.store}: {name.replace('-', ' ')}", x=0.02, ha="left", fontsize=11)
            save(figure, file)
            files.append(file)
    return files


def _figures(run: Run) -> Iterator[tuple[str, Any]]:
    """Yield the name and the figure of each plot of a run."""
    columns = figures.columns(run)
    for scenario in dict.fromkeys(result.scenario for result in run.results):
        chosen = [line for line in figures.lines(run) if line.scenario == scenario]
        figure = _processes(chosen, columns) if scenario == "processes" else _bars(chosen, columns)
        if figure is not None:
            yield scenario, figure
    yield from latencies(run, columns)


def _bars(lines: list[figures.Line], columns: dict[str, str]) -> Any:
    """Draw horizontal bars with quartiles, one group for each operation. Returns None without measurements."""
    units = list(dict.fromkeys(one.unit for line in lines for one in line.found.values() if one.median is not None))
    if not units:
        return None
    shown = {
        unit: [line for line in lines if any(one.unit == unit and one.median for one in line.found.values())]
        for unit in units
    }
    shown = {unit: chosen for unit, chosen in shown.items() if chosen}
    bars = sum(len(line.found) + 1 for chosen in shown.values() for line in chosen)
    if not bars:
        return None
    figure, axes = new_figure(len(shown), 1, 1.2 + 0.22 * bars + 0.6 * len(shown))
    for (unit, chosen), axis in zip(shown.items(), axes[:, 0], strict=True):

        def draw(place: float, result: Result, colour: str, name: str | None, axis: Any = axis) -> None:
            assert result.median is not None
            low, high = (result.median if one is None else one for one in (result.p25, result.p75))
            axis.barh(
                place,
                result.median,
                xerr=[[result.median - low], [high - result.median]],
                height=0.9,
                color=colour,
                ecolor="#333333",
                label=name,
            )

        def shows(result: Result, unit: str = unit) -> bool:
            return bool(result.median) and result.unit == unit

        draw_rows(axis, chosen, columns, shows, draw, UNITS.get(unit, unit))
        if unit in {"s", "B"}:
            axis.set_xscale("log")
    return figure


def _processes(lines: list[figures.Line], columns: dict[str, str]) -> Any:
    """Draw commits per second over the number of processes, one plot for each kind of work; None without measurements."""

    def draw(axis: Any, counts: Sequence[int], results: Sequence[Result], colour: str, name: str) -> None:
        axis.plot(counts, [result.median for result in results], marker="o", color=colour, label=name)

    words = "commits per second, all together"
    figure = draw_over_processes(lines, columns, "", lambda result: result.median is not None, draw, words)
    if figure is not None:
        for axis in figure.axes:
            axis.set_ylim(bottom=0)
    return figure
