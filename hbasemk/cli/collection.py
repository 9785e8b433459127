"""Commands about old revisions: retention, collect."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import click

from hbasemk.cli import output
from hbasemk.cli.session import Session

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
FOREVER: Final = "forever"


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A duration such as 90s, 10m, 48h, 7d or 2w, in ms; or ``forever``, as None in a tuple."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int | None]:
        """Return a tuple of the duration in ms, or of None: without limit."""
        if isinstance(value, tuple):
            return value
        if value == FOREVER:
            return (None,)
        found = re.fullmatch("([0-9]{1,9})([smhdw])", value)
        if found is None:
            self.fail(
                f"{value!r} is not a duration; expected a number and a unit, such as 48h or 7d, or forever", param, ctx
            )
        return (int(found[1]) * _UNITS[found[2]] * 1000,)


def shown(retention_ms: int | None) -> str:
    """Return a duration as :class:`Duration` accepts it."""
    if retention_ms is None:
        return FOREVER
    seconds = retention_ms / 1000
    for unit in "wdhm":
        if seconds % _UNITS[unit] == 0 and seconds >= 2 * _UNITS[unit]:
            return f"{seconds // _UNITS[unit]:.0f}{unit}"
    return f"{seconds:g}s"


@click.command("retention")
@click.argument("duration", type=Duration(), required=False)
@click.pass_obj
def retention(session: Session, duration: tuple[int | None] | None) -> None:
    """Show or change for how long old revisions stay readable.

    DURATION is a number with a unit (s, m, h, d, w), at least 60s, or forever. All processes use the new retention from
    their next collection on. A longer retention does not bring back what has been deleted.
    """
    from hbasemk.kernel.collection import retention as kernel
    from hbasemk.repository import instance_of

    with session.open() as repository:
        instance = instance_of(repository)
        if duration is not None:
            kernel.write(instance, duration[0])
        found = shown(kernel.read(instance))
    session.rows([[found]], ["retention"])


@click.command("collect")
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted; write nothing.")
@click.option("--blobs", is_flag=True, help="Also delete blobs that no node refers to; reads all nodes.")
@click.option("--full", is_flag=True, help="Read all tables, not only what has changed since the last run.")
@click.option(
    "--rows-per-second",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Delete from at most this many rows each second.",
)
@click.pass_obj
def collect(session: Session, dry_run: bool, blobs: bool, full: bool, rows_per_second: int | None) -> None:
    """Delete cells that only old snapshots need.

    Writers do the same in the background. Snapshots that are younger than the retention stay readable, and so do checkpoints and
    branches. The command first waits 10 seconds, on HBase 60, until all processes know the oldest readable revision. With
    --full it also deletes what `hbasemk check` reports as a leftover. You may interrupt the command, and several may run at the
    same time.
    """
    from hbasemk.errors import InvalidValueError
    from hbasemk.format import revisions
    from hbasemk.kernel.collection import retention as kernel
    from hbasemk.kernel.collection.collector import Collector
    from hbasemk.repository import instance_of

    with session.open() as repository:
        instance = instance_of(repository)
        found = kernel.read(instance)
        if found is None:
            raise InvalidValueError(
                f"the repository at {instance.location} has no retention limit, so nothing is collected; choose a "
                "retention first, for example: hbasemk retention 7d"
            )
        with output.row_progress("collect") as progress:
            collector = Collector(instance, rows_per_second, progress)
            act = collector.estimate if dry_run else collector.run
            report = act(found, blobs=blobs or full, full=full)
    facts: dict[str, Any] = {
        "horizon": revisions.to_text(report.horizon) if report.horizon else None,
        "revisions": report.revisions,
        **{kind: report.cells[kind] for kind in sorted(report.cells)},
        "cells": sum(report.cells.values()),
    }
    if not report.blobs_done:
        output.complain("no blob was deleted, because other processes collected at the same time; try again")
    if session.json:
        output.print_json(json.dumps({name.replace(" ", "_"): value for name, value in facts.items()}))
    else:
        session.facts(facts)


COMMANDS = (retention, collect)
