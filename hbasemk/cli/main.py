"""``hbasemk``: the group of commands, what they share, and how errors end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from hbasemk.cli import output
from hbasemk.cli.output import Session
from hbasemk.errors import (
    CommitUnknownError,
    ConflictError,
    FormatError,
    HbasemkError,
    InvalidPathError,
    InvalidRevisionError,
    InvalidValueError,
    JsopError,
    StoreError,
)

DONE, NO, USAGE, CONFLICT, UNREACHABLE = range(5)
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", envvar="HBASEMK_URL", metavar="URL", help="The repository; also from HBASEMK_URL.")
@click.option(
    "--output",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people or programs.",
)
@click.option("--debug", is_flag=True, envvar="HBASEMK_DEBUG", help="Show where an error comes from.")
@click.version_option(package_name="hbasemk")
@click.pass_obj
def cli(session: Session, url: str | None, form: str, debug: bool) -> None:
    """One versioned content tree that many processes commit to.

    URL is sqlite:///file (four slashes for an absolute path) or hbase://host:port/?prefix=name_. It, and the other options
    here, may also stand behind the command.
    """
    session.choose(url, form, debug)


def code_of(error: HbasemkError) -> int:
    """The exit code that an error ends with."""
    if isinstance(error, (ConflictError, CommitUnknownError)):
        return CONFLICT
    if isinstance(error, (InvalidPathError, InvalidValueError, InvalidRevisionError, JsopError)):
        return USAGE
    if isinstance(error, FormatError):
        return NO
    if isinstance(error, StoreError):
        # Also a store that is there but holds no repository.
        return UNREACHABLE
    return NO


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line (``arguments``: those of the process) and exit."""
    session = Session()
    output.prepare_streams()
    try:
        code = cli.main(arguments, prog_name="hbasemk", standalone_mode=False, obj=session)
        sys.exit(code if isinstance(code, int) else DONE)
    except HbasemkError as error:
        if session.debug:
            traceback.print_exc()
        click.echo(f"hbasemk: {error}", err=True)
        sys.exit(code_of(error))
    except click.exceptions.Abort:
        click.echo("hbasemk: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever reads our output has had enough, as `head` has.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(DONE)
    except OSError as error:
        if session.debug:
            traceback.print_exc()
        click.echo(f"hbasemk: {error}", err=True)
        sys.exit(NO)


def _register() -> None:
    from hbasemk.cli import bench, changing, checking, kernel, looking, transfer

    for module in (looking, changing, transfer, kernel, checking):
        for command in module.COMMANDS:
            cli.add_command(output.with_common_options(command))
    # It works on no repository that is there.
    cli.add_command(bench.bench)
    for group, commands in kernel.GROUPS:
        for command in commands:
            output.with_common_options(command)
        cli.add_command(group)


_register()
