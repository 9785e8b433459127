"""A plot of the size and the latencies of a repository over the time of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.report.drawing import COLOURS, PEERS, new_figure, prepare, save

Points: TypeAlias = Sequence[tuple[float, float]]
"""Seconds since the begin, and a size in bytes or a latency in seconds."""


def draw_levels(title: str, sizes: Points, latencies: Mapping[str, Points], file: Path) -> None:
    """Draw sizes above, and latencies by name below them; raise ImportError without matplotlib."""
    prepare()
    figure, axes = new_figure(2, 1, 5.6)
    above, below = axes[:, 0]
    above.plot(*zip(*[(at / 60, size / 1e6) for at, size in sizes], strict=True), color=COLOURS["hbasemk"])
    above.set_ylabel("size, MB", fontsize=8)
    above.set_ylim(bottom=0)
    for (name, points), colour in zip(latencies.items(), (COLOURS["hbasemk"], "#7fb0d9", *PEERS), strict=False):
        minutes = [(at / 60, 1000 * seconds) for at, seconds in points]
        below.plot(*zip(*minutes, strict=True), color=colour, label=name, linewidth=1)
    below.set_ylabel("latency, ms (logarithmic)", fontsize=8)
    below.set_yscale("log")
    below.legend(fontsize=8, ncols=len(latencies), loc="lower left", bbox_to_anchor=(0, 1))
    below.set_xlabel("minutes", fontsize=8)
    for axis in (above, below):
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
    figure.suptitle(title, x=0.02, ha="left", fontsize=11)
    save(figure, file)
