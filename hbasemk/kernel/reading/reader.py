"""Reads of nodes and children in a view, in as few round trips as the store allows.

A read requests the newest version of each column up to the view's highest id. If that version is not visible (pending,
aborted, private, or later in the sequence), a further call reads older versions of that column only. So the cost does
not grow with a node's history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from hbasemk.errors import NodeDeletedError, NodeNotFoundError, VersionMismatchError
from hbasemk.format import paths, revisions, schema
from hbasemk.format.node import NodeState, from_cells, name_of
from hbasemk.kernel.batches import batched
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.cache import NodeCache
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Cell, Column, Get, Page, Row, Scan

FIRST_DEPTH: Final = 4
MAX_DEPTH: Final = 256
"""Versions of a column in the first deeper read; each further one reads four times as many, up to the second number."""
CHILDREN_PAGE: Final = 10_000
"""Child columns of one node in one read."""
LEVEL_BATCH: Final = 1000
"""Rows of a level of a subtree in one read."""
WIDE: Final = 1000
"""A node with more child columns than this is wide; counting its children does not read all of them."""


class Names(NamedTuple):
    """Names of a node's children, in order; ``whole`` is True if the list is complete."""

    names: list[str]
    whole: bool


class Reader:
    """Reads in views of one journal, through one cache."""

    def __init__(self, store: RetryingStore, runtime: Runtime, journal: Journal, cache: NodeCache) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._cache = cache

    # --- nodes -------------------------------------------------------------------------------------------

    def node(self, view: View, path: str) -> NodeState | None:
        """Return the node at a path, or None. One round trip, or none if the node is cached."""
        entry = self._cache.get(path, view)
        if entry is not None:
            return entry.state
        return self.nodes(view, (path,))[path]

    def is_cached(self, view: View, path: str) -> bool:
        """Return whether :meth:`node` needs no round trip."""
        return self._cache.get(path, view) is not None

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
        before = view.upper + 1
        for part in batched(missing, self._store.batch_rows):
            rows = self._read([Get(paths.key(path), families=(schema.DATA,), before=before) for path in part])
            for path, cells in zip(part, self._visible(view, rows), strict=True):
                state, _ = from_cells(path, cells)
                found[path] = state
                self._cache.put(path, view, state)
        return found

    def require(self, view: View, path: str) -> NodeState:
        """Return the node at a path; raise NodeNotFoundError, or NodeDeletedError with the revision that deleted it."""
        state = self.node(view, path)
        if state is None:
            raise self.missing(view, path)
        return state

    def missing(self, view: View, path: str) -> NodeNotFoundError:
        """Return the error that says why there is no node at a path. One round trip."""
        rows = self._read([Get(paths.key(path), columns=(schema.DELETED,), before=view.upper + 1)])
        _, deleted = from_cells(path, self._visible(view, rows)[0])
        at = revisions.to_text(view.revision)
        if deleted:
            by = revisions.to_text(deleted)
            return NodeDeletedError(
                f"there is no node at {path} in revision {at}: revision {by} deleted it",
                path=path,
                revision=at,
                deleted_in=by,
            )
        return NodeNotFoundError(
            f"there is no node at {path} in revision {at}, and there never was one up to then", path=path, revision=at
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
        return found

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
                f"the node {path} has version {state.version} in revision {at}, but {wanted}; {other} changed it last"
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

        One round trip for up to 10,000. A missing node has no children.
        """
        names: list[str] = []
        key = paths.key(path)
        before = view.upper + 1
        start = None if after is None else paths.encode(after)
        while limit is None or len(names) < limit:
            size = CHILDREN_PAGE if limit is None else min(limit - len(names), CHILDREN_PAGE)
            page = Get(key, page=Page(schema.CHILDREN, start, size), before=before)
            life, row = self._read([Get(key, columns=(schema.DELETED,), before=before), page])
            life_cells, cells = self._visible(view, [life, row])
            state, _ = from_cells(path, life_cells)
            if state is None:
                return []
            names += _present(state, cells)
            if len(row.cells) < size:
                break
            start = row.cells[-1].qualifier
        return names

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
        life, row = self._read([Get(key, columns=(schema.DELETED,), before=before), Get(key, page=page, before=before)])
        life_cells, cells = self._visible(view, [life, row])
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

        One round trip for each batch of nodes, and one more for each further 10,000 children of a node.
        """
        found: dict[str, Names] = {}
        before = view.upper + 1
        wide = CHILDREN_PAGE if limit is None else min(max(limit, WIDE + 1), CHILDREN_PAGE)
        for part in batched(states, self._store.batch_rows):
            page = Page(schema.CHILDREN, None, wide)
            rows = self._read([Get(paths.key(state.path), page=page, before=before) for state in part])
            for state, row, cells in zip(part, rows, self._visible(view, rows), strict=True):
                names = _present(state, cells)
                after = row.cells[-1].qualifier if len(row.cells) == wide else None
                while after is not None and (limit is None or len(names) < limit):
                    cells, after = self.child_page(view, state, after)
                    names += _present(state, cells)
                found[state.path] = Names(names, after is None)
        return found

    def child_page(
        self, view: View, state: NodeState, after: bytes | None, size: int = CHILDREN_PAGE
    ) -> tuple[list[Cell], bytes | None]:
        """Return the visible cells of up to ``size`` child columns of a node's current life, after the column ``after``.

        Also returns the column after which the next page begins (None: no more). One round trip.
        """
        page = Page(schema.CHILDREN, after, size)
        rows = self._read([Get(paths.key(state.path), page=page, since=state.created, before=view.upper + 1)])
        cells = rows[0].cells
        return self._visible(view, rows)[0], cells[-1].qualifier if len(cells) == size else None

    def touched_children(self, path: str, since: int, before: int, limit: int) -> list[bytes] | None:
        """Return the child columns of a node that revisions in a range of ids wrote; ``before`` is excluded.

        None if there are more than ``limit``. One round trip for each 10,000. The store scans the whole row, and returns
        only the cells written in the range.
        """
        columns: list[bytes] = []
        after: bytes | None = None
        while len(columns) <= limit:
            page = Page(schema.CHILDREN, after, CHILDREN_PAGE)
            cells = self._read([Get(paths.key(path), page=page, since=since, before=before)])[0].cells
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
            rows = self._read([Get(paths.key(path), columns=exact, before=one.upper + 1) for one in views])
            for number, (view, row) in enumerate(zip(views, rows, strict=True)):
                counts[number] += count_of(self._visible(view, [row])[0], created)
        return counts

    def levels(self, view: View, path: str, depth: int | None = None) -> Iterator[list[NodeState]]:
        """Yield the subtree below a node, level by level, in batches that are in key order.

        The node itself is not included. ``depth`` limits the levels (None: all). One round trip for each batch of up to
        1000 rows of a level, and one more that finds the level after the last one empty. If the store supports parallel
        calls, two levels are read at the same time.
        """
        level = 0
        ahead: list[Row] | None = None
        while depth is None or level < depth:
            level += 1
            start, stop = paths.level_range(path, level)
            if ahead is not None:
                rows, ahead = ahead, None
            elif self._store.supports_parallel_calls and (depth is None or level < depth):
                following = paths.level_range(path, level + 1)
                rows, ahead = self._runtime.run_parallel(
                    partial(self._scan, view, start, stop),
                    partial(self._scan, view, *following),
                )
            else:
                rows = self._scan(view, start, stop)
            if not rows:
                return
            while rows:
                nodes = self._nodes_of(view, rows)
                if nodes:
                    yield nodes
                rows = [] if len(rows) < LEVEL_BATCH else self._scan(view, rows[-1].key + b"\0", stop)

    def _scan(self, view: View, start: bytes, stop: bytes) -> list[Row]:
        scan = Scan(start, stop, LEVEL_BATCH, families=(schema.DATA,), before=view.upper + 1)
        return self._store.scan(schema.NODES, scan)

    def _nodes_of(self, view: View, rows: Sequence[Row]) -> list[NodeState]:
        found = []
        for row, cells in zip(rows, self._visible(view, rows), strict=True):
            state, _ = from_cells(paths.path_of(row.key), cells)
            if state is not None:
                found.append(state)
        return found

    # --- versions ----------------------------------------------------------------------------------------

    def cells(self, view: View, gets: Sequence[Get]) -> list[list[Cell]]:
        """Return the visible cells of each get, one per column. This method sets ``before`` and ``versions``."""
        upper = view.upper + 1
        return self._visible(view, self._read([get._replace(before=upper, versions=1) for get in gets]))

    def _read(self, gets: Sequence[Get]) -> list[Row]:
        return self._store.read(schema.NODES, gets)

    def _visible(self, view: View, rows: Sequence[Row]) -> list[list[Cell]]:
        """Return each row's newest visible cell of each column; ``rows`` have the newest version up to the view's highest id.

        No round trip if all of these are visible.
        """
        sees = self._journal.sees
        result: list[list[Cell]] = []
        deeper: list[tuple[int, Cell]] = []
        for number, row in enumerate(rows):
            visible = []
            for cell in row.cells:
                if sees(view, cell.timestamp):
                    visible.append(cell)
                else:
                    deeper.append((number, cell))
            result.append(visible)
        if deeper:
            self._read_deeper(view, rows, result, deeper)
        return result

    def _read_deeper(
        self,
        view: View,
        rows: Sequence[Row],
        result: list[list[Cell]],
        deeper: list[tuple[int, Cell]],
    ) -> None:
        """Add the newest visible cells of the columns in ``deeper``, by older versions than these; by number of the row."""
        versions = FIRST_DEPTH
        touched = {number for number, _ in deeper}
        while deeper:
            unresolved: dict[int, dict[Column, int]] = {}
            for number, cell in deeper:
                unresolved.setdefault(number, {})[cell.family, cell.qualifier] = cell.timestamp
            gets = [
                Get(rows[number].key, columns=list(columns), before=max(columns.values()), versions=versions)
                for number, columns in unresolved.items()
            ]
            deeper = []
            for (number, columns), row in zip(unresolved.items(), self._read(gets), strict=True):
                deeper += self._pick(view, number, columns, row, versions, result)
            versions = min(versions * 4, MAX_DEPTH)
        for number in touched:
            result[number].sort(key=lambda cell: (cell.family, cell.qualifier))

    def _pick(
        self,
        view: View,
        number: int,
        columns: dict[Column, int],
        row: Row,
        versions: int,
        result: list[list[Cell]],
    ) -> list[tuple[int, Cell]]:
        """Add each column's newest visible version to ``result``; return the oldest version read of the other columns."""
        seen: dict[Column, int] = {}
        last: dict[Column, Cell] = {}
        done: set[Column] = set()
        for cell in row.cells:
            column = (cell.family, cell.qualifier)
            seen[column] = seen.get(column, 0) + 1
            if column in done:
                continue
            last[column] = cell
            if cell.timestamp < columns[column] and self._journal.sees(view, cell.timestamp):
                result[number].append(cell)
                done.add(column)
        return [(number, last[column]) for column in columns if column not in done and seen.get(column, 0) == versions]


def _present(state: NodeState, cells: Sequence[Cell]) -> list[str]:
    """Return the names of the children that a node's visible cells show."""
    created = state.created
    return [
        name_of(state.path, cell[:2]) for cell in cells if cell.value == schema.PRESENT and cell.timestamp >= created
    ]


def count_of(cells: Sequence[Cell], created: int) -> int:
    """Return how many children the visible cells show, in the parent's life that began at ``created``."""
    return sum(cell.value == schema.PRESENT and cell.timestamp >= created for cell in cells)
