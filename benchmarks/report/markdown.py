"""Tables in Markdown, for a file that also contains text written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.report import figures, targets
from benchmarks.report.tables import verdict
from benchmarks.results import Run
from hbasemk.errors import InvalidValueError

BEGIN: Final = "<!-- figures: written by `python -m benchmarks --markdown`, do not edit -->"
END: Final = "<!-- end of figures -->"


def write(runs: list[Run], file: Path) -> None:
    """Replace the figures between the two markers of a file. Without markers, append; without a file, create it."""
    text = current(file)
    figure_text = "\n".join([BEGIN, "", *render(runs), END])
    before, begin, rest = text.partition(BEGIN)
    if begin:
        after = rest.partition(END)[2]
    else:
        before, after = f"{text.rstrip()}\n\n" if text.strip() else "", "\n"
    file.write_text(before + figure_text + after, encoding="utf-8")


def current(file: Path) -> str:
    """Return the text of a file; an empty one without a file. Raises InvalidValueError if it is not UTF-8, or lacks an end."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{file} must be a Markdown file in UTF-8, got other bytes ({error})") from error
    _, begin, rest = text.partition(BEGIN)
    if begin and END not in rest:
        raise InvalidValueError(f"{file} must have the line {END!r} behind the figures, got none; add it")
    return text


def render(runs: list[Run]) -> Iterator[str]:
    """Yield the lines of all tables."""
    yield "### Targets"
    yield ""
    yield "| store | target | measured | met |"
    yield "| --- | --- | --- | --- |"
    for one in targets.evaluate(runs):
        yield f"| {one.store} | {one.target} | {one.measured} | {verdict(one)} |"
    yield ""
    for run in runs:
        yield f"### {run.store}"
        yield ""
        yield _plain(figures.describe(run)) + "."
        yield ""
        for scenario in dict.fromkeys(result.scenario for result in run.results):
            columns = figures.columns(run, scenario)
            headers = figures.headers(columns)
            yield f"| {scenario} | {' | '.join(headers)} |"
            yield f"| --- | {' | '.join(['---:'] * len(headers))} |"
            for line in figures.lines(run):
                if line.scenario == scenario:
                    yield f"| {_plain(line.operation)} | {' | '.join(figures.cells(line, columns))} |"
            yield ""
        notes = figures.notes(run)
        for note in notes:
            yield f"- {_plain(note)}"
        if notes:
            yield ""


def _plain(text: str) -> str:
    """Return a text as one line of Markdown."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
