"""The pauses of background polling: how soon an instance looks for news again (decision 28)."""

from __future__ import annotations

from typing import Final

LONGEST_REST: Final = 1.0
"""Seconds that polling pauses after a slow poll; one that hung in an outage must not keep it silent afterwards."""
SHARE_OF_TIME: Final = 5
"""Polling pauses this many times as long as the last poll took, but not without limit: see :func:`rest`."""
SHORTEST_GAP: Final = 0.002
LONGEST_GAP: Final = 0.015
"""The shortest and longest time in seconds between two comparisons of a store's change counter."""
GAP_SHARE: Final = 0.02
"""The pause between two comparisons, as a fraction of the time since the last news."""
SHARE_OF_PROCESSOR: Final = 100
SHARE_IF_AWAITED: Final = 25
"""After a poll for a changed store, the thread pauses this many times as long as the poll used a processor: less if a thread
waits for news. The pause is at most :data:`LONGEST_REST`, and at most the polling interval."""


def rest(least: float, took: float, most: float = LONGEST_REST) -> float:
    """Return the seconds to pause after a poll that took ``took`` seconds.

    A poll that takes long waits for others, and more polls would hold them up. So the pause grows with it, up to ``most``
    seconds; it is never shorter than ``least``.
    """
    return max(least, min(SHARE_OF_TIME * took, most))


class Pace:
    """The pauses of one instance on a store with a change counter. Times are in seconds of a monotonic clock."""

    def __init__(self, now: float, interval: float) -> None:
        self._interval = interval
        self._news_at = now
        self._after_poll = SHORTEST_GAP

    def after_comparison(self, now: float) -> float:
        """Return the pause after a comparison that found the counter unchanged."""
        self._after_poll = SHORTEST_GAP
        return min(max((now - self._news_at) * GAP_SHARE, SHORTEST_GAP), LONGEST_GAP)

    def after_poll(self, now: float, *, found: bool, awaited: bool, busy: float, took: float) -> float:
        """Return the pause after a poll that began at ``now``, because the counter had changed.

        ``found``: the poll found a revision. ``awaited``: a thread waits for one. ``busy``: the processor time of the poll.
        """
        if found:
            self._news_at = now
            self._after_poll = SHORTEST_GAP
        else:
            # The commits of this instance and renewals of leases change the store too. While polls find nothing else, they
            # become rarer.
            self._after_poll = min(self._after_poll * 2, self._interval, LONGEST_REST)
        share = SHARE_IF_AWAITED if awaited else SHARE_OF_PROCESSOR
        least = max(self._after_poll, min(share * busy, self._interval, LONGEST_REST))
        return rest(least, took, self._interval)
