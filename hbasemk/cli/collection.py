"""Commands about old revisions: retention, collect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from hbasemk.cli import output
from hbasemk.cli.leading_hyphens import DurationCommand
from hbasemk.cli.session import Integer, Session
from hbasemk.cli.times import UNITS, seconds_of
from hbasemk.format.limits import shown as quoted

if TYPE_CHECKING:
    from hbasemk.kernel.collection.raising import Hold

FOREVER: Final = "forever"


class Retention(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A possible retention in ms, in a tuple: a duration such as 90s, 48h or 1d12h; None for ``forever``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int | None]:
        from hbasemk.errors import InvalidValueError
        from hbasemk.kernel.collection import retention as kernel

        if isinstance(value, tuple):
            return value
        if value == FOREVER:
            return (None,)
        seconds = seconds_of(value)
        if seconds is None:
            self.fail(
                f"{quoted(value)} is not a duration; expected one such as 48h, 7d or 1d12h, or forever", param, ctx
            )
        milliseconds = round(seconds * 1000)
        try:
            kernel.check(milliseconds)
        except InvalidValueError as error:
            self.fail(str(error), param, ctx)
        return (milliseconds,)


def shown(retention_ms: int | None) -> str:
    """Return a duration as :class:`Retention` accepts it."""
    if retention_ms is None:
        return FOREVER
    seconds = retention_ms / 1000
    for unit in "wdhm":
        if seconds % UNITS[unit] == 0 and seconds >= 2 * UNITS[unit]:
            return f"{seconds // UNITS[unit]:.0f}{unit}"
    # With so many digits, the text of each retention is exact.
    return f"{seconds:.15g}s"


def waits_for(session: Session, hold: Hold | None) -> str | None:
    """Return what a command shows of the branch or checkpoint that holds the collection back; None if there is none."""
    if hold is None:
        return None
    # The fields of JSON say the rest.
    note = " (expired; `hbasemk checkpoint release` ends it)" if hold.is_expired and not session.json else ""
    return f"{hold}{note}"


@click.command("retention", cls=DurationCommand)
@click.argument("duration", type=Retention(), required=False)
@click.pass_obj
def retention(session: Session, duration: tuple[int | None] | None) -> None:
    """Show or change for how long old revisions stay readable.

    DURATION is at least 60s, such as 48h, 7d or 1d12h (units: s, m, h, d, w), or forever. All processes use the new
    retention from their next collection on. A longer retention does not bring back what has been deleted.
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
    type=Integer(min=1),
    metavar="NUMBER",
    help="Delete from at most this many rows each second.",
)
@click.pass_obj
def collect(session: Session, dry_run: bool, blobs: bool, full: bool, rows_per_second: int | None) -> None:
    """Delete cells that only old snapshots need.

    Writers do the same in the background. Snapshots that are younger than the retention stay readable, and so do checkpoints and
    branches. The command first waits 10 seconds, on HBase 60, until all processes know the oldest readable revision. With
    --full it also deletes what `hbasemk check` reports as a leftover. You may interrupt the command, and several may run at the
    same time. The line "waits for" shows the branch or checkpoint that keeps older revisions readable; an expired checkpoint does
    so until an hourly maintenance removes it, an hour later or more.
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
        "waits for": waits_for(session, report.hold),
        "revisions": report.revisions,
        **{kind: report.cells[kind] for kind in sorted(report.cells)},
        "cells": sum(report.cells.values()),
    }
    if not report.blobs_done:
        output.complain(
            "no blob was deleted, because other processes collected or swept branches at the same time; try again"
        )
    if session.json:
        facts["waits for expired"] = None if report.hold is None else report.hold.is_expired
        output.print_json(json.dumps({name.replace(" ", "_"): value for name, value in facts.items()}))
    else:
        session.facts(facts, {"waits for": "nothing"})


COMMANDS = (retention, collect)
