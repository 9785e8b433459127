"""What commands share: the repository they work on, and how they print.

Everything that a command prints goes through this module. Names, values, messages and error texts may hold anything, so there is
one rule (decision 26): on a terminal, characters that control it are shown as escapes; in a pipe or a file, standard output has
the exact text in UTF-8. Standard error is for people: it always shows escapes, and a message is one line.
"""

from __future__ import annotations

import codecs
import contextlib
import datetime
import errno
import io
import json
import logging
import math
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from hbasemk.repository import Repository
    from hbasemk.snapshot import Snapshot

STANDARD_OUTPUT: Final = "standard output"

_UNSAFE: Final = re.compile(
    # Controls (C0, DEL, C1) and what ends a line.
    "[\x00-\x1f\x7f-\x9f\u2028\u2029"
    # Marks, embeddings, overrides and isolates, which reorder text, and other characters that format it without being seen.
    # ZWNJ and ZWJ (200c, 200d) join letters and emoji and stay.
    "\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # Surrogates that stand alone: bytes that are not UTF-8, or halves of a pair.
    "\ud800-\udfff]"
)
_NAMED: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_KEPT_IN_TEXTS: Final = "\n\t"
_UNESCAPED_IN_JSON: Final = re.compile("[\x7f\ud800-\udfff]")
"""Characters that JSON writers may leave as they are, although UTF-8 has no form for them or some terminals delete them."""


class Session:
    """One run of the command line: the repository, whether the output is JSON, whether errors show where they are from."""

    def __init__(self) -> None:
        self._url: str | None = None
        self.json = False
        self.null = False
        self.debug = False

    @property
    def url(self) -> str:
        """The repository's URL; raises a usage error when there is none, or it is one in memory."""
        if not self._url:
            raise click.UsageError("no repository: give --url, or set HBASEMK_URL")
        if self._url.lstrip().partition(":")[0].lower() == "memory":
            raise click.UsageError(
                f"{self._url!r} is gone when the command ends, and no other process sees it; use a sqlite:/// or hbase:// URL"
            )
        return self._url

    def choose(self, url: str | None, form: str | None, debug: bool) -> None:
        """Take over what was given; options behind the command come later and count more."""
        self._url = url or self._url
        self.json = self.json if form is None else form == "json"
        self.debug = self.debug or debug

    def open(self, *, create: bool = False) -> Repository:
        """The repository, without background work."""
        from hbasemk.connect import connect

        return connect(self.url, create=create, poll_interval=0)

    def end_with_null(self) -> None:
        """End each line with a zero byte: names may contain line feeds. Raises a usage error for JSON."""
        if self.json:
            raise click.UsageError("-0 is for text; in JSON every name is exact, and each object is one line")
        self.null = True

    def rows(self, rows: Iterable[Sequence[Any]], names: Sequence[str]) -> None:
        """Print rows: as lines with tabs, or as one JSON object a line."""
        for row in rows:
            if self.json:
                print_json(json.dumps(dict(zip(names, row, strict=True)), default=str))
            else:
                self.line(*("" if cell is None else str(cell) for cell in row))

    def line(self, *cells: str) -> None:
        """Print one line of cells with tabs between them."""
        _write("\t".join(map(_shown, cells)) + ("\0" if self.null else "\n"))

    def facts(self, facts: dict[str, Any]) -> None:
        """Print named facts: aligned, or as one JSON object."""
        if self.json:
            print_json(json.dumps({name.replace(" ", "_"): value for name, value in facts.items()}, indent=2))
            return
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            if isinstance(value, list):
                self.line(f"{name:<{width}}  {len(value)}")
                for one in value:
                    self.line(" " * (width + 2) + "  ".join(str(part) for part in one.values()))
            else:
                self.line(f"{name:<{width}}  {value}")


class Seconds(click.FloatRange):
    """A number of seconds, 0 or more; not infinite, and not a NaN."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a finite number of seconds", param, ctx)
        return seconds


class Revision(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A revision id. A wrong one is a usage error that names the option."""

    name = "revision"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from hbasemk.errors import InvalidRevisionError
        from hbasemk.format import revisions

        try:
            return revisions.to_text(revisions.from_text(value))
        except InvalidRevisionError as error:
            self.fail(str(error), param, ctx)


NULL = click.option(
    "-0",
    "--null",
    is_flag=True,
    help="End each line with a zero byte, as xargs -0 takes it: names may contain line feeds.",
)


def with_common_options(command: click.Command) -> click.Command:
    """Let ``--url``, ``--output`` and ``--debug`` stand behind a command as well."""
    inner = command.callback
    assert inner is not None

    @click.pass_context
    def callback(
        context: click.Context, /, common_url: str | None, common_form: str | None, common_debug: bool, **given: Any
    ) -> Any:
        context.obj.choose(common_url, common_form, common_debug)
        return context.invoke(inner, **given)

    command.callback = callback
    command.params += [
        click.Option(["--url", "common_url"], metavar="URL", help="The repository."),
        click.Option(["--output", "common_form"], type=click.Choice(["text", "json"]), help="For people or programs."),
        click.Option(["--debug", "common_debug"], is_flag=True, help="Show where an error comes from."),
    ]
    return command


# --- what goes out ----------------------------------------------------------------------------------------


def prepare_streams() -> None:
    """Let texts go out as they are: in UTF-8 unless to a terminal, whatever the locale; no character is an error."""
    codecs.register_error("hbasemk", _as_bytes)
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="hbasemk", newline="\n")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")


def _as_bytes(error: UnicodeError) -> tuple[bytes, int]:
    """Surrogates as bytes: the undecodable byte of a file's name as itself, another one as the repository stores it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    data = b"".join(
        bytes([ord(one) - 0xDC00]) if 0xDC80 <= ord(one) <= 0xDCFF else one.encode("utf-8", "surrogatepass")
        for one in wrong
    )
    return data, error.end


def visible(text: str) -> str:
    """The text in one line, with escapes for the characters that control a terminal or reorder what it shows."""
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in _NAMED:
        return _NAMED[found[0]]
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        # An undecodable byte of a file's name; the C1 controls are \\u0080 and so on.
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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
    """The text with all of its lines indented as its first one may be; a terminal shows it in one line anyway."""
    return text if _on_terminal() else text.replace("\n", "\n    ")


def print_text(text: str) -> None:
    """Print a text that is all that the command prints; on a terminal with its line feeds and tabs, and one at its end."""
    if not _on_terminal():
        _write(text)
        return
    _write(_visible_text(text) + "\n")


def _visible_text(text: str) -> str:
    return _UNSAFE.sub(lambda found: found[0] if found[0] in _KEPT_IN_TEXTS else _escape(found), text)


def print_bytes(pieces: Iterable[bytes]) -> None:
    """Print bytes exactly; on a terminal as UTF-8 text, with escapes for bytes that are not UTF-8."""
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
    """Print JSON or JSOP, or a part of it, which stays valid: what is escaped can only be in a string."""
    if _on_terminal():
        text = "\n".join(_UNSAFE.sub(_escape_json, line) for line in text.split("\n"))
    else:
        text = _UNESCAPED_IN_JSON.sub(_escape_json, text)
    _write(text + end)


def _write(piece: str | bytes) -> None:
    stream = sys.stdout
    if stream is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), STANDARD_OUTPUT)
    with _without_bar(stream), _named_errors(stream):
        if isinstance(piece, str):
            stream.write(piece)
        else:
            stream.buffer.write(piece)


def flush() -> None:
    """Send buffered output to its reader. Raises BrokenPipeError, and OSError that names standard output."""
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


def discard(stream: IO[str]) -> None:
    """Send the buffered and all later output of a stream nowhere: else the process fails again when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def complain(text: str) -> None:
    """Print a message of one line to standard error, where nobody may be listening."""
    _say(f"hbasemk: {visible(text)}")


class _Log(logging.Handler):
    """Prints what the library logs as messages like any others."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


@contextlib.contextmanager
def logged_as_messages() -> Iterator[None]:
    """Print warnings of the library meanwhile, which logging would print as they are."""
    logger, handler = logging.getLogger("hbasemk"), _Log(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def complain_lines(text: str) -> None:
    """Print lines to standard error as they are, but for escapes."""
    _say(visible_lines(text))


def visible_lines(text: str) -> str:
    """The text with its lines, and escapes in each of them."""
    return "\n".join(map(visible, text.split("\n")))


def complain_usage(error: click.ClickException) -> None:
    """Print what is wrong with the arguments, below how the command is used."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        _say(context.get_usage())
        if context.command.get_help_option(context) is not None:
            _say(f"Try '{context.command_path} {context.help_option_names[0]}' for help.\n")
    _say(f"Error: {visible(error.format_message())}")


def complain_traceback(error: BaseException) -> None:
    """Print where an error comes from. Lines of code keep their line feeds, texts of errors do not."""
    for piece in traceback.format_exception(type(error), error, error.__traceback__):
        ours = piece.startswith(("  ", "\n", "Traceback "))
        text = piece.rstrip("\n")
        _say(visible_lines(text) if ours else visible(text))


def _say(text: str) -> None:
    stream = sys.stderr
    if stream is None or stream.closed:
        return
    # An error counts even when nobody hears of it.
    try:
        with _without_bar(stream):
            stream.write(text + "\n")
            stream.flush()
    except OSError:
        discard(stream)


def os_error_text(error: OSError) -> str:
    """What went wrong, and with which file."""
    if error.strerror is None:
        return str(error)
    names = [
        os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes, os.PathLike))
    ]
    return f"{' -> '.join(names)}: {error.strerror}" if names else error.strerror


# --- progress ---------------------------------------------------------------------------------------------

_bar: Progress | None = None
"""What is drawn at the bottom of the terminal now."""


@contextlib.contextmanager
def progress_bar(*columns: ProgressColumn) -> Iterator[Progress]:
    """A bar on standard error, if that is a terminal; descriptions are shown as they are, not as markup."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    global _bar
    console = Console(stderr=True)
    first = TextColumn("{task.description}", markup=False)
    with Progress(
        first,
        *columns,
        console=console,
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
    """Take the bar away while a line is printed to the same terminal: rich would wrap the line and interpret what is in it."""
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


def at(repository: Repository, revision: str | None) -> Snapshot:
    """The snapshot that a command looks at."""
    return repository.refresh() if revision is None else repository.at(revision)


def moment(ms: float) -> str:
    """A time in ms since 1970 as text in UTC."""
    try:
        when = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        # Only damaged data says so.
        return f"{ms:.0f} ms since 1970"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def first_line(message: str) -> str:
    """The first line of a message that is not empty."""
    return message.lstrip("\n").partition("\n")[0]
