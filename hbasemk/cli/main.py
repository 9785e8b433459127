"""The ``hbasemk`` command: its subcommands, global options, and the exit code of each error."""

from __future__ import annotations

import contextlib
import select
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TextIO

import click

import hbasemk
from hbasemk.cli import output
from hbasemk.cli.session import DEBUG, Session, form_option, with_common_options
from hbasemk.cli.signals import EndedBySignal, Interrupts
from hbasemk.errors import (
    CommitUnknownError,
    ConflictError,
    FormatError,
    HbasemkError,
    InvalidPathError,
    InvalidRevisionError,
    InvalidValueError,
    JsopError,
    LimitError,
    StoreError,
)

DONE, NO, USAGE, CONFLICT, UNREACHABLE = range(5)
INTERRUPTED = 130


class _PipeBroke(Exception):
    """Carry a BrokenPipeError past click, which would exit with 1 for any broken pipe."""


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _PipeBroke from error
    except click.exceptions.Exit:
        # --help and --version end so. Without standard output, click has printed nothing.
        output.require_standard_output()
        raise


class PipeErrors(click.Command):
    """A command that lets :func:`main` handle broken pipes, and a standard output that is closed."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _output_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, context: click.Context) -> Any:
        with _output_errors():
            return super().invoke(context)


class _Group(PipeErrors, click.Group):
    pass


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--url", envvar="HBASEMK_URL", metavar="URL", help="The repository's URL. Default: the variable HBASEMK_URL."
)
@form_option("text")
@DEBUG
@click.version_option(version=hbasemk.__version__)
@click.pass_obj
def cli(session: Session, url: str | None, output_form: str, debug: bool) -> None:
    """Work on a versioned content tree to which many processes commit.

    URL is sqlite:///file (four slashes for an absolute path) or hbase://host:port/?prefix=name_. These options may also follow
    the command.
    """
    session.choose(url, output_form, debug)


def code_of(error: HbasemkError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, (ConflictError, CommitUnknownError)):
        return CONFLICT
    if isinstance(error, (InvalidPathError, InvalidValueError, InvalidRevisionError, JsopError, LimitError)):
        return USAGE
    if isinstance(error, FormatError):
        return NO
    if isinstance(error, StoreError):
        # This includes a reachable store without a repository.
        return UNREACHABLE
    return NO


def main(arguments: Sequence[str] | None = None, command: click.Command = cli, program: str = "hbasemk") -> NoReturn:
    """Run a command line and exit. ``arguments`` defaults to the process's; usage messages call the program ``program``.

    If the reader of the output closes its pipe early, as ``head`` does, the exit code is 0 unless an error came first, or the
    command knows a negative result (:class:`output.Reader`). Any other failure to write the output, such as a full disk, is an
    error.
    """
    session = Session()
    with Interrupts() as interrupts:
        try:
            output.prepare_streams()
            with output.logged_as_messages():
                code = _run(session, arguments, command, program)
            code = _finish(session, code)
        except EndedBySignal:
            code = interrupts.code
            _discard_blocked_output(session)
        except (KeyboardInterrupt, RuntimeError) as error:
            if not _is_interruption(error):
                raise
            code = interrupts.code
            output.complain(interrupts.message)
            _discard_blocked_output(session)
    sys.exit(code)


def _is_interruption(error: BaseException) -> bool:
    """Return whether an error is an interruption: of a prompt, or of an import that makes a class, before Python 3.12."""
    return isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)) or isinstance(
        error.__cause__, KeyboardInterrupt
    )


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
        _report(session, error, output.os_error_text(_of_output(error) if _is_of_click(error) else error))
        for stream in _streams():
            # Report an error of this stream only once.
            _flush(stream)
        return NO
    return code if isinstance(code, int) else DONE


def _finish(session: Session, code: int) -> int:
    """Flush all output; return the exit code, an error if a flush failed while the output still had a reader."""
    for stream in _streams():
        error = _flush(stream)
        if error is not None and stream is sys.stdout:
            _report(session, error, output.os_error_text(_of_output(error)))
            code = code or NO
    return code


def _is_of_click(error: OSError) -> bool:
    """Return whether click could not print: only help and the version, on standard output, which its errors do not name."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1].f_globals.get("__name__") == "click.utils"


def _of_output(error: OSError) -> OSError:
    """Return an error of standard output that names it."""
    return OSError(error.errno, error.strerror, output.STANDARD_OUTPUT)


def _discard_blocked_output(session: Session) -> None:
    """Flush what can be written without waiting, and discard the rest: a blocked reader may be why the user interrupts."""
    for stream in _streams():
        if not _events(stream, select.POLLOUT) & select.POLLOUT:
            output.discard(stream)
    try:
        _finish(session, INTERRUPTED)
    except KeyboardInterrupt:
        for stream in _streams():
            output.discard(stream)


def _flush(stream: TextIO) -> OSError | None:
    """Flush a stream; on failure discard its output. Return the error, or None on success or if the reader has closed."""
    try:
        stream.flush()
    except OSError as error:
        reader_closed = isinstance(error, BrokenPipeError) and _has_no_reader(stream)
        output.discard(stream)
        return None if reader_closed else error
    return None


def _report(session: Session, error: BaseException, text: str) -> None:
    if session.debug:
        output.complain_traceback(error)
    output.complain(text)


def _streams() -> list[TextIO]:
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None and not stream.closed]


def _has_no_reader(stream: TextIO) -> bool:
    """Return whether a stream is a pipe without a reader. A BrokenPipeError may come from another pipe."""
    return bool(_events(stream, 0) & (select.POLLERR | select.POLLHUP))


def _events(stream: TextIO, mask: int) -> int:
    """Poll a stream for the events in ``mask``, without waiting; return ``mask`` for a stream without a file."""
    try:
        number = stream.fileno()
    except OSError:
        return mask
    poll = select.poll()
    poll.register(number, mask)
    return sum(event for _, event in poll.poll(0))


def _register() -> None:
    from hbasemk.cli import blobs, branches, checkpoints, collection, edit, inspect, maintenance, microkernel, transfer

    for module in (inspect, edit, transfer, microkernel, branches, maintenance, collection):
        for command in module.COMMANDS:
            cli.add_command(with_common_options(command))
    for group, commands in (*blobs.GROUPS, *checkpoints.GROUPS):
        for command in commands:
            with_common_options(command)
        cli.add_command(group)


_register()
