"""Plots of latencies have what the run measured often enough, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.report.latencies import latencies
from benchmarks.report.plots import draw
from benchmarks.results import Result, Run, spread

pytest.importorskip("matplotlib")

COLUMNS = {"hbasemk": "hbasemk", "zodb": "ZODB"}


def result(operation: str, system: str, samples: int, seconds: float = 0.001, unit: str = "s") -> Result:
    role = "hbasemk" if system == "hbasemk" else "peer"
    found = spread([seconds * (1 + number / samples) for number in range(samples)])
    return Result("sqlite", "any", operation, system, COLUMNS[system], role, unit, **found)


def drawn(*results: Result) -> dict[str, Any]:
    return dict(latencies(Run("r", "sqlite", {}, list(results)), COLUMNS))


def test_single_operations_have_a_row_if_hbasemk_has_the_percentile() -> None:
    figures = drawn(
        result("often", "hbasemk", 100),
        result("often", "zodb", 99),
        result("rarely", "hbasemk", 99),
        result("only the peer", "zodb", 500),
        result("bytes", "hbasemk", 500, unit="B"),
    )
    assert list(figures) == ["latencies"]
    (axis,) = figures["latencies"].axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["often"]
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["hbasemk"]
    # The line ends at the 99th percentile.
    assert max(float(max(line.get_xdata(), default=0)) for line in axis.lines) == pytest.approx(0.00198, rel=0.01)


def test_the_time_of_concurrent_commits_is_drawn_over_the_number_of_processes() -> None:
    figures = drawn(
        *(
            result(f"{count} on disjoint nodes: time of a commit", system, 200, seconds)
            for system in COLUMNS
            for count, seconds in (("1 process", 0.001), ("2 processes", 0.003))
        ),
        result("2 processes on disjoint nodes", "hbasemk", 200, 500.0, "1/s"),
    )
    assert list(figures) == ["latencies-of-processes"]
    first, *others = figures["latencies-of-processes"].axes
    assert [list(line.get_xdata()) for line in first.lines] == [[1, 2]] * 4
    medians, highest = (list(line.get_ydata()) for line in first.lines[:2])
    assert medians == pytest.approx([0.0015, 0.0045], rel=0.01)
    assert highest == pytest.approx([0.00199, 0.00597], rel=0.01)
    assert not any(axis.lines for axis in others)


def test_a_run_with_few_samples_has_no_plot_of_latencies(tmp_path: Path) -> None:
    run = Run("r", "sqlite", {}, [result("rarely", "hbasemk", 99)])
    assert [file.name for file in draw([run], tmp_path)] == ["sqlite-any.svg"]
    run.results.append(result("often", "hbasemk", 100))
    assert [file.name for file in draw([run], tmp_path)] == ["sqlite-any.svg", "sqlite-latencies.svg"]
