"""Node states that reads at head can take without asking the store.

Entries are kept right by the journal's changes, not by time: when a revision becomes visible, every node it touches
leaves the cache before any snapshot contains that revision. So an entry that is still here and was read at or before
a snapshot's position is what that snapshot shows (I5).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from hbasemk.format.node import NodeState
from hbasemk.kernel.journal.journal import Arrival
from hbasemk.kernel.journal.view import View

DEFAULT_ENTRIES: Final = 100_000


class Entry(NamedTuple):
    """A node state (None: no such node) that holds from ``position`` of the sequence on."""

    position: int
    state: NodeState | None


class NodeCache:
    """The last used nodes of trunk, in two generations: what is not used while one fills up is dropped.

    ``entries`` bounds the number of nodes kept. ``horizon`` is the position of the last revision that joined the sequence
    before this cache was told of arrivals: what is read at an older one is not kept, because nobody could say whether it
    still holds. What puts an entry in or moves one holds ``lock`` against arrivals, else it could bring
    back what one has just dropped. Reading alone takes no lock: each step is one dictionary operation.
    """

    def __init__(self, lock: AbstractContextManager[object], entries: int = DEFAULT_ENTRIES, horizon: int = -1) -> None:
        self._lock = lock
        self._half = max(1, entries // 2)
        self._young: dict[str, Entry] = {}
        self._old: dict[str, Entry] = {}
        self._touched: dict[str, int] = {}
        self._horizon = horizon

    def get(self, path: str, snapshot: View) -> Entry | None:
        """The entry that holds at the snapshot, if there is one."""
        entry = self._young.get(path)
        if entry is None:
            entry = self._old.get(path)
            if entry is None:
                return None
            with self._lock:
                if self._old.get(path) is entry:
                    self._keep(path, entry)
        if entry.position <= snapshot.position and not snapshot.own:
            return entry
        return None

    def put(self, path: str, snapshot: View, state: NodeState | None) -> None:
        """Keep what was read at the snapshot, unless a revision that arrived since touched the node."""
        with self._lock:
            if snapshot.own or snapshot.position < max(self._horizon, -1):
                return
            if self._touched.get(path, -2) <= snapshot.position:
                self._keep(path, Entry(snapshot.position, state))

    def arrived(self, arrival: Arrival) -> None:
        """A revision becomes visible: forget what it touches. Called before any snapshot contains it."""
        with self._lock:
            if len(self._touched) > 4 * self._half:
                # Older reads can no longer be told apart from stale ones, so they are not kept.
                self._horizon = arrival.position
                self._touched.clear()
            for change in arrival.changes:
                path = change.path
                before = self._touched.get(path, -2)
                self._touched[path] = arrival.position
                self._drop(path)
                built_on = arrival.built_on
                if (
                    arrival.states
                    and path in arrival.states
                    and before <= built_on
                    and built_on >= max(self._horizon, -1)
                ):
                    self._keep(path, Entry(arrival.position, arrival.states[path]))

    def forget(self, position: int) -> None:
        """What was told of this position has not come to be there: keep nothing, and nothing read before it either."""
        with self._lock:
            self._horizon = position
            self._touched.clear()
            self._young.clear()
            self._old.clear()

    def _keep(self, path: str, entry: Entry) -> None:
        if len(self._young) >= self._half:
            self._old = self._young
            self._young = {}
        self._young[path] = entry

    def _drop(self, path: str) -> None:
        self._young.pop(path, None)
        self._old.pop(path, None)
