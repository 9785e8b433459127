"""The output functions that all commands share.

Commands print only through this module. Names, values, messages and error texts may contain any character, so one rule holds
(decision 26). On a terminal, control characters appear as escapes. In a pipe or a file, standard output is the exact text in
UTF-8. Standard error is for people: it always shows escapes, and a message is one line.
"""

from __future__ import annotations

import codecs
import contextlib
import datetime
import errno
import io
import logging
import os
import re
import select
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Final, TextIO

import click

from hbasemk.errors import escaped
from hbasemk.format.moments import EPOCH

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


STANDARD_OUTPUT: Final = "standard output"
REDRAW_SECONDS: Final = 0.1
"""The time after which the progress of rows is drawn again."""

_UNSAFE: Final = re.compile(
    # Control characters (C0, DEL, C1) and line separators.
    "[\x00-\x1f\x7f-\x9f\u2028\u2029"
    # Marks, embeddings, overrides and isolates, which reorder text, and other invisible format characters.
    # ZWNJ and ZWJ (200c, 200d) join letters and emoji, so they are safe.
    "\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # Lone surrogates: bytes that are not UTF-8, or halves of a pair.
    "\ud800-\udfff]"
)
_NAMED: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_KEPT_IN_TEXTS: Final = "\n\t"
_HELP_ERROR: Final = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""The error by which click 8.2 and later show the help of a group without a subcommand; earlier versions print it themselves."""
_UNESCAPED_IN_JSON: Final = re.compile("[\x7f\ud800-\udfff]")
"""Characters that JSON writers need not escape, although UTF-8 cannot encode them or some terminals delete them."""


def prepare_streams() -> None:
    """Configure standard output and error: UTF-8 except on a terminal, in any locale; every character can be written."""
    codecs.register_error("hbasemk", _as_bytes)
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="hbasemk", newline="\n")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")


def _as_bytes(error: UnicodeError) -> tuple[bytes, int]:
    """Encode lone surrogates: an undecodable byte of a file name as itself, any other as the repository stores it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    surrogates = error.object[error.start : error.end]
    data = b"".join(
        bytes([ord(char) - 0xDC00]) if 0xDC80 <= ord(char) <= 0xDCFF else char.encode("utf-8", "surrogatepass")
        for char in surrogates
    )
    return data, error.end


def visible(text: str) -> str:
    """Return the text as one line, with escapes for characters that control a terminal or reorder its text."""
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in _NAMED:
        return _NAMED[found[0]]
    # The C1 controls are \\u0080 and so on, so that they differ from undecodable bytes of file names.
    return f"\\x{code:02x}" if code < 0x80 else escaped(found[0])


def _escape_json(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _shown(text: str) -> str:
    return visible(text) if _on_terminal() else text


def indented(text: str) -> str:
    """Indent all lines of a text but the first; a terminal shows the text as one line."""
    return text if _on_terminal() else text.replace("\n", "\n    ")


def print_line(cells: Iterable[str], end: str) -> None:
    """Print cells with tabs between them."""
    _write("\t".join(map(_shown, cells)) + end)


def print_text(text: str) -> None:
    """Print a text as the command's only output; on a terminal, keep its line feeds and tabs and end it with a line feed."""
    if not _on_terminal():
        _write(text)
        return
    _write(_visible_text(text) + "\n")


def _visible_text(text: str) -> str:
    return _UNSAFE.sub(lambda found: found[0] if found[0] in _KEPT_IN_TEXTS else _escape(found), text)


def print_bytes(pieces: Iterable[bytes]) -> None:
    """Print bytes exactly, but on a terminal as UTF-8 text with escapes for bytes that are not UTF-8."""
    if _on_terminal():
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        for piece in pieces:
            _write(_visible_text(decoder.decode(piece)))
        _write(_visible_text(decoder.decode(b"", final=True)) + "\n")
        return
    flush()
    for piece in pieces:
        _write(piece)


def print_json(text: str, end: str = "\n") -> None:
    """Print JSON or JSOP, or a part of it. It stays valid, since escaped characters occur only inside strings."""
    if _on_terminal():
        text = "\n".join(_UNSAFE.sub(_escape_json, line) for line in text.split("\n"))
    else:
        text = _UNESCAPED_IN_JSON.sub(_escape_json, text)
    _write(text + end)


def require_standard_output() -> TextIO:
    """Return standard output; raise OSError if it is closed."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), STANDARD_OUTPUT)
    return sys.stdout


def _write(piece: str | bytes) -> None:
    stream = require_standard_output()
    with _without_bar(stream), _named_errors(stream):
        if isinstance(piece, str):
            stream.write(piece)
        else:
            stream.buffer.write(piece)


def flush() -> None:
    """Flush standard output. Raise BrokenPipeError, or an OSError that names standard output."""
    if sys.stdout is not None and not sys.stdout.closed:
        with _named_errors(sys.stdout):
            sys.stdout.flush()


@contextlib.contextmanager
def _named_errors(stream: IO[str]) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(stream)
        raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from error


class Reader:
    """The reader of standard output, for a command whose work or exit code goes on without one."""

    def __init__(self) -> None:
        self.has_ended = False

    def print(self, write: Callable[[], None]) -> None:
        """Call ``write``, which prints; after the reader has ended, do nothing."""
        if self.has_ended:
            return
        try:
            write()
        except BrokenPipeError:
            self.has_ended = True
            # A later flush would fail again, such as that before a process is forked.
            discard(sys.stdout)


def when_reader_ends(call: Callable[[], None]) -> None:
    """Call ``call``, in another thread, when the reader of standard output ends; never if standard output is no pipe.

    A write to the pipe would find it as well, but only when there is something to write.
    """
    try:
        number = -1 if sys.stdout is None else sys.stdout.fileno()
    except (OSError, ValueError):
        # A stream without a file, or a closed one.
        number = -1
    if number < 0 or not stat.S_ISFIFO(os.fstat(number).st_mode):
        return
    poll = select.poll()
    poll.register(number, 0)

    def wait() -> None:
        # Only an error or a hang-up ends this, since no other event was asked for.
        poll.poll()
        call()

    threading.Thread(target=wait, name="hbasemk-reader", daemon=True).start()


def discard(stream: IO[str]) -> None:
    """Discard the buffered and all later output of a stream; otherwise the process fails again when it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def complain(text: str) -> None:
    """Print a one-line message to standard error; ignore it if standard error cannot be written."""
    _say(f"hbasemk: {visible(text)}")


class _Log(logging.Handler):
    """A log handler that prints the library's log records as messages."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


@contextlib.contextmanager
def logged_as_messages() -> Iterator[None]:
    """Print the library's warnings as messages, since logging would print them without escapes."""
    logger, handler = logging.getLogger("hbasemk"), _Log(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def complain_lines(text: str) -> None:
    """Print lines to standard error, with escapes."""
    _say(visible_lines(text))


def visible_lines(text: str) -> str:
    """Escape each line of a text; keep the line feeds."""
    return "\n".join(map(visible, text.split("\n")))


def complain_usage(error: click.ClickException) -> None:
    """Print the command's usage and the error in its arguments, or its help if a subcommand is missing."""
    if isinstance(error, _HELP_ERROR):
        _say(visible_lines(error.format_message()))
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        _say(context.get_usage())
        if context.command.get_help_option(context) is not None:
            _say(f"Try '{context.command_path} {context.help_option_names[0]}' for help.\n")
    _say(f"Error: {visible(error.format_message())}")


def complain_traceback(error: BaseException) -> None:
    """Print the traceback of an error. Lines of code keep their line feeds, error messages do not."""
    for piece in traceback.format_exception(type(error), error, error.__traceback__):
        is_code = piece.startswith(("  ", "\n", "Traceback "))
        text = piece.rstrip("\n")
        _say(visible_lines(text) if is_code else visible(text))


def _say(text: str) -> None:
    stream = sys.stderr
    if stream is None or stream.closed:
        return
    # The exit code reports the error even if this message cannot be written.
    try:
        with _without_bar(stream):
            stream.write(text + "\n")
            stream.flush()
    except OSError:
        discard(stream)


def os_error_text(error: OSError) -> str:
    """Describe an OSError: the files concerned and the reason."""
    if error.strerror is None:
        return str(error)
    names = [
        os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes, os.PathLike))
    ]
    return f"{' -> '.join(names)}: {error.strerror}" if names else error.strerror


# --- progress ---------------------------------------------------------------------------------------------

_bar: Progress | None = None
"""The progress bar now shown at the bottom of the terminal, if any."""


@contextlib.contextmanager
def progress_bar(*columns: ProgressColumn, auto_refresh: bool = True) -> Iterator[Progress]:
    """Show a progress bar on standard error if that is a terminal; descriptions are plain text, not markup.

    Without ``auto_refresh``, no thread draws it again: only an update with ``refresh=True`` does.
    """
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    global _bar
    console = Console(stderr=True)
    first = TextColumn("{task.description}", markup=False)
    with Progress(
        first,
        *columns,
        console=console,
        auto_refresh=auto_refresh,
        disable=not (console.is_interactive and sys.stderr is not None and sys.stderr.isatty()),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        _bar = None if progress.disable else progress
        try:
            yield progress
        finally:
            _bar = None


@contextlib.contextmanager
def _without_bar(stream: IO[str]) -> Iterator[None]:
    """Hide the bar while a line is printed to the same terminal: rich would wrap the line and interpret its markup."""
    if _bar is None or not stream.isatty():
        yield
        return
    _bar.stop()
    try:
        yield
        stream.flush()
    finally:
        _bar.start()


# --- values -----------------------------------------------------------------------------------------------


def moment(ms: float) -> str:
    """Format a time (ms since 1970) as UTC text."""
    try:
        time = EPOCH + datetime.timedelta(milliseconds=ms)
    except (OverflowError, ValueError):
        # Only damaged data contains such a time.
        return f"{ms:.0f} ms since 1970"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def first_line(message: str) -> str:
    """Return the first non-empty line of a message."""
    return message.lstrip("\n").partition("\n")[0]


@contextlib.contextmanager
def row_progress(what: str) -> Iterator[Callable[[str, int], None]]:
    """Show on a terminal how many rows of which kind are done; show nothing when piped.

    The process can be forked meanwhile: no other thread draws the bar.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.completed} rows"), TimeElapsedColumn())
    with progress_bar(*columns, auto_refresh=False) as bar:
        task = bar.add_task(what, total=None)
        drawn = time.monotonic()

        def progress(kind: str, rows: int) -> None:
            nonlocal drawn
            now = time.monotonic()
            is_due = now - drawn >= REDRAW_SECONDS
            drawn = now if is_due else drawn
            bar.update(task, description=f"{what} {kind}", completed=rows, refresh=is_due)

        yield progress
