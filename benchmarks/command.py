"""The command that measures: ``python -m benchmarks``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from hbasemk.cli import main as cli
from hbasemk.cli import output
from hbasemk.cli.output import Session
from hbasemk.errors import InvalidValueError

if TYPE_CHECKING:
    from benchmarks.results import Run

EXTRA = "pip install -e '.[bench]'"


@click.command("benchmarks", cls=cli.PipeErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("places", nargs=-1, metavar="[PLACE]...")
@click.option("--scenario", "scenarios", multiple=True, metavar="NAME", help="Only this one (may be given again).")
@click.option("--system", "systems", multiple=True, metavar="NAME", help="Only this one (may be given again).")
@click.option("--quick", is_flag=True, help="A small run, to see that all works; its figures say little.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=NUMBER", help="Another size (may be given again).")
@click.option(
    "--remark", default="", help="Kept with the environment, such as HBase's version, which it does not tell."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Append the results, as JSON lines.")
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), help="Draw the results into this folder.")
@click.option("--form", type=click.Choice(["svg", "png"]), default="svg", show_default=True, help="What plots are.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the tables into this file.")
@click.option("--table/--no-table", default=True, show_default=True, help="Print the tables.")
@click.option(
    "--from",
    "earlier",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Measure nothing at no place, but show the newest results in this file of JSON lines (may be given again).",
)
@click.option("--list", "listing", is_flag=True, help="Print scenarios, systems and sizes.")
@click.option(
    "--output",
    "form_of_output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people or programs.",
)
@click.option("--debug", is_flag=True, envvar="HBASEMK_DEBUG", help="Show where an error comes from.")
@click.pass_obj
def bench(
    session: Session,
    places: tuple[str, ...],
    scenarios: tuple[str, ...],
    systems: tuple[str, ...],
    quick: bool,
    sizes: tuple[str, ...],
    remark: str,
    json_file: Path | None,
    plots: Path | None,
    form: str,
    markdown: Path | None,
    table: bool,
    earlier: tuple[Path, ...],
    listing: bool,
    form_of_output: str,
    debug: bool,
) -> int:
    """Measure hbasemk, what others use instead, and the bare store beneath, turn by turn in one run.

    PLACE is a folder, for embedded systems (each makes its files in a folder of its own there), or the URL of an HBase,
    hbase://host:port/?prefix=bench_, whose tables begin with that prefix. All are removed in the end. The exit code is 1 if a
    system failed at something.
    """
    from benchmarks import registry, results, runner
    from benchmarks.sizes import FULL, QUICK

    session.choose(None, form_of_output, debug)
    if listing:
        _list(session)
        return 0
    if not places and not earlier:
        raise click.UsageError("no place: give a folder, the URL of an HBase, or --from FILE")
    if plots is not None:
        _need_matplotlib()
    given = dict(size.partition("=")[::2] for size in sizes)
    chosen = (QUICK if quick else FULL).with_changes(given)
    runs = newest(results.read(earlier))
    for place in map(runner.place_of, places):
        known = {entry.key for entry in registry.entries(place.store)}
        if systems and not known & set(systems):
            raise InvalidValueError(f"on {place.store} there are the systems {', '.join(sorted(known))}")
        run = runner.measure(
            place,
            chosen,
            scenarios=scenarios,
            systems=systems,
            remark=remark,
            tell=output.complain_lines,
        )
        if run.environment["left_out"]:
            output.complain_lines(f"to have all systems: {EXTRA}")
        if json_file is not None:
            with json_file.open("a", encoding="utf-8") as out:
                results.write(run, out)
        runs = newest([*runs, run])
    _show(session, runs, table, markdown, plots, form)
    return 1 if any(result.failed for run in runs for result in run.results) else 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit."""
    cli.main(arguments, bench, "python -m benchmarks")


def newest(runs: list[Run]) -> list[Run]:
    """The last run of each store."""
    return list({run.store: run for run in runs}.values())


def _show(session: Session, runs: list[Run], table: bool, markdown: Path | None, plots: Path | None, form: str) -> None:
    if session.json:
        from benchmarks import results

        for run in runs:
            results.write(run, sys.stdout)
    elif table:
        from typing import Any

        from rich.console import Console as RichConsole
        from rich.text import Text

        from benchmarks.report import tables

        class Console(RichConsole):
            def on_broken_pipe(self) -> None:
                # rich would end the process with 1 here, inside the handler of the error.
                raise

            def render_str(self, text: str, **options: Any) -> Text:
                # A file of results may hold anything: its text is not markup.
                return super().render_str(output.visible_lines(text), **{**options, "markup": False, "emoji": False})

        # Nobody can widen a file or a pipe afterwards.
        console = Console()
        tables.show(runs, console if console.is_terminal else Console(width=200))
    if markdown is not None:
        from benchmarks.report import markdown as writer

        writer.write(runs, markdown)
    if plots is not None:
        from benchmarks.report import plots as drawer

        for file in drawer.draw(runs, plots, form):
            output.complain_lines(str(file))


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise click.UsageError(f"--plots needs matplotlib, which is not installed: {EXTRA}") from None


def _list(session: Session) -> None:
    from dataclasses import asdict

    from benchmarks.registry import ENTRIES
    from benchmarks.scenarios import SCENARIOS
    from benchmarks.sizes import FULL, QUICK

    described = [("scenario", name, (action.__doc__ or "").split("\n")[0]) for name, action in SCENARIOS.items()]
    described += [("system", entry.key, f"on {entry.store}, {entry.role}") for entry in ENTRIES]
    quick = asdict(QUICK)
    described += [("size", name, f"{full:,}, quick {quick[name]:,}") for name, full in asdict(FULL).items()]
    session.rows(described, ["kind", "name", "about"])
