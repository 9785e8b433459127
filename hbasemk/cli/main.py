"""``hbasemk``: the group of commands, what they share, and how errors end."""

from __future__ import annotations

import select
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

import click

import hbasemk
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


class _PipeBroke(Exception):
    """A BrokenPipeError on its way past click, which would end with 1 for it whoever's pipe it was."""


class PipeErrors(click.Command):
    """A command that passes a BrokenPipeError to :func:`main` instead of exiting with 1."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except BrokenPipeError as error:
            raise _PipeBroke from error

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError as error:
            raise _PipeBroke from error


class _Group(PipeErrors, click.Group):
    pass


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
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
@click.version_option(version=hbasemk.__version__)
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


def main(arguments: Sequence[str] | None = None, command: click.Command = cli, program: str = "hbasemk") -> NoReturn:
    """Run a command and exit. ``arguments`` default to those of the process; usage messages show ``program``.

    Who reads our output and has had enough, as ``head`` has, ends it with 0, unless something went wrong before. Output that
    cannot be written otherwise, as on a full disk, is an error.
    """
    session = Session()
    try:
        output.prepare_streams()
        with output.logged_as_messages():
            code = _run(session, arguments, command, program)
        code = _finish(session, code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        code = INTERRUPTED
        output.complain("interrupted")
        _let_go(session)
    sys.exit(code)


def _run(session: Session, arguments: Sequence[str] | None, command: click.Command, program: str) -> int:
    try:
        code = command.main(arguments, prog_name=program, standalone_mode=False, obj=session)
    except HbasemkError as error:
        _report(session, error, str(error))
        return code_of(error)
    except click.ClickException as error:
        output.complain_usage(error)
        return error.exit_code
    except (_PipeBroke, BrokenPipeError) as error:
        if any(map(_has_no_reader, _streams())):
            return DONE
        cause = error.__cause__ or error
        _report(session, cause, str(cause))
        return NO
    except OSError as error:
        _report(session, error, output.os_error_text(error))
        for stream in _streams():
            # If it was about this stream, once is enough.
            _flush(stream)
        return NO
    return code if isinstance(code, int) else DONE


def _finish(session: Session, code: int) -> int:
    """Let everything out; the exit code, which is an error when that was not possible although somebody reads."""
    for stream in _streams():
        error = _flush(stream)
        if error is not None and stream is sys.stdout:
            named = OSError(error.errno, error.strerror, output.STANDARD_OUTPUT)
            _report(session, error, output.os_error_text(named))
            code = code or NO
    return code


def _let_go(session: Session) -> None:
    """Let out what can go out at once: that nobody reads it may be why somebody interrupts."""
    for stream in _streams():
        if not _events(stream, select.POLLOUT) & select.POLLOUT:
            output.discard(stream)
    try:
        _finish(session, INTERRUPTED)
    except KeyboardInterrupt:
        for stream in _streams():
            output.discard(stream)


def _flush(stream: TextIO) -> OSError | None:
    """The error of a stream that takes nothing more, which is discarded; None also if its reader has gone."""
    try:
        stream.flush()
    except OSError as error:
        gone = isinstance(error, BrokenPipeError) and _has_no_reader(stream)
        output.discard(stream)
        return None if gone else error
    return None


def _report(session: Session, error: BaseException, text: str) -> None:
    if session.debug:
        output.complain_traceback(error)
    output.complain(text)


def _streams() -> list[TextIO]:
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None and not stream.closed]


def _has_no_reader(stream: TextIO) -> bool:
    """Whether nobody reads the pipe that a stream is; a pipe that broke may also be another one."""
    return bool(_events(stream, 0) & (select.POLLERR | select.POLLHUP))


def _events(stream: TextIO, wanted: int) -> int:
    """What is known of the file or pipe that a stream is, without waiting."""
    try:
        number = stream.fileno()
    except OSError:
        return wanted
    poll = select.poll()
    poll.register(number, wanted)
    return sum(event for _, event in poll.poll(0))


def _register() -> None:
    from hbasemk.cli import edit, inspect, maintenance, microkernel, transfer

    for module in (inspect, edit, transfer, microkernel, maintenance):
        for command in module.COMMANDS:
            cli.add_command(output.with_common_options(command))
    for group, commands in microkernel.GROUPS:
        for command in commands:
            output.with_common_options(command)
        cli.add_command(group)


_register()
