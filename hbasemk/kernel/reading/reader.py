"""Reading nodes and children at a snapshot, in as few round trips as the store allows.

A read asks for the newest version of each column below the snapshot's upper end. Only where that version is not
visible (pending, aborted, private, or later in the sequence) does a further call ask deeper, for those columns
alone; so cost does not grow with a node's history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from hbasemk.errors import NodeDeletedError, NodeNotFoundError
from hbasemk.format import paths, revisions, schema
from hbasemk.format.node import NodeState, from_cells, name_of
from hbasemk.kernel.batches import read_rows, scan_rows
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.cache import NodeCache
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Cell, Column, Get, Page, Row, Scan, Store

FIRST_DEPTH: Final = 4
MAX_DEPTH: Final = 256
CHILDREN_PAGE: Final = 10_000
LEVEL_BATCH: Final = 1000
WIDE: Final = 1000
"""A node with more child columns than this is wide: its children are not all read to tell how many there are."""


class Names(NamedTuple):
    """Names of a node's children, in order; ``whole`` tells whether these are all."""

    names: list[str]
    whole: bool


class Reader:
    """Reads at snapshots of one journal, through one cache."""

    def __init__(self, store: Store, runtime: Runtime, journal: Journal, cache: NodeCache) -> None:
        self._store = store
        self._runtime = runtime
        self._journal = journal
        self._cache = cache

    # --- nodes -------------------------------------------------------------------------------------------

    def node(self, snapshot: View, path: str) -> NodeState | None:
        """The node at a path, None when there is none. No round trip from the cache, else one."""
        entry = self._cache.get(path, snapshot)
        if entry is not None:
            return entry.state
        return self.nodes(snapshot, (path,))[path]

    def cached(self, snapshot: View, path: str) -> bool:
        """Whether :meth:`node` needs no round trip."""
        return self._cache.get(path, snapshot) is not None

    def nodes(self, snapshot: View, wanted: Sequence[str]) -> dict[str, NodeState | None]:
        """Many nodes at once; a round trip for each batch of those that are not cached."""
        found: dict[str, NodeState | None] = {}
        missing: list[str] = []
        for path in dict.fromkeys(wanted):
            entry = self._cache.get(path, snapshot)
            if entry is None:
                missing.append(path)
            else:
                found[path] = entry.state
        size = self._store.batch_rows
        before = snapshot.upper + 1
        for at in range(0, len(missing), size):
            part = missing[at : at + size]
            rows = self._read([Get(paths.key(path), families=(schema.DATA,), before=before) for path in part])
            for path, cells in zip(part, self._visible(snapshot, rows), strict=True):
                state, _ = from_cells(path, cells)
                found[path] = state
                self._cache.put(path, snapshot, state)
        return found

    def require(self, snapshot: View, path: str) -> NodeState:
        """The node at a path; raises NodeNotFoundError, or NodeDeletedError naming the revision that deleted it."""
        state = self.node(snapshot, path)
        if state is None:
            raise self.missing(snapshot, path)
        return state

    def missing(self, snapshot: View, path: str) -> NodeNotFoundError:
        """The error that tells why there is no node at a path. One round trip."""
        rows = self._read([Get(paths.key(path), columns=(schema.DELETED,), before=snapshot.upper + 1)])
        _, deleted = from_cells(path, self._visible(snapshot, rows)[0])
        at = revisions.to_text(snapshot.revision)
        if deleted:
            by = revisions.to_text(deleted)
            return NodeDeletedError(
                f"there is no node at {path} in revision {at}: revision {by} deleted it",
                path=path,
                revision=at,
                deleted_in=by,
            )
        return NodeNotFoundError(f"there is no node at {path} in revision {at}", path=path, revision=at)

    # --- children ----------------------------------------------------------------------------------------

    def children(self, snapshot: View, path: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """The names of a node's children, in the order of their UTF-8 bytes, at most ``limit`` after ``after``.

        One round trip for up to 10,000. A node that does not exist has none.
        """
        names: list[str] = []
        key = paths.key(path)
        before = snapshot.upper + 1
        start = None if after is None else paths.encode(after)
        while limit is None or len(names) < limit:
            size = CHILDREN_PAGE if limit is None else min(limit - len(names), CHILDREN_PAGE)
            page = Get(key, page=Page(schema.CHILDREN, start, size), before=before)
            life, row = self._read([Get(key, columns=(schema.DELETED,), before=before), page])
            life_cells, cells = self._visible(snapshot, [life, row])
            state, _ = from_cells(path, life_cells)
            if state is None:
                return []
            names += _present(state, cells)
            if len(row.cells) < size:
                break
            start = row.cells[-1].qualifier
        return names

    def existing(self, snapshot: View, path: str, names: Sequence[bytes]) -> tuple[list[bytes], bytes | None]:
        """Which children of a node there are among sorted encoded names, and others between them, as far as looked.

        One round trip that looks at no more than twice as many columns as there are names. Returns the names found and
        the first of ``names`` that was not looked for (None: all were). A node that does not exist has no children.
        """
        key = paths.key(path)
        before = snapshot.upper + 1
        first = names[0]
        # Whatever lies between this and the first name does no harm.
        after = first[:-1] + bytes([first[-1] - 1]) if first[-1] else first[:-1]
        page = Page(schema.CHILDREN, after, 2 * len(names))
        life, row = self._read([Get(key, columns=(schema.DELETED,), before=before), Get(key, page=page, before=before)])
        life_cells, cells = self._visible(snapshot, [life, row])
        state, _ = from_cells(path, life_cells)
        if state is None:
            return [], None
        found = [cell.qualifier for cell in cells if cell.value == schema.PRESENT and cell.timestamp >= state.created]
        if len(row.cells) < page.limit:
            return found, None
        end = row.cells[-1].qualifier
        return found, next((name for name in names if name > end), None)

    def children_of(self, snapshot: View, states: Sequence[NodeState], limit: int | None = None) -> dict[str, Names]:
        """The names of the children of many nodes that exist in the snapshot, by path: all, or at least the first ``limit``.

        One round trip for each batch of nodes, and one more for each further 10,000 children of a node.
        """
        found: dict[str, Names] = {}
        before = snapshot.upper + 1
        size = self._store.batch_rows
        wide = CHILDREN_PAGE if limit is None else min(max(limit, WIDE + 1), CHILDREN_PAGE)
        for at in range(0, len(states), size):
            part = states[at : at + size]
            page = Page(schema.CHILDREN, None, wide)
            rows = self._read([Get(paths.key(state.path), page=page, before=before) for state in part])
            for state, row, cells in zip(part, rows, self._visible(snapshot, rows), strict=True):
                names = _present(state, cells)
                after = row.cells[-1].qualifier if len(row.cells) == wide else None
                while after is not None and (limit is None or len(names) < limit):
                    cells, after = self.child_page(snapshot, state, after)
                    names += _present(state, cells)
                found[state.path] = Names(names, after is None)
        return found

    def child_page(
        self, snapshot: View, state: NodeState, after: bytes | None, size: int = CHILDREN_PAGE
    ) -> tuple[list[Cell], bytes | None]:
        """The visible cells of up to ``size`` child columns of a node's present life, after the column ``after``.

        With them the column to go on after, None at the end. One round trip.
        """
        page = Page(schema.CHILDREN, after, size)
        rows = self._read([Get(paths.key(state.path), page=page, since=state.created, before=snapshot.upper + 1)])
        cells = rows[0].cells
        return self._visible(snapshot, rows)[0], cells[-1].qualifier if len(cells) == size else None

    def touched_children(self, path: str, since: int, before: int, limit: int) -> list[bytes] | None:
        """The child columns of a node that any revision in a range of ids wrote (``before`` is excluded).

        None when these are more than ``limit``. One round trip for each 10,000; the store passes over the row, and
        only what was written in the range comes back.
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

    def count_present(
        self, snapshots: Sequence[View], path: str, created: int, columns: Collection[bytes]
    ) -> list[int]:
        """For each snapshot how many of these child columns show a child, in a life of the node that began at ``created``.

        One round trip for each 10,000 columns, and another where a column's newest version is not visible.
        """
        counts = [0] * len(snapshots)
        wanted = sorted(columns)
        for at in range(0, len(wanted), CHILDREN_PAGE):
            exact = [(schema.CHILDREN, column) for column in wanted[at : at + CHILDREN_PAGE]]
            rows = self._read([Get(paths.key(path), columns=exact, before=one.upper + 1) for one in snapshots])
            for number, (snapshot, row) in enumerate(zip(snapshots, rows, strict=True)):
                counts[number] += count_of(self._visible(snapshot, [row])[0], created)
        return counts

    def levels(self, snapshot: View, path: str, depth: int | None = None) -> Iterator[list[NodeState]]:
        """The subtree below a node, level by level and batch by batch, each batch in key order.

        The node itself is not included. ``depth`` bounds the levels (None: all). One round trip per batch of up to
        1000 rows and level; the level after the last is asked for once more, to see that it is empty. Where the store gains
        by it, two levels are asked for at the same time.
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
                    lambda start=start, stop=stop: self._scan(snapshot, start, stop),  # type: ignore[misc]
                    lambda following=following: self._scan(snapshot, *following),  # type: ignore[misc]
                )
            else:
                rows = self._scan(snapshot, start, stop)
            if not rows:
                return
            while rows:
                nodes = self._nodes_of(snapshot, rows)
                if nodes:
                    yield nodes
                rows = [] if len(rows) < LEVEL_BATCH else self._scan(snapshot, rows[-1].key + b"\0", stop)

    def _scan(self, snapshot: View, start: bytes, stop: bytes) -> list[Row]:
        scan = Scan(start, stop, LEVEL_BATCH, families=(schema.DATA,), before=snapshot.upper + 1)
        return scan_rows(self._store, self._runtime, scan)

    def _nodes_of(self, snapshot: View, rows: Sequence[Row]) -> list[NodeState]:
        found = []
        for row, cells in zip(rows, self._visible(snapshot, rows), strict=True):
            state, _ = from_cells(paths.path_of(row.key), cells)
            if state is not None:
                found.append(state)
        return found

    # --- versions ----------------------------------------------------------------------------------------

    def cells(self, snapshot: View, gets: Sequence[Get]) -> list[list[Cell]]:
        """For each get its visible cells, one per column; ``before`` and ``versions`` of the gets are set here."""
        upper = snapshot.upper + 1
        return self._visible(snapshot, self._read([get._replace(before=upper, versions=1) for get in gets]))

    def _read(self, gets: Sequence[Get]) -> list[Row]:
        return read_rows(self._store, self._runtime, gets)

    def _visible(self, snapshot: View, rows: Sequence[Row]) -> list[list[Cell]]:
        sees = self._journal.sees
        result: list[list[Cell]] = []
        deeper: list[tuple[int, Cell]] = []
        for number, row in enumerate(rows):
            visible = []
            for cell in row.cells:
                if sees(snapshot, cell.timestamp):
                    visible.append(cell)
                else:
                    deeper.append((number, cell))
            result.append(visible)
        if deeper:
            self._look_deeper(snapshot, rows, result, deeper)
        return result

    def _look_deeper(
        self,
        snapshot: View,
        rows: Sequence[Row],
        result: list[list[Cell]],
        deeper: list[tuple[int, Cell]],
    ) -> None:
        versions = FIRST_DEPTH
        touched = {number for number, _ in deeper}
        while deeper:
            wanted: dict[int, dict[Column, int]] = {}
            for number, cell in deeper:
                wanted.setdefault(number, {})[cell.family, cell.qualifier] = cell.timestamp
            gets = [
                Get(rows[number].key, columns=list(columns), before=max(columns.values()), versions=versions)
                for number, columns in wanted.items()
            ]
            deeper = []
            for (number, columns), row in zip(wanted.items(), self._read(gets), strict=True):
                deeper += self._pick(snapshot, number, columns, row, versions, result)
            versions = min(versions * 4, MAX_DEPTH)
        for number in touched:
            result[number].sort(key=lambda cell: (cell.family, cell.qualifier))

    def _pick(
        self,
        snapshot: View,
        number: int,
        columns: dict[Column, int],
        row: Row,
        versions: int,
        result: list[list[Cell]],
    ) -> list[tuple[int, Cell]]:
        """Take each column's newest visible version; returns the last version of those that have to go on."""
        seen: dict[Column, int] = {}
        last: dict[Column, Cell] = {}
        done: set[Column] = set()
        for cell in row.cells:
            column = (cell.family, cell.qualifier)
            seen[column] = seen.get(column, 0) + 1
            if column in done:
                continue
            last[column] = cell
            if cell.timestamp < columns[column] and self._journal.sees(snapshot, cell.timestamp):
                result[number].append(cell)
                done.add(column)
        return [(number, last[column]) for column in columns if column not in done and seen.get(column, 0) == versions]


def _present(state: NodeState, cells: Sequence[Cell]) -> list[str]:
    """The names of the children that visible cells of a node show."""
    created = state.created
    return [
        name_of(state.path, cell[:2]) for cell in cells if cell.value == schema.PRESENT and cell.timestamp >= created
    ]


def count_of(cells: Sequence[Cell], created: int) -> int:
    """How many children visible cells show, in a life of their parent that began at ``created``."""
    return sum(cell.value == schema.PRESENT and cell.timestamp >= created for cell in cells)
