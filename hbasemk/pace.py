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
LONGEST_COSTLY_GAP: Final = 0.03
SHARE_OF_IDLE: Final = 140
"""Where a thread that wakes up uses much of a processor, the longest gap is this many times as long: up to 30 ms, so that an
idle process takes less than 1 % of a core."""
SMOOTHING: Final = 1 / 16
"""The weight of the last comparison in the average of their processor time."""
GAP_SHARE: Final = 0.02
"""The pause between two comparisons, as a fraction of the time since the last news."""
SHORTEST_POLL_GAP: Final = 0.02
POLL_GAP_SHARE: Final = 0.05
"""On a store without a change counter, the shortest pause between two polls in seconds, and the pause as a fraction of the
time since the last news."""
SHARE_OF_PROCESSOR: Final = 100
SHARE_WITHOUT_COUNTER: Final = 50
SHARE_IF_AWAITED: Final = 25
"""After a poll for a changed store, the thread pauses this many times as long as the poll used a processor: less on a store
without a change counter, and if a thread waits for news. The pause is at most :data:`LONGEST_REST`, and at most the polling
interval."""


def rest(least: float, took: float, most: float = LONGEST_REST) -> float:
    """Return the seconds to pause after a poll that took ``took`` seconds.

    A poll that takes long waits for others, and more polls would hold them up. So the pause grows with it, up to ``most``
    seconds; it is never shorter than ``least``.
    """
    return max(least, min(SHARE_OF_TIME * took, most))


class Pace:
    """The pauses of one instance. Times are in seconds of a monotonic clock.

    An instance compares the store's change counter (:meth:`after_comparison`), and polls when it has changed
    (:meth:`after_poll`). On a store without a counter it only polls (:meth:`after_poll_without_counter`).
    """

    def __init__(self, now: float, interval: float) -> None:
        self._interval = interval
        self._news_at = now
        self._polled_news_at = float("-inf")
        self._after_poll = SHORTEST_GAP
        self._busy = 0.0
        """The average processor time of one comparison, with the waking up for it."""

    def after_comparison(self, now: float, busy: float) -> float:
        """Return the pause after a comparison that found the counter unchanged.

        ``busy``: the processor time that the thread has used since the last comparison.
        """
        self._after_poll = SHORTEST_GAP
        self._busy += (busy - self._busy) * SMOOTHING
        longest = min(max(self._busy * SHARE_OF_IDLE, LONGEST_GAP), LONGEST_COSTLY_GAP)
        return min(max((now - self._news_at) * GAP_SHARE, SHORTEST_GAP), longest)

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

    def after_poll_without_counter(self, now: float, *, found: bool, awaited: bool, busy: float, took: float) -> float:
        """Return the pause after a poll that began at ``now``, on a store where only a poll shows what is new.

        It is short after news, and grows to the interval: soon after one commit of another process, the next one is likely.
        For the arguments see :meth:`after_poll`.
        """
        if found:
            self._polled_news_at = now
        gap = max((now - self._polled_news_at) * POLL_GAP_SHARE, SHORTEST_POLL_GAP)
        share = SHARE_IF_AWAITED if awaited else SHARE_WITHOUT_COUNTER
        return rest(min(max(gap, share * busy), self._interval), took)
