"""Commands on checkpoints: checkpoint make, list, extend, release."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from hbasemk.cli import output
from hbasemk.cli.leading_hyphens import DurationCommand
from hbasemk.cli.session import Session, at
from hbasemk.cli.times import Duration, When
from hbasemk.errors import CheckpointError, FormatError

if TYPE_CHECKING:
    from hbasemk.checkpoint import Checkpoint
    from hbasemk.repository import Repository

_REVISION: Final = re.compile("[0-9a-f]{16}")


@click.group("checkpoint")
def checkpoint() -> None:
    """Keep snapshots readable for a time, exactly as they are."""


@checkpoint.command("make", cls=DurationCommand)
@click.argument("lifetime", type=Duration())
@click.option(
    "--at", "revision", type=When(), metavar="WHEN", help="Keep this revision, or the newest one before a time."
)
@click.option("-m", "--message", default="", help="Say why it is kept, in at most 1024 bytes.")
@click.pass_obj
def make(session: Session, lifetime: float, revision: str | datetime | None, message: str) -> None:
    """Make a checkpoint and print it.

    Prints a line as `hbasemk checkpoint list` does: `cut -f 1` returns the name. For LIFETIME, such as 90s, 30m, 12h or 7d,
    every process reads the same snapshot at its revision. The name is the revision, a hyphen, and 8 hexadecimal digits.
    """
    with session.open() as repository:
        snapshot = None if revision is None else at(repository, revision)
        _show(session, [_fields_of(session, repository.checkpoint(lifetime, snapshot, message))])


@checkpoint.command("list")
@click.pass_obj
def list_checkpoints(session: Session) -> int:
    """List the checkpoints.

    Prints a line for each: its name, its time of expiry by the store's clock, and its message. "(expired)" follows a time that
    has passed. Such a checkpoint holds the collection back until an hourly maintenance removes it, an hour later or more. JSON
    output has the fields name, revision, until, expired and message. If the checkpoints of a revision are damaged, the command
    shows the others, and the exit code is 1.
    """
    with session.open() as repository:
        fields, is_complete = all_fields(session, repository)
        _show(session, fields)
    return 0 if is_complete else 1


@checkpoint.command("extend", cls=DurationCommand)
@click.argument("name", metavar="CHECKPOINT")
@click.argument("lifetime", type=Duration())
@click.pass_obj
def extend(session: Session, name: str, lifetime: float) -> None:
    """Keep a checkpoint for at least LIFETIME from now. It never expires earlier than before."""
    with session.open() as repository:
        found = _find(repository, name)
        found.extend(lifetime)
        _show(session, [_fields_of(session, found)])


@checkpoint.command("release")
@click.argument("names", metavar="CHECKPOINT...", nargs=-1, required=True)
@click.pass_obj
def release(session: Session, names: Sequence[str]) -> int:
    """End checkpoints now.

    If one of them does not exist, the command releases the others, and the exit code is 1. If the checkpoints of a revision are
    damaged, the revision in place of a name ends all of them.
    """
    from hbasemk.kernel import checkpoints
    from hbasemk.repository import instance_of

    code = 0
    with session.open() as repository:
        for name in names:
            try:
                if _REVISION.fullmatch(name):
                    checkpoints.end_damaged(instance_of(repository), int(name, 16))
                else:
                    _find(repository, name).release()
            except (CheckpointError, FormatError) as error:
                output.complain(str(error))
                code = 1
    return code


def _find(repository: Repository, name: str) -> Checkpoint:
    from hbasemk.checkpoint import find
    from hbasemk.repository import instance_of

    found = find(lambda: instance_of(repository), name)
    if found is None:
        raise CheckpointError(
            f"there is no checkpoint {name!r}: it has been released, has expired, or never existed. `hbasemk checkpoint list` "
            "shows those that exist.",
            revision=name.partition("-")[0],
        )
    return found


def all_fields(session: Session, repository: Repository) -> tuple[list[dict[str, Any]], bool]:
    """Return what commands show of all checkpoints that are not damaged, and whether these are all; complain of the others."""
    from hbasemk.checkpoint import list_all
    from hbasemk.format import revisions
    from hbasemk.kernel import checkpoints
    from hbasemk.repository import instance_of

    damaged: dict[int, FormatError] = {}
    instance = instance_of(repository)
    found = list_all(lambda: instance, damaged)
    for revision, error in damaged.items():
        text = revisions.to_text(revision)
        output.complain(
            f"the checkpoints of revision {text} are damaged, and keep their snapshot until `hbasemk checkpoint release {text}` "
            f"ends them: {error}"
        )
    now_ms = checkpoints.earliest_ms(instance) if found else 0
    return [_fields_of(session, one, now_ms) for one in found], not damaged


def _fields_of(session: Session, checkpoint: Checkpoint, now_ms: int = 0) -> dict[str, Any]:
    """Return what commands show of a checkpoint, by the names of its attributes. Its name begins with the revision."""
    until_ms = round(checkpoint.until.timestamp() * 1000)
    until, is_expired = output.moment(until_ms), until_ms <= now_ms
    message = session.message(checkpoint.message)
    if session.json:
        return {
            "name": checkpoint.name,
            "revision": checkpoint.revision,
            "until": until,
            "expired": is_expired,
            "message": message,
        }
    return {"name": checkpoint.name, "until": f"{until} (expired)" if is_expired else until, "message": message}


def _show(session: Session, checkpoints: Iterable[dict[str, Any]]) -> None:
    for fields in checkpoints:
        session.rows([list(fields.values())], list(fields))


GROUPS = ((checkpoint, (make, list_checkpoints, extend, release)),)
