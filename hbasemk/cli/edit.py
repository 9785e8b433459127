"""Commands that change the repository: init, set, adjust, rm, mv, cp."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from hbasemk.cli import output
from hbasemk.cli.collection import Retention
from hbasemk.cli.leading_hyphens import HyphenCommand
from hbasemk.cli.session import Integer, Session
from hbasemk.cli.times import Date
from hbasemk.errors import InvalidValueError, LimitError
from hbasemk.format.limits import shown

if TYPE_CHECKING:
    from hbasemk.transaction import Transaction

MESSAGE = click.option("-m", "--message", default="", help="The commit message; `hbasemk log` shows it.")


FLOAT_DIGITS = 17
"""A float has a spelling with at most so many significant digits."""


class Version(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The version of a node. An invalid one is a usage error that names the option."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from hbasemk.format.node import VERSION_DIGITS, is_version

        if not is_version(value):
            self.fail(
                f"{shown(value)} is not a version; expected {VERSION_DIGITS} hexadecimal digits, as `hbasemk cat --show-version` "
                "prints them",
                param,
                ctx,
            )
        return str(value)


class VersionOrNone(Version):
    """The version of a node, or the word ``none``, which means that there must be no node."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return NO_NODE if value == NO_NODE else super().convert(value, param, ctx)


NO_NODE = "none"


def _if_version(kind: Version, more: str = "") -> Callable[[click.decorators.FC], click.decorators.FC]:
    """Return the option of an expected version; ``more`` ends its help."""
    return click.option(
        "--if-version",
        "version",
        type=kind,
        metavar="VERSION",
        help="Change the node only if it has this version, as `hbasemk cat --show-version` prints it; else exit with 3."
        + more,
    )


IF_VERSION = _if_version(Version())


def _expected(version: str | None) -> Any:
    """Return the argument ``if_version`` for the option."""
    if version is None:
        return ...
    return None if version == NO_NODE else version


def _change(session: Session, change: Callable[[Transaction], None], message: str) -> None:
    def changed(tx: Transaction) -> Transaction:
        change(tx)
        return tx

    with session.open() as repository:
        # Not the head: it may contain a later commit of another process, and reading it may fail.
        session.committed(repository.run(changed, message).revision)


@click.command("init")
@click.option(
    "--epoch",
    type=Date(),
    metavar="DATE",
    help="The date (UTC) at which revision ids start. They last for 17.4 years. Default 2013-01-01, so they end on 2030-06-03; "
    "with a later date they end later.",
)
@click.option(
    "--max-clock-skew",
    type=Integer(min=100),
    metavar="MS",
    help="The largest allowed difference between clocks. Default 5000.",
)
@click.option(
    "--lease", type=Integer(min=1000), metavar="MS", help="The duration of a machine id's lease. Default 10000."
)
@click.option(
    "--retention",
    type=Retention(),
    metavar="DURATION",
    help="How long old revisions stay readable: 48h, 7d, forever. Default 7d.",
)
@click.option(
    "--splits",
    metavar="PATH",
    multiple=True,
    help="On HBase: begin a region of the table of nodes at PATH. May be given several times.",
)
@click.option(
    "--compression", metavar="CODEC", help="On HBase: compress the tables with CODEC: GZ, SNAPPY, ZSTD, LZ4, …."
)
@click.pass_obj
def init(
    session: Session,
    epoch: datetime.datetime | None,
    max_clock_skew: int | None,
    lease: int | None,
    retention: tuple[int | None] | None,
    splits: tuple[str, ...],
    compression: str | None,
) -> None:
    """Create the repository, unless it exists already.

    The command does not change an existing repository, except its retention. It fails if the settings of that repository differ
    from the options. It prints the newest revision. On standard error it prints the date at which the revision ids of a new
    repository end, or that the repository exists already.
    """
    import dataclasses

    from hbasemk.kernel.collection import retention as kernel_retention
    from hbasemk.kernel.settings import Settings
    from hbasemk.opening import connect
    from hbasemk.repository import instance_of

    requested: dict[str, Any] = {}
    if epoch is not None:
        requested["epoch_ms"] = int(epoch.replace(tzinfo=datetime.timezone.utc).timestamp() * 1000)
    if max_clock_skew is not None:
        requested["max_clock_skew_ms"] = max_clock_skew
    if lease is not None:
        requested["lease_ms"] = lease
    with connect(
        session.url,
        create=True,
        settings=Settings(**requested),
        splits=splits,
        compression=compression,
        poll_interval=0,
    ) as repository:
        chosen, created = instance_of(repository).settings, instance_of(repository).created
        stored = dataclasses.asdict(chosen)
        for name, value in requested.items():
            if stored[name] != value:
                shown, found, given = name, stored[name], value
                if name == "epoch_ms":
                    shown, found, given = "epoch", output.moment(found), output.moment(given)
                raise InvalidValueError(
                    f"there already is a repository at {repository.store.location}; its {shown} is {found}, "
                    f"not {given}. It was not changed: leave out the option, or create the repository elsewhere"
                )
        if retention is not None:
            kernel_retention.write(instance_of(repository), retention[0])
        ends = output.moment(chosen.ids_end_ms)
        if session.json:
            session.rows([[repository.head.revision, ends, created]], ["revision", "ids_run_out", "created"])
            return
        session.rows([[repository.head.revision]], ["revision"])
        if not created:
            output.complain(
                "the repository exists already"
                + (" and was not changed" if retention is None else "; only its retention was set")
            )
            return
        output.complain(
            f"the repository has revision ids until {ends}, 17.4 years after its epoch, {output.moment(stored['epoch_ms'])}. "
            "If you need them for longer, create a new repository with a later date: hbasemk init --epoch DATE"
        )


def _float(text: str) -> float:
    """Convert a number; raise ValueError for one so large that it would become infinite."""
    _check_number(text)
    value = float(text)
    if math.isinf(value) and any(char.isdigit() for char in text):
        raise ValueError("too large for a float")
    return value


def _integer(text: str) -> int:
    _check_number(text)
    return int(text)


def _check_number(text: str) -> None:
    if not _is_number(text):
        raise ValueError("not a number")


def _json(text: str) -> Any:
    """Parse JSON. A number that a float would change keeps its spelling, as in a commit text."""
    from hbasemk import Json
    from hbasemk.jsop import Number
    from hbasemk.transfer.json.values import refuse_constant

    def number(spelling: str) -> int | float | Json:
        exact = Number(spelling).exact
        return Json(spelling) if exact is None else exact

    return json.loads(text, parse_float=number, parse_int=number, parse_constant=refuse_constant)


TYPES: dict[str, Callable[[str], Any]] = {
    "string": str,
    "integer": _integer,
    "float": _float,
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "json": _json,
}
EXPECTED = {
    "integer": "digits, such as 42 or -7",
    "float": "a number, such as 0.5 or 1e3",
    "boolean": "true or false",
    "json": """JSON, such as "text", 1.5, true or ["a", "b"]""",
}


class _NumberCommand(HyphenCommand):
    """A command that takes negative numbers as arguments."""

    def is_argument(self, text: str) -> bool:
        return _is_number(text)


def _is_number(text: str) -> bool:
    """Return whether a text is a number for everybody, not only for Python, which also reads `1_0` and digits of any script."""
    if not text.isascii() or "_" in text or text != text.strip():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


@click.command("set", cls=_NumberCommand)
@click.argument("path")
@click.argument("name")
@click.argument("value", required=False)
@click.option(
    "-t",
    "--type",
    "kind",
    type=click.Choice(list(TYPES)),
    default="string",
    show_default=True,
    help="The type of VALUE.",
)
@click.option("--unset", is_flag=True, help="Remove the property NAME.")
@click.option("--create", is_flag=True, help="Add the node if it does not exist.")
@_if_version(VersionOrNone(), " With --create, `none` means: only if there is no node.")
@MESSAGE
@click.pass_obj
def set_(
    session: Session,
    path: str,
    name: str,
    value: str | None,
    kind: str,
    unset: bool,
    create: bool,
    version: str | None,
    message: str,
) -> None:
    """Set a property of a node.

    Sets the property NAME of the node at PATH to VALUE, and prints the new revision. With --type json, VALUE may be a list.

    Put -- before the arguments if NAME or VALUE begins with - and is not a number. For example:

    hbasemk set -t string -- /a title --x
    """
    if unset == (value is not None):
        raise click.UsageError(f"expected either a VALUE or --unset, got {'both' if unset else 'neither'}")
    if version == NO_NODE and not create:
        raise click.UsageError("--if-version none requires that there is no node, so it needs --create")
    from hbasemk.format import limits

    converted: Any = None
    if value is not None:
        try:
            converted = TYPES[kind](value)
        except (ValueError, KeyError, RecursionError, LimitError) as error:
            too_long = isinstance(error, LimitError) or (not isinstance(error, KeyError) and "digits" in str(error))
            reason = f" of at most {limits.MAX_DIGITS} digits" if too_long else f"; expected {EXPECTED[kind]}"
            raise click.UsageError(f"{limits.shown(value)} is not of the type {kind}{reason}") from None
        if converted is None or isinstance(converted, dict):
            raise click.UsageError(
                f"{limits.shown(value)} is not a property value; expected a string, a number, true, false or a list of these "
                "(--unset removes a property)"
            )
        for one in converted if isinstance(converted, list) else ():
            if one is None or isinstance(one, (list, dict)):
                name = "null" if one is None else "a list" if isinstance(one, list) else "an object"
                raise click.UsageError(
                    f"{limits.shown(value)} is not a property value: a list cannot hold {name}; expected strings, numbers, true "
                    "or false in it"
                )

    def change(tx: Transaction) -> None:
        if create and not tx.exists(path):
            tx.add(path)
        tx.set(path, name, converted, if_version=_expected(version))

    _change(session, change, message)


@click.command("adjust", cls=_NumberCommand)
@click.argument("path")
@click.argument("name")
@click.argument("by")
@IF_VERSION
@MESSAGE
@click.pass_obj
def adjust(session: Session, path: str, name: str, by: str, version: str | None, message: str) -> None:
    """Add a number to a property of a node.

    Adds BY to the property NAME of the node at PATH; an absent property counts as 0. This does not conflict with other processes
    that adjust or set the property at the same time. An integer is exact. Any other number is rounded to a float; one with more
    digits than a float distinguishes is refused.
    """
    amount = _amount(by)
    _change(session, lambda tx: tx.adjust(path, name, amount, if_version=_expected(version)), message)


def _amount(text: str) -> int | float:
    """Convert the amount of an adjust; raise a usage error for one that is no number, or that a float would not keep."""
    from hbasemk.format import limits

    wrong = f"BY must be an integer or a finite number, got {limits.shown(text)}"
    if not _is_number(text):
        raise click.UsageError(wrong)
    try:
        return int(text)
    except ValueError as error:
        if "digits" in str(error):
            raise click.UsageError(f"BY has more than {limits.MAX_DIGITS} digits: {limits.shown(text)}") from None
    amount = float(text)
    if not math.isfinite(amount):
        raise click.UsageError(wrong)
    digits = re.split("[eE]", text)[0].replace(".", "").lstrip("+-").strip("0")
    if digits and (not amount or (len(digits) > FLOAT_DIGITS and Decimal(text) != Decimal(amount))):
        raise click.UsageError(
            f"BY would be rounded from {limits.shown(text)} to the float {amount!r}: use a number with at most {FLOAT_DIGITS} "
            "significant digits that is not too close to 0, or an integer"
        )
    return amount


@click.command("rm")
@click.argument("path")
@IF_VERSION
@MESSAGE
@click.pass_obj
def rm(session: Session, path: str, version: str | None, message: str) -> None:
    """Remove the node at PATH and its subtree."""
    _change(session, lambda tx: tx.remove(path, if_version=_expected(version)), message)


@click.command("mv")
@click.argument("source")
@click.argument("target")
@IF_VERSION
@MESSAGE
@click.pass_obj
def mv(session: Session, source: str, target: str, version: str | None, message: str) -> None:
    """Move the node at SOURCE and its subtree to TARGET."""
    _change(session, lambda tx: tx.move(source, target, if_version=_expected(version)), message)


@click.command("cp")
@click.argument("source")
@click.argument("target")
@MESSAGE
@click.pass_obj
def cp(session: Session, source: str, target: str, message: str) -> None:
    """Copy the node at SOURCE and its subtree to TARGET."""
    _change(session, lambda tx: tx.copy(source, target), message)


COMMANDS = (init, set_, adjust, rm, mv, cp)
