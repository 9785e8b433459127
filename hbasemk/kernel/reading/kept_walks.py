"""Walks over subtrees, kept at the head until a revision touches the subtree.

A walk that needs no store call still looks up each node in the cache. A kept walk is only a list of these nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from hbasemk.format import paths
from hbasemk.format.node import NodeState
from hbasemk.kernel.journal.known_revisions import Arrival, touched
from hbasemk.kernel.journal.view import View


class _Walk(NamedTuple):
    """The batches of a walk, valid from a position of the sequence on, and their size in bytes with the nodes."""

    position: int
    batches: Sequence[Sequence[NodeState]]
    size: int


class Walked:
    """The batches of a walk up to now, as long as the walk can be kept: the cache has all its nodes, and they are not too many.

    ``whole``: whether the walk has no limit of depth.
    """

    def __init__(self, walks: KeptWalks, *, whole: bool) -> None:
        self._walks = walks
        self._batches: list[Sequence[NodeState]] | None = [] if whole else None
        self._size = 0

    def add(self, nodes: Sequence[NodeState], sizes: Iterable[int]) -> None:
        """Add a batch that the cache has, with the sizes of its entries in bytes."""
        if self._batches is not None:
            self._batches.append(nodes)
            self._size += sum(sizes)
            if self._size > self._walks.limit:
                self._batches = None

    def give_up(self) -> None:
        """Forget the batches: the cache lacks some nodes."""
        self._batches = None

    def keep(self, view: View, path: str) -> None:
        """Keep the walk, which has ended, if it can be kept and has any nodes."""
        if self._batches:
            self._walks.keep(view, path, self._batches, self._size)


class KeptWalks:
    """The last whole walks that one cache has served, in at most ``limit`` bytes. ``lock`` excludes other threads.

    The nodes count again, although the cache has them too: it may evict them before this object does. ``position`` is that
    of the last revision that joined before this object listened to arrivals. An arrival drops the walks over what it touches
    and over all nodes above, before any view contains it.
    """

    def __init__(self, lock: AbstractContextManager[object], limit: int, position: int) -> None:
        self._lock = lock
        self.limit = limit
        self._kept: dict[str, _Walk] = {}
        self._last_arrival = position
        self.size = 0
        """The size of all kept walks in bytes."""

    def get(self, view: View, path: str) -> Sequence[Sequence[NodeState]] | None:
        """Return the batches of a walk below a node in a view; None if no walk is kept that is valid there."""
        kept = self._kept.get(path)
        if kept is None or view.own or view.extent is not None or view.position < kept.position:
            return None
        return kept.batches

    def keep(self, view: View, path: str, batches: Sequence[Sequence[NodeState]], size: int) -> None:
        """Keep a walk of this size, unless the view is no longer the head. Drop those that were kept first for it."""
        with self._lock:
            if view.own or view.extent is not None or view.position < self._last_arrival or size > self.limit:
                return
            self._drop(path)
            while self.size + size > self.limit:
                self._drop(next(iter(self._kept)))
            self._kept[path] = _Walk(view.position, batches, size)
            self.size += size

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Drop the walks over what arriving revisions touch. The caller holds the lock."""
        self._last_arrival = arrivals[-1].position
        if self._kept:
            for path in paths.with_ancestors(touched(arrivals)):
                self._drop(path)

    def forget(self, position: int) -> None:
        """Drop all walks: the revision announced at this position never joined. The caller holds the lock."""
        self._last_arrival = position
        self._kept.clear()
        self.size = 0

    def _drop(self, path: str) -> None:
        dropped = self._kept.pop(path, None)
        if dropped is not None:
            self.size -= dropped.size
