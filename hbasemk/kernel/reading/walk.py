"""A walk over a subtree, level by level, from the cache as far as it knows the tree and then from the store."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, TypeGuard

from hbasemk.format import paths, schema
from hbasemk.format.node import NodeState, from_cells
from hbasemk.kernel.batches import batched
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.read_sizes import next_limit
from hbasemk.kernel.reading.cache import UNKNOWN, Entry, NodeCache, names_since, state_of
from hbasemk.kernel.reading.kept_walks import Walked
from hbasemk.kernel.reading.memory_sizes import size_of_state
from hbasemk.kernel.reading.visible_cells import VisibleCells
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Row, Scan
from hbasemk.store.sizes import by_size, is_full, size_of_rows

LEVEL_BATCH: Final = 1000
"""The largest number of rows of a level of a subtree in one read. Rows with large values make it fewer."""
_AT_LEAST: Final = 500
"""Fewer bytes than a node takes in the cache."""


_FEW: Final = 16
"""So many nodes are read by their paths, because the rows of deleted nodes may lie between them."""
_REST: Final = 100
"""So many nodes at a time are read by their paths if most of the rows between them are those of deleted nodes."""


_size_of: Final = attrgetter("size")


def _are_known(entries: Sequence[Entry | None]) -> TypeGuard[Sequence[Entry]]:
    return all(entries)


def _lacks_most(entries: Sequence[Entry | None]) -> bool:
    """Return whether the cache lacks many of these nodes: then one answer with all of them may be too large."""
    missing = entries.count(None)
    return missing > _FEW and missing * 2 > len(entries)


class SubtreeWalk:
    """One walk below ``path`` in a view. ``fetch`` reads nodes that the cache lacks."""

    def __init__(
        self,
        store: RetryingStore,
        runtime: Runtime,
        cells: VisibleCells,
        cache: NodeCache,
        fetch: Callable[[Sequence[str]], Iterator[NodeState | None]],
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

    def levels(self, depth: int | None) -> Iterator[Sequence[NodeState]]:
        """Yield the nodes of each level in batches; see :meth:`Reader.levels`."""
        kept = self._cache.walks.get(self._view, self._path) if depth is None else None
        if kept is None:
            yield from self._read_levels(depth)
            return
        yield from kept
        self._cache.count_hits(sum(map(len, kept)))

    def _read_levels(self, depth: int | None) -> Iterator[Sequence[NodeState]]:
        """Yield the nodes of each level. Keep the walk if it is whole, and the cache has all nodes."""
        walked = Walked(self._cache.walks, whole=depth is None)
        level = 0
        tops: Sequence[str] = [self._path]
        names = self._cache.children(self._path, self._view)
        above = None if names is None else [(paths.join(self._path, ""), names)]
        while above is not None and (depth is None or level < depth):
            # Names may contain characters below "/", so the order of the parents is not enough.
            tops = sorted([prefix + name for prefix, names in above for name in names])
            if not tops:
                walked.keep(self._view, self._path)
                return
            level += 1
            above = []
            for part in batched(tops, LEVEL_BATCH):
                entries = self._cache.get_all(part, self._view)
                if _are_known(entries):
                    states, below = self._cached(part, entries)
                    if states:
                        yield states
                        walked.add(states, map(_size_of, entries))
                else:
                    walked.give_up()
                    yield from self._scan_known(part) if _lacks_most(entries) else self._filled(part, entries)
                    below = self._names_below(part)
                if below is None:
                    above = None
                elif above is not None:
                    above += below
        if above is None:
            yield from self._scan_levels(level, depth, tops)

    def _cached(
        self, part: Sequence[str], entries: Sequence[Entry]
    ) -> tuple[list[NodeState], list[tuple[str, Sequence[str]]] | None]:
        """Return those of these nodes that exist; and the names of the children of each, after the beginning of their paths.

        ``entries`` are those of the cache. Returns None instead of the names if it lacks some.
        """
        unknown = max(map(names_since, entries)) > self._view.position
        states = list(filter(None, map(state_of, entries)))
        if unknown:
            return states, self._names_below(part)
        below = [(paths.join(path, ""), entry.names) for path, entry in zip(part, entries, strict=True) if entry.names]
        return states, below

    def _filled(self, part: Sequence[str], entries: Sequence[Entry | None]) -> Iterator[list[NodeState]]:
        """Yield those of these nodes that exist, after reading those that ``entries`` of the cache lack."""
        read = self._fetch([path for path, entry in zip(part, entries, strict=True) if entry is None])
        return self._grouped(next(read) if entry is None else entry.state for entry in entries)

    def _grouped(self, states: Iterable[NodeState | None]) -> Iterator[list[NodeState]]:
        """Yield the nodes that exist, in groups of a bounded size."""
        return by_size(filter(None, states), size_of_state, LEVEL_BATCH, self._store.batch_bytes)

    def _names_below(self, part: Sequence[str]) -> list[tuple[str, Sequence[str]]] | None:
        """Return the names of the children of these nodes as :meth:`_cached` does."""
        below: list[tuple[str, Sequence[str]]] = []
        for path in part:
            names = self._cache.children(path, self._view)
            if names is None:
                return None
            if names:
                below.append((paths.join(path, ""), names))
        return below

    def _scan_known(self, part: Sequence[str]) -> Iterator[list[NodeState]]:
        """Yield the nodes at these sorted paths of a level, in answers of a bounded size."""
        keys = list(map(paths.key, part))
        wanted = set(part)
        start, stop = keys[0], keys[-1] + b"\0"
        deleted = 0
        while start < stop:
            rows, more, size = self._scan(start, stop, len(part))
            nodes = [state for state in self._nodes_of(rows) if state.path in wanted]
            self._cache.put_all(self._view, ((state.path, state, None) for state in nodes))
            if nodes:
                yield nodes
            start = rows[-1].key + b"\0" if more else stop
            deleted += len(rows) - len(nodes)
            if start < stop and deleted > len(part):
                # Most rows are those of deleted nodes. The next ones may be as large as these.
                count = min(self._store.batch_bytes * len(rows) // max(size, 1) + 1, _REST)
                for rest in batched(part[bisect_left(keys, start) :], count):
                    yield from self._grouped(self._fetch(rest))
                return

    def _scan_levels(self, level: int, depth: int | None, tops: Sequence[str]) -> Iterator[list[NodeState]]:
        """Yield the levels of a subtree after ``level``, whose nodes are ``tops``, from the store; and fill the cache.

        One walk fills a part of the cache only. So a walk over a large tree does not replace all of it.
        """
        view = self._view
        above: dict[str, NodeState | None] | None = dict.fromkeys(tops, UNKNOWN)
        left = self._cache.walk_bytes
        ahead: tuple[list[Row], bool, int] | None = None
        while depth is None or level < depth:
            level += 1
            start, stop = paths.level_range(self._path, level)
            if ahead is not None:
                (rows, more, size), ahead = ahead, None
            elif self._store.supports_parallel_calls and (depth is None or level < depth):
                following = paths.level_range(self._path, level + 1)
                (rows, more, size), ahead = self._runtime.run_parallel(
                    partial(self._scan, start, stop),
                    partial(self._scan, *following),
                )
            else:
                rows, more, size = self._scan(start, stop)
            held = 0
            here: dict[str, NodeState | None] = {}
            names: dict[str, list[str]] = {}
            last = not rows
            while rows:
                nodes = self._nodes_of(rows)
                held += size + _AT_LEAST * len(nodes)
                if above is not None:
                    for state in nodes:
                        here[state.path] = state
                        parent, _, name = state.path.rpartition("/")
                        names.setdefault(parent or paths.ROOT, []).append(name)
                if nodes:
                    yield nodes
                rows, more, size = self._scan(rows[-1].key + b"\0", stop) if more else ([], False, 0)
                if rows and held > left:
                    # The cache cannot keep the level, and memory may not have room for it.
                    above = None
                    here, names = {}, {}
            if above is not None:
                left -= self._cache.put_all(view, ((one, state, names.get(one, ())) for one, state in above.items()))
                above = here if left > 0 else None
            if last:
                return
        if above is not None:
            self._cache.put_all(view, ((one, state, None) for one, state in above.items()))

    def _scan(self, start: bytes, stop: bytes, limit: int = LEVEL_BATCH) -> tuple[list[Row], bool, int]:
        """Return the first rows of a range, whether more may follow, and the bytes of their values."""
        most = self._store.batch_bytes
        scan = Scan(
            start, stop, min(self._limit, limit), families=(schema.DATA,), before=self._view.upper + 1, most_bytes=most
        )
        rows = self._store.scan(schema.NODES, scan)
        size = size_of_rows(rows)
        more = is_full(scan, rows, size)
        if more:
            # An answer that the store ended early has little more than `most`; the next one may have as many rows.
            self._limit = next_limit(len(rows), size, LEVEL_BATCH, 2 * most)
        if not rows:
            # Nothing of the level may be left. Rows are checked when their visible cells are chosen.
            self._cells.require_readable(self._view)
        return rows, more, size

    def _nodes_of(self, rows: Sequence[Row]) -> list[NodeState]:
        found = []
        for row, cells in zip(rows, self._cells.visible(self._view, rows), strict=True):
            state, _ = from_cells(paths.path_of(row.key), cells)
            if state is not None:
                found.append(state)
        return found
