"""Check saved histories: ``python -m hbasemk.testing.history FILE...``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hbasemk.testing.history.checker import check
from hbasemk.testing.history.records import History, HistoryError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Check the FILES of one history (for example, a file for each process) and print a counterexample for each anomaly.

    The exit status is 1 if there is an anomaly. If a process was killed after a commit that removed a key, and before it
    recorded the revision, reads of the removal look like anomalies. A conductor resolves such outcomes before it checks.
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
