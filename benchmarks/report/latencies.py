"""Plots of latencies: the middle half, the median and the 99th percentile of single operations and of concurrent commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.report import figures
from benchmarks.report.drawing import draw_over_processes, draw_rows, new_figure
from benchmarks.results import Result, Run
from benchmarks.scenarios.multiprocess import TIME


def latencies(run: Run, columns: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the figure of each plot; none of what the run did not measure, or too rarely."""
    lines = figures.lines(run)
    single = [
        line
        for line in lines
        if not line.operation.endswith(TIME) and "hbasemk" in line.found and _known(line.found["hbasemk"])
    ]
    if single:
        yield "latencies", _single(single, columns)
    words = "seconds for a commit (logarithmic)\nmedian, dashed: 99th percentile"
    concurrent = draw_over_processes(lines, columns, TIME, _known, _curves, words)
    if concurrent is not None:
        yield "latencies-of-processes", concurrent


def _known(result: Result) -> bool:
    """Return whether a result has the 99th percentile of a duration."""
    return result.unit == "s" and result.p99 is not None


def _single(lines: Sequence[figures.Line], columns: dict[str, str]) -> Any:
    """Draw a row for each operation and system."""
    rows = sum(sum(map(_known, line.found.values())) + 1 for line in lines)
    figure, axes = new_figure(1, 1, 1.2 + 0.2 * rows)
    (axis,) = axes[0]

    def draw(place: float, result: Result, colour: str, name: str | None) -> None:
        axis.plot(
            [result.p25, result.p75], [place, place], linewidth=6, color=colour, solid_capstyle="butt", label=name
        )
        axis.plot([result.p25, result.p99], [place, place], linewidth=1, color=colour, marker="|")
        axis.plot(result.median, place, "o", markersize=4, color="#222222")

    axis.set_xscale("log")
    words = "seconds (logarithmic): middle half, median, and a line to the 99th percentile"
    draw_rows(axis, lines, columns, _known, draw, words)
    return figure


def _curves(axis: Any, counts: Sequence[int], results: Sequence[Result], colour: str, name: str) -> None:
    """Draw the time of a commit: a solid line for the median, a dashed one for the 99th percentile."""
    axis.set_yscale("log")
    axis.plot(counts, [result.median for result in results], marker="o", color=colour, label=name)
    axis.plot(counts, [result.p99 for result in results], marker="|", linestyle="--", color=colour)
