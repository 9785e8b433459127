"""What commands share: the repository they work on, and how they print."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from hbasemk.repository import Repository, Snapshot


class Session:
    """One run of the command line."""

    def __init__(self, url: str | None, json_output: bool, debug: bool) -> None:
        self._url = url
        self.json = json_output
        self.debug = debug

    @property
    def url(self) -> str:
        """The repository's URL; raises a usage error when there is none."""
        if not self._url:
            raise click.UsageError("no repository: give --url, or set HBASEMK_URL")
        return self._url

    def override(self, url: str | None, form: str | None) -> None:
        """Options that stand behind the command count more."""
        self._url = url or self._url
        self.json = self.json if form is None else form == "json"

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
            click.echo(json.dumps(facts, indent=2, default=str))
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
    """Let ``--url`` and ``--output`` stand behind a command as well."""
    inner = command.callback
    assert inner is not None

    @click.pass_context
    def callback(context: click.Context, /, common_url: str | None, common_form: str | None, **given: Any) -> Any:
        context.obj.override(common_url, common_form)
        return context.invoke(inner, **given)

    command.callback = callback
    command.params += [
        click.Option(["--url", "common_url"], metavar="URL", help="The repository."),
        click.Option(["--output", "common_form"], type=click.Choice(["text", "json"]), help="For people or programs."),
    ]
    return command


def at(repository: Repository, revision: str | None) -> Snapshot:
    """The snapshot that a command looks at."""
    return repository.refresh() if revision is None else repository.at(revision)


def moment(ms: float) -> str:
    """A time in ms since 1970 as text in UTC."""
    when = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
