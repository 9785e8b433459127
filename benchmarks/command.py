"""The command line of the benchmarks: ``python -m benchmarks``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from hbasemk.cli import main as cli
from hbasemk.cli import output
from hbasemk.cli.session import DEBUG, Session, form_option
from hbasemk.errors import InvalidValueError

if TYPE_CHECKING:
    from benchmarks.results import Run
    from benchmarks.runner import Place


@click.command("benchmarks", cls=cli.PipeErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("places", nargs=-1, metavar="[PLACE]...")
@click.option("--scenario", "scenarios", multiple=True, metavar="NAME", help="Run only this scenario (repeatable).")
@click.option("--system", "systems", multiple=True, metavar="NAME", help="Measure only this system (repeatable).")
@click.option("--quick", is_flag=True, help="Use small sizes, to check that everything works; the figures mean little.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=NUMBER", help="Change a size (repeatable).")
@click.option("--remark", default="", help="Store a remark with the environment, such as HBase's version.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Append the results to this file, as JSON lines."
)
@click.option(
    "--plots", type=click.Path(path_type=Path, file_okay=False), help="Draw plots of the results into this folder."
)
@click.option(
    "--form", type=click.Choice(["svg", "png"]), default="svg", show_default=True, help="The format of plots."
)
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the tables into this Markdown file.")
@click.option("--table/--no-table", default=True, show_default=True, help="Print the tables.")
@click.option(
    "--from",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Report the newest results from this file of JSON lines (repeatable). Without a PLACE, measure nothing.",
)
@click.option("--list", "listing", is_flag=True, help="Print scenarios, systems and sizes.")
@form_option("text")
@DEBUG
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
    files: tuple[Path, ...],
    listing: bool,
    output_form: str,
    debug: bool,
) -> int:
    """Compare hbasemk with its peers and with the bare store, turn by turn in one run.

    PLACE is a folder for embedded systems, or the URL of an HBase: hbase://host:port/?prefix=bench_. Each embedded system
    creates its files in its own subfolder; on HBase the names of all tables begin with the prefix. The run removes them at
    its end. The exit code is 1 if a system failed at an operation, or if nothing was measured at a PLACE.
    """
    from benchmarks import results, runner
    from benchmarks.sizes import FULL, QUICK

    session.choose(None, output_form, debug)
    if listing:
        _list(session)
        return 0
    if not places and not files:
        raise click.UsageError("no place given; expected a folder, the URL of an HBase, or --from FILE")
    changes = dict(size.partition("=")[::2] for size in sizes)
    chosen = (QUICK if quick else FULL).with_changes(changes)
    runs = newest(results.read(files))
    runner.check_scenarios(scenarios)
    found = [runner.place_of(place) for place in places]
    _check_systems(systems, found)
    # A run takes long, so an output that cannot be written fails before it.
    _prepare(markdown, plots)
    measured = True
    with json_file.open("a", encoding="utf-8") if json_file is not None else nullcontext() as out:
        for place in found:
            runner.make_folder(place)
        for place in found:
            run = runner.measure(
                place,
                chosen,
                scenarios=scenarios,
                systems=systems,
                remark=remark,
                report=output.complain_lines,
                out=out,
            )
            measured = measured and bool(run.results)
            runs = newest([*runs, run])
    _show(session, runs, table, markdown, plots, form)
    return 1 if not measured or any(result.failed for run in runs for result in run.results) else 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit."""
    cli.main(arguments, bench, "python -m benchmarks")


def newest(runs: list[Run]) -> list[Run]:
    """Return the last run of each store."""
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
                # rich would exit with 1 here; the caller handles the error instead.
                raise

            def render_str(self, text: str, **options: Any) -> Text:
                # A file of results may contain any text, which is not markup.
                return super().render_str(output.visible_lines(text), **{**options, "markup": False, "emoji": False})

        # A file or a pipe has no width; use one that shows everything.
        console = Console()
        tables.show(runs, console if console.is_terminal else Console(width=200))
    if markdown is not None:
        from benchmarks.report import markdown as writer

        writer.write(runs, markdown)
    if plots is not None:
        from benchmarks.report import plots as drawer

        for file in drawer.draw(runs, plots, form):
            output.complain_lines(str(file))


def _check_systems(systems: Sequence[str], places: Sequence[Place]) -> None:
    """Raise InvalidValueError for a name of no system, or if the store of a place has none of the systems."""
    from benchmarks import registry

    keys = dict.fromkeys(entry.key for entry in registry.ENTRIES)
    if unknown := [system for system in systems if system not in keys]:
        raise InvalidValueError(f"no system named {', '.join(unknown)}; expected one of {', '.join(keys)}")
    for place in places:
        known = [entry.key for entry in registry.entries(place.store)]
        if systems and not set(known) & set(systems):
            raise InvalidValueError(
                f"no system named {', '.join(systems)} on {place.store}; expected one of {', '.join(known)}"
            )


def _prepare(markdown: Path | None, plots: Path | None) -> None:
    """Raise an error if the tables or the plots cannot be written."""
    if markdown is not None:
        from benchmarks.report import markdown as writer

        writer.current(markdown)
        markdown.open("a").close()
    if plots is not None:
        _need_matplotlib()
        plots.mkdir(parents=True, exist_ok=True)


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        from benchmarks.runner import EXTRA

        raise click.UsageError(f"--plots needs matplotlib, which is not installed; run {EXTRA}") from None


def _list(session: Session) -> None:
    from dataclasses import asdict

    from benchmarks.registry import ENTRIES
    from benchmarks.scenarios import SCENARIOS
    from benchmarks.sizes import FULL, QUICK

    rows = [("scenario", name, (action.__doc__ or "").split("\n")[0]) for name, action in SCENARIOS.items()]
    rows += [("system", entry.key, f"on {entry.store}, {entry.role}") for entry in ENTRIES]
    quick = asdict(QUICK)
    rows += [("size", name, f"{full:,}, quick {quick[name]:,}") for name, full in asdict(FULL).items()]
    session.rows(rows, ["kind", "name", "about"])
