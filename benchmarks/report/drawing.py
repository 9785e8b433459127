"""What plots share: matplotlib's file-only backend, colours, rows of results, and lines over the number of processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.report.figures import Line
from benchmarks.results import Result
from benchmarks.scenarios.multiprocess import KINDS

COLOURS: Final = {"hbasemk": "#1f6fb2", "baseline": "#9aa5ad"}
PEERS: Final = ("#d98032", "#7a9e48", "#8a63a6")


def prepare() -> None:
    """Let matplotlib draw to files only; raise ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    # The same results give the same bytes.
    matplotlib.rcParams["svg.hashsalt"] = "hbasemk"


def save(figure: Any, file: Path) -> None:
    """Write a figure in the form that the file's name says."""
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else {})


def new_figure(rows: int, columns: int, height: float) -> tuple[Any, Any]:
    """Return a figure and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def colours_of(columns: dict[str, str]) -> dict[str, str]:
    """Return the colour of each system."""
    peers = iter(PEERS)
    return {key: COLOURS.get(key) or next(peers, "#444444") for key in columns}


def draw_rows(
    axis: Any,
    lines: Sequence[Line],
    columns: dict[str, str],
    shows: Callable[[Result], bool],
    draw: Callable[[float, Result, str, str | None], object],
    words: str,
) -> None:
    """Draw a horizontal row for each shown result, in groups with the names of their operations, the first one at the top.

    ``draw`` gets the place of the row, the result, its colour, and for the first row of each system the name for the legend.
    ``words`` say what the other axis shows.
    """
    colours = colours_of(columns)
    places: list[float] = []
    labelled: set[str] = set()
    position = 0.0
    for line in lines:
        first = position
        for key, name in columns.items():
            result = line.found.get(key)
            if result is not None and shows(result):
                draw(position, result, colours[key], None if key in labelled else name)
                labelled.add(key)
                position += 1
        places.append((first + position - 1) / 2)
        position += 0.7
    axis.set_yticks(places, [line.operation for line in lines], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(words, fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8)


def draw_over_processes(
    lines: Sequence[Line],
    columns: dict[str, str],
    ending: str,
    shows: Callable[[Result], bool],
    draw: Callable[[Any, Sequence[int], Sequence[Result], str, str], object],
    words: str,
) -> Any:
    """Return a figure that shows results over the number of processes, with one plot for each kind of work.

    Return None if it shows no result.
    ``ending`` is the end of their operations' names. ``draw`` gets the axis, the numbers of processes, the results, and the
    colour and name of a system. ``words`` say what the results are.
    """
    figure, axes = new_figure(1, len(KINDS), 3.6)
    colours = colours_of(columns)
    drawn = False
    for kind, axis in zip(KINDS.values(), axes[0], strict=True):
        name_of_operation = re.compile(rf"(\d+) process(?:es)? {re.escape(kind + ending)}")
        for key, name in columns.items():
            points = [
                (int(found[1]), result)
                for line in lines
                if (found := name_of_operation.fullmatch(line.operation))
                and (result := line.found.get(key)) is not None
                and shows(result)
            ]
            if points:
                drawn = True
                counts, results = zip(*points, strict=True)
                draw(axis, counts, results, colours[key], name)
        axis.set_title(kind, fontsize=9)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlabel("processes", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
    if not drawn:
        return None
    axes[0][0].set_ylabel(words, fontsize=8)
    axes[0][0].legend(fontsize=8)
    return figure
