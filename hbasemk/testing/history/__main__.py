"""Judge saved histories: ``python -m hbasemk.testing.history FILE...``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hbasemk.testing.history.checker import check
from hbasemk.testing.history.records import History, HistoryError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Check the FILES of one history (a file for each process, say) and print a counterexample for every anomaly.

    Exits with 1 if there is one.
    """
    try:
        history = History.load(files)
        found = check(history)
    except HistoryError as error:
        raise click.ClickException(str(error)) from error
    for anomaly in found:
        click.echo(anomaly.explain(history) + "\n")
    count = {0: "no anomalies", 1: "1 anomaly"}.get(len(found), f"{len(found)} anomalies")
    click.echo(f"{len(history)} transactions, {count}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
