"""Reads of nodes and children in a view, in as few round trips as the store allows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from hbasemk.errors import NodeDeletedError, NodeNotFoundError, VersionMismatchError
from hbasemk.format import paths, revisions, schema
from hbasemk.format.limits import shortened
from hbasemk.format.node import NodeState, from_cells, name_of
from hbasemk.kernel.batches import batched
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.read_sizes import next_limit
from hbasemk.kernel.reading.cache import UNKNOWN, NodeCache
from hbasemk.kernel.reading.visible_cells import VisibleCells
from hbasemk.kernel.reading.walk import SubtreeWalk
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Cell, Get, Page
from hbasemk.store.sizes import size_of_rows

CHILDREN_PAGE: Final = 10_000
"""Child columns of one node in one read."""
PAGE_GROWTH: Final = 8
"""How many times as many child columns the next read takes, if too many children of a list were removed."""
NAMES: Final = 250_000
"""Child columns of many nodes in one read."""
PAGED: Final = 2_500
"""After so many names of one node were read in pages, the next page reads all its names, if one call can."""
_MOST_PAGED: Final = 1000
WIDE: Final = 1000
"""A node with more child columns than this is wide; counting its children does not read all of them."""
_NODE: Final = (schema.DATA,)


class Names(NamedTuple):
    """Names of a node's children, in order; ``whole`` is True if the list is complete."""

    names: Sequence[str]
    whole: bool


class Reader:
    """Reads in views of one journal, through one cache."""

    def __init__(self, store: RetryingStore, runtime: Runtime, journal: Journal, cache: NodeCache) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._cells = VisibleCells(store, journal)
        self._cache = cache
        self._paged = _Paged()

    # --- nodes -------------------------------------------------------------------------------------------

    def node(self, view: View, path: str) -> NodeState | None:
        """Return the node at a path, or None. One round trip, or none if the node is cached."""
        entry = self._cache.get(path, view)
        if entry is not None:
            return entry.state
        rows = self._cells.read([_node_get(path, view)])
        state = from_cells(path, self._cells.visible(view, rows)[0])[0]
        self._cache.put(path, view, state)
        return state

    def is_cached(self, view: View, path: str) -> bool:
        """Return whether :meth:`node` needs no round trip."""
        return self._cache.get(path, view) is not None

    def cached_with_names(self, view: View, path: str) -> tuple[NodeState, Sequence[str]] | None:
        """Return an existing node and the names of all its children, if the cache knows both; else None. No round trip."""
        entry = self._cache.get_with_names(path, view)
        return None if entry is None or entry.state is None else (entry.state, entry.names)

    def with_names(self, view: View, node_paths: Sequence[str]) -> dict[str, tuple[NodeState, Sequence[str]]]:
        """Return those of many nodes that exist, by path, each with the names of all its children.

        Two round trips for each batch of nodes that are not cached; see :meth:`children_of` for those with many children.
        """
        states = [state for state in self.nodes(view, node_paths).values() if state is not None]
        names = self.children_of(view, states)
        return {state.path: (state, names[state.path].names) for state in states}

    def nodes(self, view: View, node_paths: Sequence[str]) -> dict[str, NodeState | None]:
        """Return many nodes by path. One round trip for each batch of nodes that are not cached."""
        found: dict[str, NodeState | None] = {}
        missing: list[str] = []
        for path in dict.fromkeys(node_paths):
            entry = self._cache.get(path, view)
            if entry is None:
                missing.append(path)
            else:
                found[path] = entry.state
        if missing:
            found.update(zip(missing, self._fetch(view, missing), strict=True))
        return found

    def each(self, view: View, node_paths: Sequence[str]) -> Iterator[NodeState | None]:
        """Yield many nodes in the order of their paths, which differ. Round trips as :meth:`nodes`.

        Holds the nodes of one answer at a time, besides those that are cached.
        """
        entries = self._cache.get_all(node_paths, view)
        read = self._fetch(view, [path for path, entry in zip(node_paths, entries, strict=True) if entry is None])
        for entry in entries:
            yield next(read) if entry is None else entry.state

    def _fetch(self, view: View, node_paths: Sequence[str]) -> Iterator[NodeState | None]:
        """Read nodes, put them into the cache, and yield them. One round trip for each answer, of a bounded size."""
        limit = most = self._store.batch_rows
        first = 0
        while first < len(node_paths):
            part = node_paths[first : first + limit]
            states, size = self._read(view, part)
            first += len(states)
            # An answer that the store ended early has about `batch_bytes`; the next one may have as many rows.
            limit = next_limit(len(states), size, most, 2 * self._store.batch_bytes)
            yield from states
            # Do not hold them during the next read.
            del states

    def _read(self, view: View, node_paths: Sequence[str]) -> tuple[list[NodeState | None], int]:
        """Read the first nodes, and put them into the cache. Also returns the bytes of their values. One round trip."""
        rows = self._cells.read_first([_node_get(path, view) for path in node_paths])
        cells = self._cells.visible(view, rows)
        states = [from_cells(path, found)[0] for path, found in zip(node_paths, cells, strict=False)]
        self._cache.put_all(view, ((path, state, None) for path, state in zip(node_paths, states, strict=False)))
        return states, size_of_rows(rows)

    def require(self, view: View, path: str) -> NodeState:
        """Return the node at a path; raise NodeNotFoundError, or NodeDeletedError with the revision that deleted it."""
        state = self.node(view, path)
        if state is None:
            raise self.missing(view, path)
        return state

    def missing(self, view: View, path: str) -> NodeNotFoundError:
        """Return the error that says why there is no node at a path. One round trip."""
        rows = self._cells.read([Get(paths.key(path), columns=(schema.DELETED,), before=view.upper + 1)])
        _, deleted = from_cells(path, self._cells.visible(view, rows)[0])
        at = revisions.to_text(view.revision)
        if deleted:
            by = revisions.to_text(deleted)
            return NodeDeletedError(
                f"there is no node at {shortened(path)} in revision {at}: revision {by} deleted it",
                path=path,
                revision=at,
                deleted_in=by,
            )
        horizon = self._journal.fence.horizon
        earlier = (
            f"none is recorded since revision {revisions.to_text(horizon)}"
            if horizon
            else "there never was one up to then"
        )
        return NodeNotFoundError(
            f"there is no node at {shortened(path)} in revision {at}, and {earlier}",
            path=path,
            revision=at,
        )

    def status(self, view: View, node_paths: Sequence[str]) -> dict[str, tuple[bool, int]]:
        """Return for each path whether a view has a node there, and the revision that last touched or deleted it.

        The revision is 0 if there never was a node. One round trip for each batch of nodes that are not cached.
        """
        found: dict[str, tuple[bool, int]] = {}
        unknown: list[str] = []
        for path in dict.fromkeys(node_paths):
            entry = self._cache.get(path, view)
            if entry is None or entry.state is None:
                unknown.append(path)
            else:
                found[path] = True, entry.state.revision
        gets = [Get(paths.key(path), columns=(schema.DELETED, schema.LAST_REVISION)) for path in unknown]
        for path, cells in zip(unknown, self.cells(view, gets), strict=True):
            state, deleted = from_cells(path, cells)
            found[path] = (False, deleted) if state is None else (True, state.revision)
        return {path: found[path] for path in node_paths}

    def version_mismatch(
        self, view: View, path: str, expected: str | None, state: NodeState | None
    ) -> VersionMismatchError:
        """Return the error for a node whose version in a view is not the expected one. One round trip if there is no node."""
        at = revisions.to_text(view.revision)
        other = at
        if state is None:
            reason = self.missing(view, path)
            other = reason.deleted_in if isinstance(reason, NodeDeletedError) else at
            problem = f"{reason.message}, but its version was expected to be {expected}"
        else:
            other = revisions.to_text(max((state.created, *state.later.values())))
            wanted = "no node was expected there" if expected is None else f"version {expected} was expected"
            problem = (
                f"the node {shortened(path)} has version {state.version} in revision {at}, but {wanted}; {other} changed it "
                "last"
            )
        return VersionMismatchError(
            f"{problem}. Nothing was committed. Read the node again, and decide again.",
            path=path,
            column="version",
            revision=None,
            other=other,
            expected=expected,
            found=None if state is None else state.version,
        )

    # --- children ----------------------------------------------------------------------------------------

    def children(self, view: View, path: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return at most ``limit`` names of a node's children after ``after``, in the order of their UTF-8 bytes.

        No round trip if the cache knows all names, else one for up to 10,000; if it knows the node, the call reads only the
        names. Removed children that no collector has deleted yet count, too: the page after one that was mostly removed
        children is 8 times as long. A missing node has no children. After pages of many names of a node, the same call also
        reads all its names, if they are at most 10,000 and the cache keeps them.
        """
        known = self._cache.children(path, view)
        if known is not None:
            first = 0 if after is None else bisect_right(known, after)
            return list(known[first : None if limit is None else first + limit])
        names: list[str] = []
        key = paths.key(path)
        before = view.upper + 1
        start = None if after is None else paths.encode(after)
        entry = self._cache.get(path, view)
        if entry is not None and entry.state is None:
            return []
        life = [Get(key, columns=(schema.DELETED,), before=before)] if entry is None else []
        more = [Get(key, page=Page(schema.CHILDREN, None, CHILDREN_PAGE + 1), before=before)]
        if limit is None or view.own or not self._paged.is_due(path, limit):
            more = []
        wanted = CHILDREN_PAGE if limit is None else min(limit, CHILDREN_PAGE)
        while limit is None or len(names) < limit:
            size = wanted + 1  # shows whether there are more
            known_before = len(names)
            page = Get(key, page=Page(schema.CHILDREN, start, size), before=before)
            rows = self._cells.read([page, *life, *more])
            cells, *others = self._cells.visible(view, rows)
            state = from_cells(path, others[0])[0] if entry is None else entry.state
            if state is None:
                return []
            names += _present(state, cells)
            are_all = more and len(rows[-1].cells) <= CHILDREN_PAGE
            if are_all and self._cache.put_all(view, ((path, UNKNOWN, _present(state, others[-1])),)):
                self._paged.start_again(path)
            more = []
            if len(rows[0].cells) < size:
                if after is None:
                    self._cache.put_all(view, ((path, UNKNOWN, tuple(names)),))
                break
            start = rows[0].cells[-1].qualifier
            if limit is not None:
                # A page that was mostly removed children is probably followed by more of them.
                is_mostly_removed = (len(names) - known_before) * 2 <= wanted
                wanted = min((wanted if is_mostly_removed else limit - len(names)) * PAGE_GROWTH, CHILDREN_PAGE)
        return names[:limit]

    def existing(self, view: View, path: str, names: Sequence[bytes]) -> tuple[list[bytes], bytes | None]:
        """Return which of these sorted, encoded names are children of a node, and other children between them.

        One round trip that reads at most twice as many columns as there are names. Returns the names found, and the
        first of ``names`` that the read did not reach (None: it reached all). A missing node has no children.
        """
        key = paths.key(path)
        before = view.upper + 1
        first = names[0]
        # Names between this one and the first name are harmless.
        after = first[:-1] + bytes([first[-1] - 1]) if first[-1] else first[:-1]
        page = Page(schema.CHILDREN, after, 2 * len(names))
        life, row = self._cells.read(
            [Get(key, columns=(schema.DELETED,), before=before), Get(key, page=page, before=before)]
        )
        life_cells, cells = self._cells.visible(view, [life, row])
        state, _ = from_cells(path, life_cells)
        if state is None:
            return [], None
        found = [cell.qualifier for cell in cells if cell.value == schema.PRESENT and cell.timestamp >= state.created]
        if len(row.cells) < page.limit:
            return found, None
        end = row.cells[-1].qualifier
        return found, next((name for name in names if name > end), None)

    def lists(self, view: View, state: NodeState, name: str) -> bool:
        """Return whether an existing node lists a child of this name, even if there is no such child. One round trip."""
        get = Get(paths.key(state.path), columns=(schema.child_column(name),))
        return count_of(self.cells(view, [get])[0], state.created) > 0

    def children_of(self, view: View, states: Sequence[NodeState], limit: int | None = None) -> dict[str, Names]:
        """Return the names of the children of many existing nodes, by path: all, or at least the first ``limit``.

        One round trip for each batch of nodes that are not cached, and one more for each further 10,000 children of a node, or
        :data:`NAMES` children of all of them. Callers must not change the names.
        """
        found: dict[str, Names] = {}
        missing: list[NodeState] = []
        for state in states:
            known = self._cache.children(state.path, view)
            if known is None:
                missing.append(state)
            else:
                found[state.path] = Names(known, True)
        before = view.upper + 1
        wide = CHILDREN_PAGE if limit is None else min(max(limit, WIDE + 1), CHILDREN_PAGE)
        for part in batched(missing, self._store.batch_rows):
            names: dict[str, list[str]] = {state.path: [] for state in part}
            after: dict[str, bytes | None] = dict.fromkeys(names)
            columns = dict.fromkeys(names, 0)
            left, size = part, wide
            while left:
                # Usually the first answer has all names.
                size = min(size, max(NAMES // len(left), 1))
                rows = self._cells.read(
                    [
                        Get(paths.key(state.path), page=Page(schema.CHILDREN, after[state.path], size), before=before)
                        for state in left
                    ]
                )
                for state, row, cells in zip(left, rows, self._cells.visible(view, rows), strict=True):
                    names[state.path] += _present(state, cells)
                    columns[state.path] += len(row.cells)
                    after[state.path] = row.cells[-1].qualifier if len(row.cells) == size else None
                left = [
                    state
                    for state in left
                    if after[state.path] is not None
                    and (limit is None or len(names[state.path]) < limit or columns[state.path] < wide)
                ]
                size = CHILDREN_PAGE
            found.update((path, Names(listed, after[path] is None)) for path, listed in names.items())
            whole = [path for path in names if found[path].whole]
            self._cache.put_all(view, ((path, UNKNOWN, found[path].names) for path in whole))
        return found

    def known_children(self, view: View, path: str) -> Sequence[str] | None:
        """Return the names of all children of an existing node if the cache knows them, else None. No round trip."""
        return self._cache.children(path, view)

    def few_children(self, view: View, state: NodeState, most: int) -> Sequence[str] | None:
        """Return the names of a node's children; None if there are more child columns than ``most``. One round trip."""
        cells, after = self.child_page(view, state, None, most + 1)
        if after is not None:
            return None
        names = _present(state, cells)
        self._cache.put_all(view, ((state.path, UNKNOWN, names),))
        return names

    def child_page(
        self, view: View, state: NodeState, after: bytes | None, size: int = CHILDREN_PAGE
    ) -> tuple[Sequence[Cell], bytes | None]:
        """Return the visible cells of up to ``size`` child columns of a node's current life, after the column ``after``.

        Also returns the column after which the next page begins (None: no more). One round trip.
        """
        page = Page(schema.CHILDREN, after, size)
        rows = self._cells.read([Get(paths.key(state.path), page=page, since=state.created, before=view.upper + 1)])
        cells = rows[0].cells
        return self._cells.visible(view, rows)[0], cells[-1].qualifier if len(cells) == size else None

    def touched_children(self, path: str, since: int, before: int, limit: int) -> list[bytes] | None:
        """Return the child columns of a node that revisions in a range of ids wrote; ``before`` is excluded.

        None if there are more than ``limit``. One round trip for each 10,000. The store scans the whole row, and returns
        only the cells written in the range.
        """
        columns: list[bytes] = []
        after: bytes | None = None
        while len(columns) <= limit:
            page = Page(schema.CHILDREN, after, CHILDREN_PAGE)
            cells = self._cells.read([Get(paths.key(path), page=page, since=since, before=before)])[0].cells
            columns += [cell.qualifier for cell in cells]
            if len(cells) < CHILDREN_PAGE:
                return columns if len(columns) <= limit else None
            after = cells[-1].qualifier
        return None

    def count_present(self, views: Sequence[View], path: str, created: int, columns: Collection[bytes]) -> list[int]:
        """Return for each view how many of these child columns show a child, in the node's life that began at ``created``.

        One round trip for each 10,000 columns, and another if the newest version of a column is not visible.
        """
        counts = [0] * len(views)
        for part in batched(sorted(columns), CHILDREN_PAGE):
            exact = [(schema.CHILDREN, column) for column in part]
            rows = self._cells.read([Get(paths.key(path), columns=exact, before=one.upper + 1) for one in views])
            for number, (view, row) in enumerate(zip(views, rows, strict=True)):
                counts[number] += count_of(self._cells.visible(view, [row])[0], created)
        return counts

    def levels(self, view: View, path: str, depth: int | None = None) -> Iterator[Sequence[NodeState]]:
        """Return an iterator over the subtree below a node, level by level, in batches that are in key order.

        The node itself is not included. ``depth`` limits the levels (None: all). Callers must not change the batches. No round
        trip for a level that the cache knows. For others one round trip for each batch of up to 1000 rows of a level, and one
        more that finds the level after the last one empty. If the store supports parallel calls, two levels are read at the
        same time.
        """
        return SubtreeWalk(
            self._store, self._runtime, self._cells, self._cache, partial(self._fetch, view), view, path
        ).levels(depth)

    def cells(self, view: View, gets: Sequence[Get]) -> Sequence[Sequence[Cell]]:
        """Return the visible cells of each get, one per column; see :meth:`VisibleCells.newest`."""
        return self._cells.newest(view, gets)


class _Paged:
    """How many names of each node were read in pages since all of them were read."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}

    def is_due(self, path: str, limit: int) -> bool:
        """Count a page; return whether it is time to read all names. If these cannot be kept, it takes many more pages."""
        if len(self._read) > _MOST_PAGED:
            self._read.clear()
        read = self._read.get(path, 0) + limit
        self._read[path] = read if read <= PAGED else -10 * CHILDREN_PAGE
        return read > PAGED

    def start_again(self, path: str) -> None:
        """Record that all names were read."""
        self._read.pop(path, None)


def _node_get(path: str, view: View) -> Get:
    """Return the get of a node in a view, without its children."""
    return Get(paths.key(path), None, _NODE, before=view.upper + 1)


def _present(state: NodeState, cells: Sequence[Cell]) -> list[str]:
    """Return the names of the children that a node's visible cells show."""
    created, present = state.created, schema.PRESENT
    found = [qualifier for _, qualifier, version, value in cells if value == present and version >= created]
    try:
        return [qualifier.decode("utf-8", "surrogatepass") for qualifier in found]
    except UnicodeDecodeError:
        # Name the damaged column.
        return [name_of(state.path, (schema.CHILDREN, qualifier)) for qualifier in found]


def count_of(cells: Sequence[Cell], created: int) -> int:
    """Return how many children the visible cells show, in the parent's life that began at ``created``."""
    return sum(cell.value == schema.PRESENT and cell.timestamp >= created for cell in cells)
