"""What all plots share: matplotlib's file-only backend, the colours of the systems, and how a figure is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

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


def label_rows(axis: Any, places: Sequence[float], names: Sequence[str], words: str) -> None:
    """Write the names of horizontal rows, the first one at the top, and what the other axis shows; add the legend."""
    axis.set_yticks(places, names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(words, fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8)
