"""Turns of processes that commit to the same thing: the longest waiting one goes on first, the others make room.

Waits only: who commits is decided by the protocol alone, and everybody goes on after a bounded short time, whatever
others do. A commit that meets nobody never waits here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import changes
from hbasemk.format.changes import RowChange
from hbasemk.kernel.batches import journal_rows
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.retry import pause
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Row, Store

TURN: Final = 0.1
"""Seconds for which a process may go on committing what others wait for: shorter ones cost more, for each hand-over does."""
SHORTEST: Final = 0.002
LONGEST: Final = 1.0
"""Seconds that one wait takes at least and at most, before jitter."""
MOST_READ: Final = 20
"""Of so many of those that wait it is looked up what for."""

MOST_TOUCHED: Final = 1000
"""A commit to more nodes makes no room for others: it is not followed by the same one at once."""


def _columns(touched: Sequence[RowChange]) -> set[tuple[str, str]]:
    """Which properties and children a revision touches."""
    return {(row.path, name) for row in touched for name in (*row.properties, *row.present, *row.gone)}


def _touched(row: Row) -> set[tuple[str, str]]:
    try:
        return _columns(changes.of_row(row))
    except FormatError:
        # Damage that somebody left is no reason for this commit to fail; it waits for nobody because of it.
        return set()


class Turns:
    """The pace of one instance's commits on the head."""

    def __init__(self, store: Store, runtime: Runtime, journal: Journal, lease: Lease) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._lease = lease
        self._attempt = SHORTEST
        self._began: float | None = None
        self._last = 0.0
        self._touched: Sequence[RowChange] = ()

    def took(self, seconds: float) -> None:
        """An attempt took so long, on average: what waits are measured in."""
        self._attempt += (min(seconds, LONGEST) - self._attempt) / 8

    def committed(self, touched: Sequence[RowChange]) -> None:
        """A commit got through."""
        now = self._runtime.monotonic()
        if self._began is None or now - self._last > TURN:
            self._began = now
        self._last = now
        self._touched = touched if len(touched) <= MOST_TOUCHED else ()

    def make_room(self) -> bool:
        """Before a commit: wait once if this process has had its turn and others wait for the same; whether it did.

        One round trip for each turn in which others wait; none where nobody does.
        """
        now = self._runtime.monotonic()
        if self._began is None or now - self._began < TURN:
            return False
        if now - self._last > TURN:
            self._began = None
            return False
        waiting = self._journal.contention.waiting(self._lease.machine)
        if not waiting:
            return False
        self._began = now
        mine = _columns(self._touched)
        asked = journal_rows(self._store, self._runtime, waiting[:MOST_READ])
        if not any(mine & _touched(row) for row in asked):
            return False
        self._began = None
        self._wait(len(waiting))
        return True

    def wait_for_turn(self, since: int) -> None:
        """After a loss: the more others have waited longer than this process, whose first loss was ``since``, the longer."""
        waiting = self._journal.contention.waiting(self._lease.machine)
        self._wait(sum(1 for first in waiting if first < since))

    def _wait(self, others: int) -> None:
        seconds = min(max(others * self._attempt, SHORTEST), LONGEST)
        pause(self._runtime, seconds * (0.5 + self._runtime.random.random()))
