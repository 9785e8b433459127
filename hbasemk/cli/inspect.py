"""Commands that only read: ls, cat, log, status."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from hbasemk.cli import output
from hbasemk.cli.checkpoints import all_fields
from hbasemk.cli.collection import shown, waits_for
from hbasemk.cli.output import first_line, moment
from hbasemk.cli.session import NULL, Integer, Session, at
from hbasemk.cli.times import When

if TYPE_CHECKING:
    from collections.abc import Callable

    from hbasemk.kernel.log import LogEntry
    from hbasemk.kernel.status import LeaseStatus
    from hbasemk.snapshot import Node

LATER_EPOCH = (
    "export the tree; import it into a new repository, created by `hbasemk init --epoch DATE` with a later date"
)
REVISION = click.option(
    "--at",
    "revision",
    type=When(),
    metavar="WHEN",
    help="Read this revision, or the newest one before a time: an ISO date and time (UTC), or a duration ago, such as 2h.",
)


@click.command("ls")
@click.argument("path", default="/")
@click.option("-l", "--long", "long_", is_flag=True, help="Show the last revision and the number of properties, too.")
@click.option("-r", "--recursive", is_flag=True, help="List the whole subtree, level by level.")
@click.option(
    "--versions", is_flag=True, help="Show each node's version, too; --if-version of other commands takes it."
)
@NULL
@REVISION
@click.pass_obj
def ls(
    session: Session,
    path: str,
    long_: bool,
    recursive: bool,
    versions: bool,
    null: bool,
    revision: str | datetime | None,
) -> None:
    """List the children of the node at PATH.

    On a terminal, control characters in names appear as escapes. In a pipe or a file, names are exact.
    """
    if null:
        session.end_with_null()
    with session.open() as repository:
        snapshot = at(repository, revision)
        if not (long_ or recursive or versions):
            session.rows(([name] for name in snapshot.children(path)), ["name"])
            return
        nodes = (node for node in snapshot.walk(path, None if recursive else 1) if node.path != path)
        columns: dict[str, Callable[[Node], Any]] = {
            "path" if recursive else "name": lambda node: node.path if recursive else node.name
        }
        if long_:
            columns.update(revision=lambda node: node.revision, properties=len)
        if versions:
            columns.update(version=lambda node: node.version)
        session.rows(([show(node) for show in columns.values()] for node in nodes), list(columns))


@click.command("cat")
@click.argument("path")
@click.option(
    "-p",
    "--property",
    "name",
    metavar="NAME",
    help="Print only this property; text and bytes appear exactly as stored.",
)
@click.option("--show-version", is_flag=True, help="Print only the node's version; --if-version takes it.")
@NULL
@REVISION
@click.pass_obj
def cat(
    session: Session, path: str, name: str | None, show_version: bool, null: bool, revision: str | datetime | None
) -> None:
    """Print the properties of the node at PATH."""
    from hbasemk.transfer.json.values import to_json

    if show_version and name is not None:
        raise click.UsageError("--show-version prints only the version; leave out --property")
    if null:
        if name is not None:
            raise click.UsageError(
                "-0 cannot be combined with --property, which prints the exact value without a line end; leave out one of them"
            )
        session.end_with_null()
    with session.open() as repository:
        node = at(repository, revision)[path]
        if show_version:
            session.rows([[node.version]], ["version"])
            return
        if name is not None:
            value = node[name]
            if session.json or not isinstance(value, (str, bytes)):
                output.print_json(to_json(value))
            elif isinstance(value, str):
                output.print_text(value)
            else:
                output.print_bytes([value])
            return
        if session.json:
            members = ", ".join(f"{json.dumps(key)}: {to_json(node[key])}" for key in sorted(node))
            output.print_json(f"{{{members}}}")
            return
        for key in sorted(node):
            session.line(f"{key} = {to_json(node[key])}")


@click.command("log")
@click.argument("path", default="/")
@click.option(
    "-n", "--limit", type=Integer(min=1), default=20, show_default=True, help="Show at most this many revisions."
)
@click.option("--changes", is_flag=True, help="List the nodes that each revision changed, too.")
@click.option("--full", is_flag=True, help="Show the whole message, indented, instead of its first line.")
@click.option("--paths", "paths_only", is_flag=True, help="Print only the changed paths at and below PATH.")
@NULL
@click.option(
    "--until",
    type=When(),
    metavar="WHEN",
    help="Show this revision, or the newest before a time, and older ones. For a branch's revision, the branch's own come first, "
    "then those of trunk on which it is based.",
)
@click.pass_obj
def log(
    session: Session,
    path: str,
    limit: int,
    changes: bool,
    full: bool,
    paths_only: bool,
    null: bool,
    until: str | datetime | None,
) -> int:
    """Show the revisions that changed a subtree, newest first.

    The subtree is that of PATH (default: the root). The exit code is 1 if there has never been a node at PATH.
    """
    if paths_only and (changes or full):
        raise click.UsageError("--paths prints only paths; leave out --changes and --full")
    if null:
        if not paths_only:
            raise click.UsageError("-0 needs --paths; add it, or use --output json")
        session.end_with_null()
    from hbasemk.format.paths import is_at_or_below

    shown = 0
    with session.open() as repository:
        newest = until if until is None or isinstance(until, str) else repository.at(time=until)
        for entry in islice(repository.log(path, newest), min(limit, sys.maxsize)):
            shown += 1
            if paths_only:
                touched = (change.path for change in entry.changes if is_at_or_below(change.path, path))
                session.rows(([touched_path] for touched_path in touched), ["path"])
            elif session.json:
                fields: dict[str, Any] = {
                    "revision": entry.revision,
                    "base": entry.base,
                    "time": moment(entry.time_ms),
                    "message": entry.message,
                    "nodes": len(entry.changes),
                }
                if changes:
                    fields["changes"] = [change._asdict() for change in entry.changes]
                output.print_json(json.dumps(fields))
            else:
                _show_entry(session, entry, changes, full)
        # A removed node has log entries. Only the root can exist without one.
        last = at(repository, newest) if newest is None or isinstance(newest, str) else newest
        if not shown:
            # Raises the error for a missing node, which says whether it was deleted: its log can be collected.
            _ = last[path]
    return 0


def _show_entry(session: Session, entry: LogEntry, changes: bool, full: bool) -> None:
    """Print one log entry: its first line at the left margin, all other text from the repository indented."""
    # Padded, so that the messages of all entries are in one column.
    head = f"{entry.revision}  {moment(entry.time_ms)}  {len(entry.changes):>6} {'node ' if len(entry.changes) == 1 else 'nodes'}"
    if full:
        session.line(head.rstrip())
        for line in entry.message.split("\n") if entry.message else ():
            session.line(f"    {line}" if line else "")
    else:
        session.line(f"{head}  {first_line(entry.message)}")
    if not changes:
        return
    for change in entry.changes:
        properties = dict.fromkeys([*change.properties, *(name for name, _, _ in change.adjusted)])
        names = [
            *properties,
            *(f"+{name}/" for name in change.children_added),
            *(f"-{name}/" for name in change.children_removed),
        ]
        session.line(output.indented(f"    {change.kind} {change.path}  {' '.join(names)}"))


_ABSENT = {
    "watermark": "not yet written",
    "oldest readable": "every revision",
    "collected up to": "nothing collected yet",
    "collection waits for": "nothing",
    "collection waits since": "does not wait",
    "collection stopped by": "nothing",
}
"""What ``status`` prints for facts that a repository does not have yet."""


@click.command("status")
@click.pass_obj
def status(session: Session) -> None:
    """Show the settings and the state of the repository.

    The state is the newest revision, the watermark, pending revisions, checkpoints, the leases of the writers, and the
    collection of old revisions: the retention, the oldest readable revision, and the branch or checkpoint that holds it
    back.
    """
    from hbasemk.format import revisions
    from hbasemk.kernel.collection.status import collection_status
    from hbasemk.kernel.status import repository_status
    from hbasemk.repository import instance_of

    with session.open() as repository:
        settings = instance_of(repository).settings
        epoch = settings.epoch_ms
        snapshot = repository.refresh()
        watermark, above, pending, leases = repository_status(instance_of(repository))
        collection = collection_status(instance_of(repository))
        session.facts(
            {
                "location": repository.store.location,
                "format": settings.format,
                "schema number": repository.schema_version,
                "epoch": moment(epoch),
                "ids run out": moment(settings.ids_end_ms),
                "for later ids": LATER_EPOCH,
                "allowed clock skew": f"{settings.max_clock_skew_ms} ms",
                "lease": f"{settings.lease_ms} ms",
                "head": snapshot.revision,
                "head time": moment(revisions.ms_of(revisions.from_text(snapshot.revision)) + epoch),
                "watermark": None if watermark is None else revisions.to_text(watermark.revision),
                "hidden revisions": 0 if watermark is None else len(watermark.hidden),
                "revisions above the watermark": above,
                "retention": shown(collection.retention_ms),
                "oldest readable": revisions.to_text(collection.horizon) if collection.horizon else None,
                "collected up to": revisions.to_text(collection.collected) if collection.collected else None,
                "collection waits for": waits_for(session, collection.hold),
                "collection waits since": None
                if collection.hold is None
                else moment(revisions.ms_of(collection.hold.revision) + epoch),
                "collection is behind by": f"{collection.behind_ms / 1000:.0f} s",
                "collection stopped by": collection.problem,
                "pending revisions": [{"revision": revisions.to_text(revision)} for revision in pending],
                "checkpoints": all_fields(session, repository)[0],
                "leases": [
                    {
                        "machine": f"{lease.machine:04x}",
                        "holder": lease.holder,
                        "until": None if lease.end_ms is None else moment(lease.end_ms),
                        "state": _state_of(lease),
                    }
                    for lease in leases
                ],
            },
            _ABSENT,
        )


def _state_of(lease: LeaseStatus) -> str:
    if lease.end_ms is None:
        return "damaged; run `hbasemk check --repair`"
    return "held" if lease.held else "expired"


COMMANDS = (ls, cat, log, status)
