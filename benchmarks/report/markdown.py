"""The same tables in Markdown, for a file that also holds text of people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.report import figures, targets
from benchmarks.report.tables import verdict
from benchmarks.results import Run

BEGIN: Final = "<!-- figures: written by `python -m benchmarks --markdown`, do not edit -->"
END: Final = "<!-- end of figures -->"


def write(runs: list[Run], file: Path) -> None:
    """Put the figures between the two marks in a file; if it has none, or is not there, at its end."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    figure_text = "\n".join([BEGIN, "", *render(runs), END])
    before, begin, rest = text.partition(BEGIN)
    if begin and END in rest:
        after = rest.partition(END)[2]
    else:
        before, after = f"{text.rstrip()}\n\n" if text.strip() else "", "\n"
    file.write_text(before + figure_text + after, encoding="utf-8")


def render(runs: list[Run]) -> Iterator[str]:
    """The lines of all tables."""
    yield "### Aims"
    yield ""
    yield "| store | aim | reached | enough |"
    yield "| --- | --- | --- | --- |"
    for one in targets.evaluate(runs):
        yield f"| {one.store} | {one.aim} | {one.reached} | {verdict(one)} |"
    yield ""
    for run in runs:
        yield f"### {run.store}"
        yield ""
        yield _plain(figures.about(run)) + "."
        yield ""
        for scenario in dict.fromkeys(result.scenario for result in run.results):
            columns = figures.columns(run, scenario)
            heads = figures.heads(columns)
            yield f"| {scenario} | {' | '.join(heads)} |"
            yield f"| --- | {' | '.join(['---:'] * len(heads))} |"
            for line in figures.lines(run):
                if line.scenario == scenario:
                    yield f"| {_plain(line.operation)} | {' | '.join(figures.cells(line, columns))} |"
            yield ""
        told = figures.notes(run)
        for note in told:
            yield f"- {_plain(note)}"
        if told:
            yield ""


def _plain(text: str) -> str:
    """A text as one line of Markdown."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
