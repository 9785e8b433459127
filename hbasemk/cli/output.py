"""What commands share: the repository they work on, and how they print."""

from __future__ import annotations

import codecs
import datetime
import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hbasemk.repository import Repository, Snapshot


class Session:
    """One run of the command line: the repository, whether the output is JSON, whether errors show where they are from."""

    def __init__(self) -> None:
        self._url: str | None = None
        self.json = False
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

    def rows(self, rows: Iterable[Sequence[Any]], names: Sequence[str]) -> None:
        """Print rows: as lines with tabs, or as one JSON object a line."""
        for row in rows:
            if self.json:
                click.echo(json.dumps(dict(zip(names, row, strict=True)), default=str))
            else:
                click.echo("\t".join("" if cell is None else str(cell) for cell in row))

    def facts(self, facts: dict[str, Any]) -> None:
        """Print named facts: aligned, or as one JSON object."""
        if self.json:
            click.echo(json.dumps({name.replace(" ", "_"): value for name, value in facts.items()}, indent=2))
            return
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            if isinstance(value, list):
                click.echo(f"{name:<{width}}  {len(value)}")
                for one in value:
                    click.echo(" " * (width + 2) + "  ".join(str(part) for part in one.values()))
            else:
                click.echo(f"{name:<{width}}  {value}")


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


def prepare_streams() -> None:
    """Let names that are no text go out as the bytes that they are on disk, as other tools write them."""
    codecs.register_error("hbasemk", _as_on_disk)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="hbasemk")


def _as_on_disk(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    data = b"".join(
        bytes([ord(one) - 0xDC00]) if 0xDC80 <= ord(one) <= 0xDCFF else one.encode("ascii", "backslashreplace")
        for one in wrong
    )
    return data, error.end


def at(repository: Repository, revision: str | None) -> Snapshot:
    """The snapshot that a command looks at."""
    return repository.refresh() if revision is None else repository.at(revision)


def moment(ms: float) -> str:
    """A time in ms since 1970 as text in UTC."""
    when = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """A name or path for a message of one line."""
    return text if text.isprintable() else ascii(text)[1:-1]
