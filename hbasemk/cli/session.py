"""One run of the command line: its session, and the options and parameter types that commands share."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hbasemk.cli import output
from hbasemk.format.limits import shown

if TYPE_CHECKING:
    from hbasemk.repository import Repository
    from hbasemk.snapshot import Snapshot

Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")
"""A command, or the function of a command, to which an option is added."""


class Session:
    """One run of the command line: the repository's URL and the global options."""

    def __init__(self) -> None:
        self._url: str | None = None
        self.json = False
        self.null = False
        self.debug = False

    @property
    def url(self) -> str:
        """The repository's URL; raises a usage error if it is missing or names a repository in memory."""
        if not self._url:
            raise click.UsageError("no repository: give --url, or set HBASEMK_URL, for example to sqlite:///content.db")
        if self._url.lstrip().partition(":")[0].lower() == "memory":
            raise click.UsageError(
                f"{self._url!r} disappears when the command ends, and no other process sees it; use a sqlite:/// or hbase:// URL"
            )
        return self._url

    def choose(self, url: str | None, form: str | None, debug: bool) -> None:
        """Set the global options. Options after the command come last and take precedence."""
        self._url = self._url if url is None else url
        self.json = self.json if form is None else form == "json"
        self.debug = self.debug or debug

    def open(self, *, create: bool = False) -> Repository:
        """Open the repository without background work."""
        from hbasemk.opening import connect

        return connect(self.url, create=create, poll_interval=0)

    def message(self, text: str) -> str:
        """Return a message as the command shows it: whole in JSON, else its first line."""
        return text if self.json else output.first_line(text)

    def end_with_null(self) -> None:
        """End each line with a zero byte, since names may contain line feeds. Raise a usage error for JSON."""
        if self.json:
            raise click.UsageError(
                "-0 cannot be combined with JSON output, in which names are exact and each object is one line; leave it out"
            )
        self.null = True

    def rows(self, rows: Iterable[Sequence[Any]], names: Sequence[str]) -> None:
        """Print rows as lines with tabs, or as one JSON object per line."""
        for row in rows:
            if self.json:
                output.print_json(json.dumps(dict(zip(names, row, strict=True)), default=str))
            else:
                self.line(*("" if cell is None else str(cell) for cell in row))

    def committed(self, revision: str | None) -> None:
        """Print the revision that contains a change; if that fails, say so on standard error, since the change is committed."""
        try:
            self.rows([[revision]], ["revision"])
            output.flush()
        except BrokenPipeError:
            raise
        except OSError:
            output.complain(f"the change is committed, in revision {revision}, which cannot be printed")
            raise

    def line(self, *cells: str) -> None:
        """Print one line of cells with tabs between them."""
        output.print_line(cells, "\0" if self.null else "\n")

    def facts(self, facts: dict[str, Any], absent: Mapping[str, str] | None = None) -> None:
        """Print named facts as aligned lines, or as one JSON object.

        ``absent`` are the words that a line shows in the place of None, by name; JSON shows null.
        """
        if self.json:
            output.print_json(json.dumps({name.replace(" ", "_"): value for name, value in facts.items()}, indent=2))
            return
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            if isinstance(value, list):
                self.line(f"{name:<{width}}  {len(value)}")
                for record in value:
                    self.line(" " * (width + 2) + "  ".join(str(part) for part in record.values() if part is not None))
            else:
                self.line(f"{name:<{width}}  {(absent or {}).get(name, 'none') if value is None else value}")


def at(repository: Repository, revision: str | datetime.datetime | None) -> Snapshot:
    """Return the snapshot that a command reads: at the given revision or time, or the newest."""
    if revision is None:
        return repository.refresh()
    return repository.at(revision) if isinstance(revision, str) else repository.at(time=revision)


class Seconds(click.FloatRange):
    """A number of seconds, from 0 to ``most`` (None: without limit). ``endless`` allows infinity."""

    name = "seconds"

    def __init__(self, most: float | None = None, *, endless: bool = False) -> None:
        super().__init__(min=0, max=most)
        self._endless = endless

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if math.isnan(seconds) or (math.isinf(seconds) and not self._endless):
            kind = "number" if self._endless else "finite number"
            self.fail(f"{shown(str(value))} is not a {kind} of seconds, such as 90 or 0.5", param, ctx)
        try:
            checked: float = super().convert(seconds, param, ctx)
        except click.BadParameter:
            expected = "of at least 0" if self.max is None else f"from 0 to {self.max:.0f}"
            self.fail(f"{shown(str(value))} is out of range; expected a number of seconds {expected}", param, ctx)
        return checked


class Integer(click.IntRange):
    """An integer in a range. An error says which range."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        expected = f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{shown(str(value))} is not an integer; expected one {expected}", param, ctx)
        try:
            checked: int = super().convert(number, param, ctx)
        except click.BadParameter:
            self.fail(f"{shown(str(value))} is out of range; expected an integer {expected}", param, ctx)
        return checked


class Revision(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A revision id. An invalid id is a usage error that names the option."""

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
    help="End each line with a zero byte, for xargs -0: names may contain line feeds.",
)


DEBUG = click.option("--debug", is_flag=True, envvar="HBASEMK_DEBUG", help="Show the traceback of an error.")


def form_option(default: str | None) -> Callable[[Decorated], Decorated]:
    """Return the option ``--output``; its parameter is ``output_form``, None if there is no default."""
    return click.option(
        "--output",
        "output_form",
        type=click.Choice(["text", "json"]),
        default=default,
        show_default=default is not None,
        help="The output format: text for people, json for programs.",
    )


def with_common_options(command: click.Command) -> click.Command:
    """Accept ``--url``, ``--output`` and ``--debug`` after a command, too."""
    inner = command.callback
    assert inner is not None

    @click.pass_context
    def callback(context: click.Context, /, url: str | None, output_form: str | None, debug: bool, **given: Any) -> Any:
        context.obj.choose(url, output_form, debug)
        return context.invoke(inner, **given)

    command.callback = callback
    for option in (click.option("--url", metavar="URL", help="The repository's URL."), form_option(None), DEBUG):
        option(command)
    return command
