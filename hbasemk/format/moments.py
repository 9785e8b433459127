"""Times of the API: aware datetimes in UTC."""

from __future__ import annotations

import datetime
from typing import Final

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_EARLIEST: Final = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)
_LATEST: Final = datetime.datetime.max.replace(microsecond=999_000, tzinfo=datetime.timezone.utc)


def moment(ms: int) -> datetime.datetime:
    """Return a time in ms since 1970 as a datetime in UTC; the first or last one possible for times beyond."""
    try:
        return EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        return _LATEST if ms > 0 else _EARLIEST


def ms_of(time: datetime.datetime) -> int:
    """Return an aware datetime in ms since 1970, rounded down: what has the same ms may be later."""
    return (time - EPOCH) // datetime.timedelta(milliseconds=1)
