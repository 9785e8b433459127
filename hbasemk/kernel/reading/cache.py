"""A cache of node states, which serves reads near the head without a store call.

The journal's changes invalidate entries; time does not. Before any view contains a new revision, every node that the
revision touches leaves the cache. So an entry that is still present and was read at or before a view's position is
valid in that view (I5).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from hbasemk.format.node import NodeState
from hbasemk.kernel.journal.journal import Arrival
from hbasemk.kernel.journal.view import View

DEFAULT_ENTRIES: Final = 100_000


class Entry(NamedTuple):
    """A node state (None: no such node) that is valid from ``position`` of the sequence on."""

    position: int
    state: NodeState | None


class NodeCache:
    """The most recently used nodes of trunk, in two generations: an entry unused while one fills up is evicted.

    ``entries`` limits the number of cached nodes. ``horizon`` is the position of the last revision that joined before
    this cache listened to arrivals. The cache stores no state read at an older position, because that state may be
    stale. A thread that stores or moves an entry holds ``lock``; otherwise it could restore an entry that a concurrent
    arrival has just dropped. Lookups take no lock: each step is one dictionary operation.
    """

    def __init__(self, lock: AbstractContextManager[object], entries: int = DEFAULT_ENTRIES, horizon: int = -1) -> None:
        self._lock = lock
        self._half = max(1, entries // 2)
        self._young: dict[str, Entry] = {}
        self._old: dict[str, Entry] = {}
        self._touched: dict[str, int] = {}
        self._horizon = horizon

    def get(self, path: str, view: View) -> Entry | None:
        """Return the entry that is valid in the view, or None."""
        entry = self._young.get(path)
        if entry is None:
            entry = self._old.get(path)
            if entry is None:
                return None
            with self._lock:
                if self._old.get(path) is entry:
                    self._keep(path, entry)
        if entry.position <= view.position and view.extent is None:
            return entry
        return None

    def put(self, path: str, view: View, state: NodeState | None) -> None:
        """Store a state read in the view, unless a revision that arrived since then touched the node."""
        with self._lock:
            if view.extent is not None or view.position < self._horizon:
                return
            if self._touched.get(path, -1) <= view.position:
                self._keep(path, Entry(view.position, state))

    def arrived(self, arrival: Arrival) -> None:
        """Drop the nodes that an arriving revision touches. The journal calls this before any view contains it."""
        with self._lock:
            if len(self._touched) > 4 * self._half:
                # The cache can no longer distinguish older reads from stale ones, so it rejects them.
                self._horizon = arrival.position
                self._touched.clear()
            for change in arrival.changes:
                path = change.path
                before = self._touched.get(path, -1)
                self._touched[path] = arrival.position
                self._drop(path)
                built_on = arrival.built_on
                if arrival.states and path in arrival.states and before <= built_on and built_on >= self._horizon:
                    self._keep(path, Entry(arrival.position, arrival.states[path]))

    def forget(self, position: int) -> None:
        """Drop everything, including earlier reads: the revision announced at this position never joined."""
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
