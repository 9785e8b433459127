"""Plots of latencies: the middle half, the median and the 99th percentile of single operations and of concurrent commits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from benchmarks.report import figures
from benchmarks.report.drawing import colours_of, label_rows, new_figure
from benchmarks.results import Result, Run
from benchmarks.scenarios.multiprocess import KINDS, TIME


def latencies(run: Run, columns: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the figure of each plot; none of what the run did not measure, or too rarely."""
    lines = figures.lines(run)
    single = [line for line in lines if not line.operation.endswith(TIME) and _known(line.found.get("hbasemk"))]
    if single:
        yield "latencies", _single(single, columns)
    if any(_concurrent(line, words) for words in KINDS.values() for line in lines):
        yield "latencies-of-processes", _processes(lines, columns)


def _known(result: Result | None) -> bool:
    """Return whether a result has the 99th percentile of a duration."""
    return result is not None and result.unit == "s" and result.p99 is not None


def _concurrent(line: figures.Line, words: str) -> int | None:
    """Return the number of processes of which a line has the time of commits of one kind; None for other lines."""
    found = re.fullmatch(rf"(\d+) process(?:es)? {re.escape(words)}{re.escape(TIME)}", line.operation)
    return int(found[1]) if found and any(map(_known, line.found.values())) else None


def _single(lines: list[figures.Line], columns: dict[str, str]) -> Any:
    """Draw a row for each operation and system: a bar for the middle half, a dot at the median, a line to the 99th percentile."""
    rows = sum(sum(map(_known, line.found.values())) + 1 for line in lines)
    figure, axes = new_figure(1, 1, 1.2 + 0.2 * rows)
    (axis,) = axes[0]
    colours = colours_of(columns)
    position = 0.0
    ticks: list[float] = []
    labelled: set[str] = set()
    for line in lines:
        first = position
        for key in columns:
            result = line.found.get(key)
            if result is None or not _known(result):
                continue
            axis.plot([result.p25, result.p75], [position] * 2, linewidth=6, color=colours[key], solid_capstyle="butt")
            axis.plot([result.p25, result.p99], [position] * 2, linewidth=1, color=colours[key], marker="|")
            name = None if key in labelled else columns[key]
            axis.plot(result.median, position, "o", markersize=4, color="#222222" if key == "hbasemk" else "#666666")
            axis.plot([], [], linewidth=6, color=colours[key], label=name)
            labelled.add(key)
            position += 1
        ticks.append((first + position - 1) / 2)
        position += 0.7
    axis.set_xscale("log")
    words = "seconds (logarithmic): middle half, median, and a line to the 99th percentile"
    label_rows(axis, ticks, [line.operation for line in lines], words)
    return figure


def _processes(lines: list[figures.Line], columns: dict[str, str]) -> Any:
    """Draw the time of a commit over the number of processes: solid lines for the median, dashed for the 99th percentile."""
    figure, axes = new_figure(1, len(KINDS), 3.6)
    colours = colours_of(columns)
    for words, axis in zip(KINDS.values(), axes[0], strict=True):
        for key, name in columns.items():
            points = []
            for line in lines:
                count, result = _concurrent(line, words), line.found.get(key)
                if count is not None and result is not None and _known(result):
                    points.append((count, result.median, result.p99))
            if points:
                counts, medians, highest = zip(*points, strict=True)
                axis.plot(counts, medians, marker="o", color=colours[key], label=name)
                axis.plot(counts, highest, marker="|", linestyle="--", color=colours[key])
        axis.set_title(words, fontsize=9)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_yscale("log")
        axis.set_xlabel("processes", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("seconds for a commit (logarithmic)\nmedian, dashed: 99th percentile", fontsize=8)
    axes[0][0].legend(fontsize=8)
    return figure
