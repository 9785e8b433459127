"""A walk over a subtree, level by level, from the cache as far as it knows the tree and then from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeGuard

from hbasemk.format import paths, schema
from hbasemk.format.node import NodeState, from_cells
from hbasemk.kernel.batches import batched
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.read_sizes import next_limit
from hbasemk.kernel.reading.cache import UNKNOWN, Entry, NodeCache, names_since, state_of
from hbasemk.kernel.reading.visible_cells import VisibleCells
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Row, Scan
from hbasemk.store.sizes import is_full, size_of_rows

LEVEL_BATCH: Final = 1000
"""The largest number of rows of a level of a subtree in one read. Rows with large values make it fewer."""
_AT_LEAST: Final = 500
"""Fewer bytes than a node takes in the cache."""


def _are_known(entries: Sequence[Entry | None]) -> TypeGuard[Sequence[Entry]]:
    return all(entries)


class SubtreeWalk:
    """One walk below ``path`` in a view. ``fetch`` reads nodes that the cache lacks."""

    def __init__(
        self,
        store: RetryingStore,
        runtime: Runtime,
        cells: VisibleCells,
        cache: NodeCache,
        fetch: Callable[[Sequence[str]], dict[str, NodeState | None]],
        view: View,
        path: str,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._cells = cells
        self._cache = cache
        self._fetch = fetch
        self._view = view
        self._path = path
        self._limit = LEVEL_BATCH

    def levels(self, depth: int | None) -> Iterator[list[NodeState]]:
        """Yield the nodes of each level in batches; see :meth:`Reader.levels`."""
        level = 0
        tops: Sequence[str] = [self._path]
        names = self._cache.children(self._path, self._view)
        above = None if names is None else [(paths.join(self._path, ""), names)]
        while above is not None and (depth is None or level < depth):
            # Names may contain characters below "/", so the order of the parents is not enough.
            tops = sorted([prefix + name for prefix, names in above for name in names])
            if not tops:
                return
            level += 1
            above = []
            for part in batched(tops, LEVEL_BATCH):
                states, below = self._cached(part)
                if below is None:
                    above = None
                elif above is not None:
                    above += below
                if states:
                    yield states
        if above is None:
            yield from self._scan_levels(level, depth, tops)

    def _cached(self, part: Sequence[str]) -> tuple[list[NodeState], list[tuple[str, Sequence[str]]] | None]:
        """Return those of these nodes that exist; and the names of the children of each, after the beginning of their paths.

        Returns None instead of the names if the cache lacks some. Reads the nodes that it lacks.
        """
        view = self._view
        entries = self._cache.get_all(part, view)
        if _are_known(entries):
            unknown = max(map(names_since, entries)) > view.position
            below = [
                (paths.join(path, ""), entry.names) for path, entry in zip(part, entries, strict=True) if entry.names
            ]
            return list(filter(None, map(state_of, entries))), None if unknown else below
        read = self._fetch([path for path, entry in zip(part, entries, strict=True) if entry is None])
        states = [read[path] if entry is None else entry.state for path, entry in zip(part, entries, strict=True)]
        lists = [(paths.join(path, ""), self._cache.children(path, view)) for path in part]
        known = [(prefix, names) for prefix, names in lists if names is not None]
        return list(filter(None, states)), known if len(known) == len(lists) else None

    def _scan_levels(self, level: int, depth: int | None, tops: Sequence[str]) -> Iterator[list[NodeState]]:
        """Yield the levels of a subtree after ``level``, whose nodes are ``tops``, from the store; and fill the cache.

        One walk fills a part of the cache only. So a walk over a large tree does not replace all of it.
        """
        view = self._view
        above: dict[str, NodeState | None] | None = dict.fromkeys(tops, UNKNOWN)
        left = self._cache.walk_bytes
        ahead: tuple[list[Row], bool] | None = None
        while depth is None or level < depth:
            level += 1
            start, stop = paths.level_range(self._path, level)
            if ahead is not None:
                (rows, more), ahead = ahead, None
            elif self._store.supports_parallel_calls and (depth is None or level < depth):
                following = paths.level_range(self._path, level + 1)
                (rows, more), ahead = self._runtime.run_parallel(
                    partial(self._scan, start, stop),
                    partial(self._scan, *following),
                )
            else:
                rows, more = self._scan(start, stop)
            here: dict[str, NodeState | None] = {}
            names: dict[str, list[str]] = {}
            last = not rows
            while rows:
                nodes = self._nodes_of(rows)
                if above is not None:
                    for state in nodes:
                        here[state.path] = state
                        parent, _, name = state.path.rpartition("/")
                        names.setdefault(parent or paths.ROOT, []).append(name)
                if nodes:
                    yield nodes
                rows, more = self._scan(rows[-1].key + b"\0", stop) if more else ([], False)
                if rows and _AT_LEAST * len(here) > left:
                    above = None
            if above is not None:
                left -= self._cache.put_all(view, ((one, state, names.get(one, ())) for one, state in above.items()))
                above = here if left > 0 else None
            if last:
                return
        if above is not None:
            self._cache.put_all(view, ((one, state, None) for one, state in above.items()))

    def _scan(self, start: bytes, stop: bytes) -> tuple[list[Row], bool]:
        """Return the first rows of a range, and whether more may follow."""
        most = self._store.batch_bytes
        scan = Scan(start, stop, self._limit, families=(schema.DATA,), before=self._view.upper + 1, most_bytes=most)
        rows = self._store.scan(schema.NODES, scan)
        size = size_of_rows(rows)
        more = is_full(scan, rows, size)
        if more:
            # An answer that the store ended early has little more than `most`; the next one may have as many rows.
            self._limit = next_limit(len(rows), size, LEVEL_BATCH, 2 * most)
        if not rows:
            # Nothing of the level may be left. Rows are checked when their visible cells are chosen.
            self._cells.require_readable(self._view)
        return rows, more

    def _nodes_of(self, rows: Sequence[Row]) -> list[NodeState]:
        found = []
        for row, cells in zip(rows, self._cells.visible(self._view, rows), strict=True):
            state, _ = from_cells(paths.path_of(row.key), cells)
            if state is not None:
                found.append(state)
        return found
