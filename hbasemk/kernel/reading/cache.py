"""A cache of nodes and of lists of children, which serves reads without a store call (decision 45).

The journal's changes invalidate entries; time does not. Before any view contains a new revision, everything that the
revision touches leaves the cache. So an entry that is still present is valid in each view from its position on (I5). A list of
children stays, with the names that revisions have added and removed since. What is read in an older view, or in one with an
extent, is kept for that view alone: a view never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, Final, NamedTuple

from hbasemk.format.changes import ADDED, LIVES
from hbasemk.format.extent import Extent
from hbasemk.format.node import NodeState
from hbasemk.kernel.journal.known_revisions import Arrival
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.changed_lists import ChangedLists
from hbasemk.kernel.reading.kept_walks import KeptWalks
from hbasemk.kernel.reading.memory_sizes import size_of_absence, size_of_extent, size_of_names, size_of_state

DEFAULT_BYTES: Final = 64 * 1024 * 1024
MOST_STATES: Final = 100_000
"""A commit that touches more nodes than this does not offer their new states to the cache."""
UNKNOWN: Final[Any] = object()
"""Stands for the state of a node that was not read."""
_NEVER: Final = 1 << 62
"""The position of what is not known: no view reaches it."""
_WALKS: Final = 8
_CHANGED: Final = 8
"""Kept walks and changed lists of children may each fill this part of the cache."""
_PER_TOUCHED: Final = 2048
"""For each so many bytes, the cache remembers the last revision that touched one more path."""


_new: Final = tuple.__new__
"""Creates an Entry from a tuple of its fields, at a third of the cost of calling the class."""


class Entry(NamedTuple):
    """What is known about the node at a path: its state (None: no such node) and the names of all its children, in order.

    The state is valid from ``position`` of the sequence on, the names from ``names_position`` on. ``names_size`` is the size of
    the names in bytes, ``size`` that of all. The entry of an extent has only a number, in ``position``: it stands for the extent
    in the keys of entries that are valid in one view only.
    """

    position: int
    state: NodeState | None
    names_position: int
    names: Sequence[str]
    names_size: int
    size: int


_state_since: Final = attrgetter("position")
state_of: Final = attrgetter("state")
names_since: Final = attrgetter("names_position")
_NOTHING: Final = Entry(_NEVER, None, _NEVER, (), 0, 0)


class CacheStatistics(NamedTuple):
    """Numbers of lookups that found an entry or none, and the approximate size of all entries in bytes."""

    hits: int
    misses: int
    bytes: int


class NodeCache:
    """The most recently used nodes and lists of children, in at most about ``limit`` bytes.

    There are two generations: an entry unused while one fills up is evicted. ``horizon`` is the position of the last revision
    that joined before this cache listened to arrivals. What was read at an older position may be stale later, so the cache
    keeps it for its own view only. A thread that stores, moves or drops an entry holds ``lock``; otherwise it could restore an
    entry that a concurrent arrival has just dropped. Lookups take no lock: each step is one dictionary operation.
    """

    def __init__(self, lock: AbstractContextManager[object], limit: int = DEFAULT_BYTES, horizon: int = -1) -> None:
        self._lock = lock
        self.walks = KeptWalks(lock, limit // _WALKS, horizon)
        """The whole walks that the cache has served."""
        self._changed = ChangedLists(limit // _CHANGED)
        self._half = (limit - limit // _WALKS - limit // _CHANGED) // 2
        self._most_touched = 16 + limit // _PER_TOUCHED
        self._young: dict[object, Entry] = {}
        self._old: dict[object, Entry] = {}
        self._young_size = self._old_size = 0
        self._touched: dict[str, int] = {}
        self._horizon = horizon
        self._hits = self._misses = 0
        self._last_number = -1
        """Below all positions. So the numbers of extents are no positions."""
        self._has_views = False
        """Whether an entry for one view alone has ever been stored; most caches have none, and most lookups then end sooner."""

    @property
    def statistics(self) -> CacheStatistics:
        """The counters. They are approximate if several threads read at the same time."""
        size = self._young_size + self._old_size + self.walks.size + self._changed.size
        return CacheStatistics(self._hits, self._misses, size)

    @property
    def walk_bytes(self) -> int:
        """The largest part of the cache, in bytes, that one walk over a subtree may fill."""
        return self._half // 2

    # --- lookups -----------------------------------------------------------------------------------------

    def get(self, path: str, view: View) -> Entry | None:
        """Return an entry whose state is valid in the view, or None. Its names may be unknown."""
        return self._find(path, view, _state_since)

    def get_all(self, node_paths: Sequence[str], view: View) -> Sequence[Entry | None]:
        """Return what :meth:`get` returns for each path; much faster if all entries were used recently."""
        found = list(map(self._young.get, node_paths))
        if found and all(found) and max(map(_state_since, found)) <= view.position and view.extent is None:
            self._hits += len(found)
            return found
        return [self.get(path, view) for path in node_paths]

    def count_hits(self, hits: int) -> None:
        """Count lookups that a kept walk has saved."""
        self._hits += hits

    def get_with_names(self, path: str, view: View) -> Entry | None:
        """Return an entry whose state and names are both valid in the view, or None."""
        self._restore(path)
        entry = self.get(path, view)
        return entry if entry is not None and entry.names_position <= view.position else None

    def children(self, path: str, view: View) -> Sequence[str] | None:
        """Return the names of all children of a node in the view, in order; None if they are not known."""
        self._restore(path)
        entry = self._find(path, view, names_since)
        return None if entry is None else entry.names

    def _restore(self, path: str) -> None:
        """Put a list of children, if revisions have changed it, back into the entry of its node."""
        if path not in self._changed:
            return
        with self._lock:
            if path in self._changed:
                known = self._drop(path)
                self._keep(path, _entry(path, known.position, known.state, *self._changed.take(path)))

    def _find(self, path: str, view: View, since: Callable[[Entry], int]) -> Entry | None:
        """Return an entry that is valid from the position ``since`` on, if the view reaches it; else None."""
        entry = self._young.get(path) or self._promoted(path)
        if entry is None or since(entry) > view.position or view.extent is not None:
            entry = self._in_view(path, view)
            if entry is None or since(entry) > view.position:
                self._misses += 1
                return None
        self._hits += 1
        return entry

    def _in_view(self, path: str, view: View) -> Entry | None:
        """Return the entry for this view alone, or None."""
        if view.own or not self._has_views:
            return None
        number = view.position
        if view.extent is not None:
            kept = self._young.get(view.extent) or self._promoted(view.extent)
            if kept is None:
                return None
            number = kept.position
        key = _key_in_view(path, number)
        return self._young.get(key) or self._promoted(key)

    def _promoted(self, key: object) -> Entry | None:
        """Return an entry of the old generation, and move it to the young one."""
        entry = self._old.get(key)
        if entry is None:
            return None
        with self._lock:
            if self._old.get(key) is entry:
                self._drop(key)
                self._keep(key, entry)
        return entry

    # --- changes -----------------------------------------------------------------------------------------

    def put(self, path: str, view: View, state: NodeState | None) -> None:
        """Store a node that was read in the view (None: there is none)."""
        self.put_all(view, ((path, state, None),))

    def put_all(self, view: View, found: Iterable[tuple[str, NodeState | None, Sequence[str] | None]]) -> int:
        """Store nodes that were read in the view: path, state (or :data:`UNKNOWN`), and the names of all children (or None).

        Nobody may change the names. Returns the size of what was stored, in bytes.
        """
        if view.own:
            # A branch may be swept, and its reader must notice.
            return 0
        stored = 0
        position = number = view.position
        with self._lock:
            if view.extent is not None:
                number = self._keep_extent(view.extent)
                if number == _NEVER:
                    return 0
            horizon = self._horizon if view.extent is None else _NEVER
            touched = self._touched
            for path, state, names in found:
                since = max(touched.get(path, horizon), horizon)
                key: object = path
                if since > position:
                    since, key = position, _key_in_view(path, number)
                    self._has_views = True
                known = self._drop(key)
                state_since = names_since = since
                if state is UNKNOWN:
                    state_since, state = known.position, known.state
                if names is None:
                    names_since, names, names_size = known.names_position, known.names, known.names_size
                else:
                    names_size = size_of_names(names)
                    if key is path:
                        self._changed.drop(path)
                stored += self._keep(key, _entry(path, state_since, state, names_since, names, names_size))
        return stored

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Drop what arriving revisions touch; keep lists of children, with the names that they change.

        The journal calls this before any view contains the revisions.
        """
        with self._lock:
            self.walks.arrived(arrivals)
            touched = self._touched
            for _, position, changes, states, built_on in arrivals:
                if len(touched) > self._most_touched:
                    # The cache can no longer distinguish older reads from stale ones.
                    self._horizon = position
                    touched.clear()
                states = states if states and built_on >= self._horizon else {}
                for path, kind, _, children_added, children_removed, _ in changes:
                    before = touched.get(path, -1)
                    touched[path] = position
                    # Most nodes that others change are not cached.
                    known = self._drop(path) if path in self._young or path in self._old else _NOTHING
                    if kind in LIVES:
                        known = _NOTHING
                        self._changed.drop(path)
                    elif children_added or children_removed:
                        if known.names_position != _NEVER:
                            self._changed.keep(path, known.names_position, known.names, known.names_size)
                        self._changed.change(path, position, children_added, children_removed)
                        known = _NOTHING
                    _, _, names_position, names, names_size, _ = known
                    if before <= built_on and path in states:
                        if kind == ADDED:
                            # A life begins with the children that its first revision adds.
                            names_position, names = position, sorted(children_added) if children_added else ()
                            names_size = size_of_names(names)
                        self._keep(path, _entry(path, position, states[path], names_position, names, names_size))
                    elif names_position != _NEVER:
                        self._keep(path, _entry(path, _NEVER, None, names_position, names, names_size))

    def forget(self, position: int) -> None:
        """Drop everything, including earlier reads: the revision announced at this position never joined."""
        with self._lock:
            self._horizon = position
            self.walks.forget(position)
            self._changed.clear()
            self._touched.clear()
            self._young.clear()
            self._old.clear()
            self._young_size = self._old_size = 0

    def _keep(self, key: object, entry: Entry) -> int:
        """Put an entry, which is in no generation, into the young one; return its size, or 0 if it is too large."""
        size = entry.size
        if self._young_size + size > self._half:
            if size > self._half:
                return 0
            self._old, self._old_size = self._young, self._young_size
            self._young, self._young_size = {}, 0
        self._young[key] = entry
        self._young_size += size
        return size

    def _keep_extent(self, extent: Extent) -> int:
        """Return the number that stands for an extent in the keys of its view; _NEVER if the extent is too large."""
        kept = self._drop(extent)
        if kept is _NOTHING:
            self._last_number -= 1
            kept = _new(Entry, (self._last_number, None, _NEVER, (), 0, size_of_extent(extent)))
        return kept.position if self._keep(extent, kept) else _NEVER

    def _drop(self, key: object) -> Entry:
        """Remove the entry of a key, which only one generation has, and return it."""
        dropped = self._young.pop(key, None)
        if dropped is not None:
            self._young_size -= dropped.size
            return dropped
        dropped = self._old.pop(key, None)
        if dropped is not None:
            self._old_size -= dropped.size
            return dropped
        return _NOTHING


def _key_in_view(path: str, number: int) -> tuple[object, str]:
    """Return the key of an entry that is valid in one view only: ``number`` is its position, or that of its extent."""
    return number, path


def _entry(
    path: str, position: int, state: NodeState | None, names_position: int, names: Sequence[str], names_size: int
) -> Entry:
    """Return an entry with its size."""
    size = size_of_absence(path) if state is None else size_of_state(state)
    return _new(Entry, (position, state, names_position, names, names_size, size + names_size))
