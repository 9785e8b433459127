"""Plots with matplotlib's file-only backend: bars for each scenario, lines over the number of processes, latencies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from benchmarks.report import figures
from benchmarks.report.drawing import colours_of, label_rows, new_figure, prepare, save
from benchmarks.report.latencies import latencies
from benchmarks.results import Run
from benchmarks.scenarios.multiprocess import KINDS

UNITS: Final = {"s": "seconds (logarithmic)", "1/s": "per second", "B": "bytes (logarithmic)"}


def draw(runs: list[Run], folder: Path, form: str = "svg") -> list[Path]:
    """Draw each scenario of each run into its own file. Returns the files; raises ImportError without matplotlib."""
    prepare()
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for run in runs:
        columns = figures.columns(run)
        for scenario in dict.fromkeys(result.scenario for result in run.results):
            chosen = [line for line in figures.lines(run) if line.scenario == scenario]
            file = folder / f"{run.store}-{scenario}.{form}"
            figure = _processes(chosen, columns) if scenario == "processes" else _bars(chosen, columns)
            if figure is not None:
                figure.suptitle(f"{run.store}: {scenario}", x=0.02, ha="left", fontsize=11)
                save(figure, file)
                files.append(file)
        for name, figure in latencies(run, columns):
            file = folder / f"{run.store}-{name}.{form}"
            figure.suptitle(f"{run.store}: {name.replace('-', ' ')}", x=0.02, ha="left", fontsize=11)
            save(figure, file)
            files.append(file)
    return files


def _bars(lines: list[figures.Line], columns: dict[str, str]) -> Any:
    """Draw horizontal bars with quartiles, one group for each operation. Returns None without measurements."""
    units = list(dict.fromkeys(one.unit for line in lines for one in line.found.values() if one.median is not None))
    if not units:
        return None
    colours = colours_of(columns)
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
        position = 0.0
        ticks: list[float] = []
        labelled: set[str] = set()
        for line in chosen:
            first = position
            for key in columns:
                result = line.found.get(key)
                if result is None or not result.median or result.unit != unit:
                    continue
                low, high = (result.median if one is None else one for one in (result.p25, result.p75))
                axis.barh(
                    position,
                    result.median,
                    xerr=[[result.median - low], [high - result.median]],
                    height=0.9,
                    color=colours[key],
                    ecolor="#333333",
                    label=None if key in labelled else columns[key],
                )
                labelled.add(key)
                position += 1
            ticks.append((first + position - 1) / 2)
            position += 0.7
        if unit in {"s", "B"}:
            axis.set_xscale("log")
        label_rows(axis, ticks, [line.operation for line in chosen], UNITS.get(unit, unit))
    return figure


def _processes(lines: list[figures.Line], columns: dict[str, str]) -> Any:
    """Draw commits per second over the number of processes, one plot for each kind of work; None without measurements."""
    figure, axes = new_figure(1, len(KINDS), 3.6)
    colours = colours_of(columns)
    drawn = False
    for words, axis in zip(KINDS.values(), axes[0], strict=True):
        for key, name in columns.items():
            points = []
            for line in lines:
                found = re.fullmatch(rf"(\d+) process(?:es)? {re.escape(words)}", line.operation)
                result = line.found.get(key)
                if found and result is not None and result.median is not None:
                    points.append((int(found[1]), result.median))
            if points:
                drawn = True
                axis.plot(*zip(*points, strict=True), marker="o", color=colours[key], label=name)
        axis.set_title(words, fontsize=9)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlabel("processes", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
    if not drawn:
        return None
    axes[0][0].set_ylabel("commits per second, all together", fontsize=8)
    axes[0][0].legend(fontsize=8)
    return figure
