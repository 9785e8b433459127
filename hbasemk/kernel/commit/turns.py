"""Turns of processes whose commits conflict: the process that has waited longest goes first.

This module only waits; the protocol alone decides which commit wins. Every wait is short and bounded, whatever the other
processes do. A commit without a conflict never waits here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.retry import wait_before_retry
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime

TURN: Final = 0.1
"""Seconds for which a process may commit to columns that others wait for. A hand-over costs time, so turns are not shorter."""
SHORTEST: Final = 0.002
LONGEST: Final = 1.0
"""The bounds of one wait in seconds, before jitter."""
SHOWN_FOR: Final = 1.0
"""Seconds after which a process that still waits shows so again; less than others remember it (contention.EXPIRES_MS)."""
MOST_READ: Final = 20
"""The maximum number of waiting revisions whose journal rows are read."""
MOST_TOUCHED: Final = 1000
"""A commit to more nodes than this does not make room for others: it is rarely repeated at once."""


def columns_of(touched: Sequence[RowChange]) -> set[tuple[str, str]]:
    """Return the properties and children that a revision touches."""
    return {
        (row.path, name) for row in touched for name in (*row.properties, *row.children_added, *row.children_removed)
    }


def _touched(row: JournalRow) -> set[tuple[str, str]]:
    try:
        return columns_of(row.changes)
    except FormatError:
        # A damaged row must not fail this commit; the commit does not wait for that revision.
        return set()


class Turns:
    """The waits of one instance's commits on the head."""

    def __init__(self, store: RetryingStore, runtime: Runtime, journal: Journal, lease: Lease) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._lease = lease
        self._attempt_seconds = SHORTEST
        # When the series of commits began that is this process's present turn; None: there is none.
        self._turn_began: float | None = None
        self._last_commit = 0.0
        self._shown: float | None = None
        self._touched: Sequence[RowChange] = ()

    def record_attempt(self, seconds: float) -> None:
        """Record how long an attempt took; the average is the unit of waits."""
        self._attempt_seconds += (min(seconds, LONGEST) - self._attempt_seconds) / 8

    def record_commit(self, touched: Sequence[RowChange]) -> None:
        """Record a successful commit."""
        now = self._runtime.monotonic()
        if self._turn_began is None or now - self._last_commit > TURN:
            self._turn_began = now
        self._last_commit = now
        self._shown = None
        self._touched = touched if len(touched) <= MOST_TOUCHED else ()

    def must_show(self) -> bool:
        """Return whether other processes do not know that this one waits; count it as shown from now on."""
        now = self._runtime.monotonic()
        if self._shown is not None and now - self._shown < SHOWN_FOR:
            return False
        self._shown = now
        return True

    def make_room(self, deadline: float) -> bool:
        """Wait once before a commit if this process has had its turn and others wait for the same; return whether it did.

        It waits until ``deadline`` at most. One round trip for each turn in which others wait; otherwise none.
        """
        now = self._runtime.monotonic()
        if self._turn_began is None or now - self._turn_began < TURN:
            return False
        if now - self._last_commit > TURN:
            self._turn_began = None
            return False
        waiting = self._journal.contention.waiting(self._lease.machine)
        if not waiting:
            return False
        self._turn_began = now
        mine = columns_of(self._touched)
        rows = journal_rows(self._store, waiting[:MOST_READ])
        if not any(mine & _touched(row) for row in rows):
            return False
        self._turn_began = None
        self._wait(len(waiting), deadline)
        return True

    def wait_for_turn(self, since: int, deadline: float) -> None:
        """Wait after a conflict until ``deadline`` at most, in proportion to the number of processes that have waited longer.

        ``since`` is the revision of this commit's first conflict.
        """
        waiting = self._journal.contention.waiting(self._lease.machine)
        self._wait(sum(1 for first in waiting if first < since), deadline)

    def _wait(self, others: int, deadline: float) -> None:
        longest = max(deadline - self._runtime.monotonic(), 0)
        seconds = min(max(others * self._attempt_seconds, SHORTEST), LONGEST)
        wait_before_retry(self._runtime, min(seconds * (0.5 + self._runtime.random.random()), longest))
