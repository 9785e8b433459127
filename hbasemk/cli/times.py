"""Parameter types of times: durations, such as 2h, and points in the history, which are a revision or a time."""

from __future__ import annotations

import datetime
import re
from typing import Any, Final

import click

from hbasemk.cli.session import Revision
from hbasemk.format.limits import shown

UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_ISO: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_REVISION: Final = re.compile(r"[0-9a-f]{16}")
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([smhdw])")


def seconds_of(text: str) -> float | None:
    """Return a duration, such as 90s, 1h30m or 1.5d, in seconds; None if the text is not a duration."""
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return sum(float(number) * UNITS[unit] for number, unit in parts)


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A duration in seconds; the library checks its range."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = seconds_of(value)
        if seconds is None:
            self.fail(
                f"{shown(value)} is not a duration; expected numbers with the units s, m, h, d or w, such as 90s or 1h30m",
                param,
                ctx,
            )
        return seconds


class Date(click.DateTime):
    """A date, with or without a time, in UTC, as a naive datetime."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(
                f"{shown(value)} is not a date; expected one such as 2025-01-31, or 2025-01-31T12:00:00 in UTC",
                param,
                ctx,
            )


class When(Revision):
    """A revision id as text, or a time as an aware datetime: an ISO date and time, in UTC by default, or a duration ago."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        # A revision id may consist of digits and d, as a duration in days.
        seconds = None if _REVISION.fullmatch(value) else seconds_of(value)
        try:
            if seconds is not None:
                return datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds)
            if _ISO.match(value):
                time = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
                return time if time.tzinfo is not None else time.replace(tzinfo=datetime.timezone.utc)
        except OverflowError:
            self.fail(
                f"{shown(value)} is too long ago; expected a duration such as 2h",
                param,
                ctx,
            )
        except ValueError as error:
            self.fail(f"{shown(value)} is not a time: {error}", param, ctx)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"{error.message}, a time such as 2026-01-31T12:00Z, or a duration such as 2h", param, ctx)


class Since(When):
    """The token of a watch as text, or a point in the history."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from hbasemk.kernel.journal.resume_token import PREFIX

        if value.startswith(PREFIX):
            return value
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"{error.message}, or the token of a watch", param, ctx)
