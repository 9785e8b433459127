"""Times of the API: aware datetimes in UTC."""

from __future__ import annotations

import datetime
from typing import Final

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_LATEST: Final = datetime.datetime.max.replace(microsecond=999_000, tzinfo=datetime.timezone.utc)


def moment(ms: int) -> datetime.datetime:
    """Return a time in ms since 1970 as a datetime in UTC; the last one possible for times after it."""
    try:
        return _EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        return _LATEST


def ms_of(time: datetime.datetime) -> int:
    """Return an aware datetime in ms since 1970, rounded down: what has the same ms may be later."""
    return (time - _EPOCH) // datetime.timedelta(milliseconds=1)
