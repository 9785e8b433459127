"""The check of the ``nodes`` table: each row by itself, each cell against its revision, each life from its beginning.

A row is read in pieces: first a few versions of each column, then deeper ones and child columns in windows. So memory
depends neither on the length of a node's history nor on its number of children. No commit creates rows with child columns
only. The check searches for them between the other rows, and reads one version of each of their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, Protocol

from hbasemk.check import problem as kinds
from hbasemk.check.cell_values import blobs_of, describe, is_name, wrong_value
from hbasemk.check.collectable import Collectable
from hbasemk.check.context import CheckContext, text
from hbasemk.check.found_cells import hash_of, hash_of_added, hash_of_path, with_flag
from hbasemk.check.links import Links, Listed
from hbasemk.check.lost_updates import Later, LostUpdates
from hbasemk.check.problem import Problem
from hbasemk.check.statuses import RevisionStatus
from hbasemk.errors import FormatError, InvalidPathError
from hbasemk.format import paths, revisions, schema, values
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.read_sizes import FIRST_ROWS, next_limit
from hbasemk.store.abc import ALL_VERSIONS, Cell, CellVersion, Column, Delete, Get, Page, Row, Scan
from hbasemk.store.sizes import size_of

ROWS: Final = 200
"""The largest number of rows in one batch."""
VERSIONS: Final = 8
"""The number of versions of a column in the first read of its row; more reads follow if there are that many."""
DEEPEST: Final = 1024
CHILDREN: Final = 4000
"""The number of child columns in one window."""
LARGE: Final = 4 * 1024 * 1024
"""The bytes of values in one read above which later reads request fewer versions."""


class _Node(NamedTuple):
    """A row whose key is a path: the revision that added the node (0: it does not exist), and its visible properties."""

    path: str
    key: bytes
    life: int = 0
    properties: Mapping[bytes, Cell] = {}


class Batch(NamedTuple):
    """All rows with cells in the data family from ``start`` (inclusive) to ``stop`` (exclusive; None: no end)."""

    start: bytes | None
    stop: bytes | None
    rows: Sequence[Row]


class RangeCheck(Protocol):
    """Checks ranges of rows as :meth:`NodesCheck.in_range` does."""

    def in_range(self, start: bytes | None, stop: bytes | None) -> Generator[Problem, None, int]: ...


def first_scan(start: bytes | None, stop: bytes | None) -> Scan:
    """Return the scan of the first rows of a range."""
    return Scan(start, stop, min(FIRST_ROWS, ROWS), families=(schema.DATA,), versions=VERSIONS)


class NodesCheck:
    """Check the table, or one subtree, once. ``progress`` is called with the number of rows of each batch."""

    def __init__(self, context: CheckContext, links: Links, progress: Callable[[int], None]) -> None:
        self._context = context
        self._links = links
        self._lost = LostUpdates(context)
        self._collectable = Collectable(context)
        self._progress = progress

    def run(self, top: str | None, workers: RangeCheck | None = None) -> Iterator[Problem]:
        """Yield the problems at and below ``top`` (None: of all nodes); ``workers`` check ranges instead of this object."""
        in_range = (self if workers is None else workers).in_range
        if top is None:
            yield from in_range(None, None)
            return
        key = paths.key(top)
        get = Get(key, families=(schema.DATA,), versions=VERSIONS)
        yield from self.check(Batch(key, key, self._context.read(schema.NODES, [get])))
        level = rows = 1
        while rows:
            rows = yield from in_range(*paths.level_range(top, level))
            level += 1

    def in_range(self, start: bytes | None, stop: bytes | None) -> Generator[Problem, None, int]:
        """Check the rows from ``start`` (inclusive) to ``stop`` (exclusive; None: no end). Yield the problems.

        Returns the number of rows.
        """
        rows = 0
        scan: Scan | None = first_scan(start, stop)
        while scan is not None:
            batch, scan = self.read(scan)
            yield from self.check(batch)
            rows += len(batch.rows)
        return rows

    def read(self, scan: Scan) -> tuple[Batch, Scan | None]:
        """Read the next rows; return them with the scan of the rows behind them, or None if these are the last ones."""
        rows = self._context.page(schema.NODES, scan)
        if len(rows) < scan.limit:
            return Batch(scan.start, scan.stop, rows), None
        after = rows[-1].key + b"\0"
        size = sum(size_of(row.cells) for row in rows)
        return Batch(scan.start, after, rows), scan._replace(
            start=after, limit=next_limit(scan.limit, size, ROWS, LARGE)
        )

    # --- one batch of rows -------------------------------------------------------------------------------

    def check(self, batch: Batch) -> Generator[Problem, None, int]:
        """Yield the problems of some rows; return the number of these rows and of their child columns."""
        self._context.load({cell.timestamp for row in batch.rows for cell in row.cells})
        nodes: list[_Node] = []
        for row in batch.rows:
            path, wrong = _path_of(row.key)
            if wrong is not None:
                yield wrong
            node = self._added_once(path, row) if wrong is None else None
            if node is None:
                node = yield from self._check_data(path, row, known=wrong is None)
            if wrong is None:
                nodes.append(node)
        yield from self._links.check_parents([(node.path, node.life) for node in nodes if node.life])
        widths = yield from self._check_children(nodes)
        yield from self._check_between(batch, widths)
        self._progress(sum(bool(row.cells) for row in batch.rows))
        return len(batch.rows) + sum(widths.values())

    def _check_between(self, batch: Batch, widths: Mapping[bytes, int]) -> Iterator[Problem]:
        """Check the rows of a batch's range that have child columns only.

        A scan returns them only together with the child columns of all rows. So one scan covers rows with at most CHILDREN
        of these columns (``widths``), and leaves out wider rows.
        """
        known = {row.key for row in batch.rows}
        start, room = batch.start, CHILDREN
        for row in batch.rows:
            width = widths.get(row.key, CHILDREN + 1)
            if width > room:
                yield from self._check_bare(start, row.key, known)
                start, room = row.key, CHILDREN
            if width > room:
                start = row.key + b"\0"
            else:
                room -= width
        yield from self._check_bare(start, batch.stop, known)

    def _check_bare(self, start: bytes | None, stop: bytes | None, known: AbstractSet[bytes]) -> Iterator[Problem]:
        if start is not None and stop is not None and start >= stop:
            return
        for rows in self._context.pages(schema.NODES, Scan(start, stop, ROWS, families=(schema.CHILDREN,))):
            # A row that a commit has created meanwhile is checked in the same way, which is harmless.
            without_data = [row.key for row in rows if row.key not in known]
            nodes: list[_Node] = []
            for key in without_data:
                path, wrong = _path_of(key)
                if wrong is None:
                    nodes.append(_Node(path, key))
                else:
                    yield wrong
            yield from self._check_children(nodes)

    def _added_once(self, path: str, row: Row) -> _Node | None:
        """Return the node if its row has exactly the valid cells with which one visible revision has added it.

        Otherwise, return None: these may be cells of several revisions, or a problem.
        """
        if not row.cells:
            return None
        version = row.cells[0].timestamp
        status = self._context.status(version)
        if status.declared is None or status.outcome is not Outcome.COMMITTED or not self._context.sees(version):
            return None
        hashed_path = hash_of_path(path)
        number = 0
        properties: dict[bytes, Cell] = {}
        for cell in row.cells:
            family, qualifier, timestamp, value = cell
            if timestamp != version or wrong_value(cell) is not None:
                return None
            number ^= with_flag(hash_of(hashed_path, (family, qualifier)), (family, qualifier), value)
            if qualifier[:1] == b"\x01":
                properties[qualifier] = cell
        if not status.declares(hash_of_added(number)):
            return None
        self._context.found.add({version: number})
        return self._node(path, row.key, version, properties)

    def _node(self, path: str, key: bytes, life: int, properties: Mapping[bytes, Cell]) -> _Node:
        """Return an existing node, and remember the blobs to which it refers."""
        for qualifier, cell in properties.items():
            if blobs_of(cell.value) and cell.timestamp >= life:
                self._links.refers(path, qualifier, cell)
        return _Node(path, key, life, properties)

    def _check_data(self, path: str, row: Row, *, known: bool) -> Generator[Problem, None, _Node]:
        """Check the data family of a row; return the state of the node."""
        life: int | None = None
        waits = 0
        newest: dict[bytes, Cell] = {}
        later: Later = {}
        passed = self._collectable.in_row(path)
        for window, several in self._windows(row.cells, Get(row.key, families=(schema.DATA,))):
            yield from self._judge(path, row.key, window, known=known)
            if several:
                yield from self._lost.check(path, window, later)
                passed.add(window)
            visible = set(filter(self._context.sees, {cell.timestamp for cell in window}))
            seen = [cell for cell in window if cell.timestamp in visible]
            deleted = {cell.timestamp: cell.value for cell in seen if cell.qualifier == schema.DELETED[1]}
            for version in sorted(visible, reverse=True):
                begins = deleted.get(version) == schema.ALIVE
                if version in deleted and life is None:
                    life = version if begins else 0
                if waits and version in deleted and not begins and not self._context.is_collected(version):
                    yield _lifeless(path, waits, f"revision {text(version)} had deleted the node")
                waits = 0 if begins else version if version in deleted else waits or version
            for cell in seen:
                if cell.qualifier[:1] == b"\x01":
                    newest.setdefault(cell.qualifier, cell)
        if waits and not self._context.is_collected(waits):
            yield _lifeless(path, waits, "no revision before it began the node's life")
        elif waits and life is None and self._has_lost_its_life(row.key):
            detail = "its other cells are stored, but the cell that began or ended the node's life is missing"
            yield Problem(kinds.LIFE, path, text(waits), detail)
        yield from passed.problems()
        if not life or not known:
            return _Node(path, row.key)
        return self._node(path, row.key, life, newest)

    def _has_lost_its_life(self, key: bytes) -> bool:
        """Return whether a row has cells of the checked view, but nothing that began or ended a life of its node.

        Collectors never leave that, wherever they stop: they delete the mark of a deletion last. They may be at work now, so this
        reads ``deleted`` before the other cells.
        """
        get = Get(key, columns=(schema.DELETED,), versions=ALL_VERSIONS)
        for cell in self._context.read(schema.NODES, [get])[0].cells:
            status = self._context.status(cell.timestamp)
            is_aborted = status.outcome is Outcome.ABORTED and not self._context.was_committed(cell.timestamp, status)
            if not revisions.is_branch(cell.timestamp) and not is_aborted:
                return False
        (row,) = self._context.read(schema.NODES, [Get(key, families=(schema.DATA,), versions=VERSIONS)])
        return any(self._context.sees(cell.timestamp) for cell in row.cells)

    # --- children ----------------------------------------------------------------------------------------

    def _check_children(self, nodes: Sequence[_Node]) -> Generator[Problem, None, Mapping[bytes, int]]:
        """Check the child columns of rows; return how many each has."""
        widths = dict.fromkeys((node.key for node in nodes), 0)
        pending: list[tuple[_Node, bytes | None]] = [(node, None) for node in nodes]
        while pending:
            share = max(CHILDREN // len(pending), 8)
            pages = [Get(node.key, page=Page(schema.CHILDREN, after, share)) for node, after in pending]
            wide: list[tuple[_Node, bytes | None]] = []
            full: list[tuple[_Node, Get]] = []
            for (node, _), row in zip(pending, self._context.read(schema.NODES, pages), strict=True):
                if row.cells:
                    widths[node.key] += len(row.cells)
                    columns = [(cell.family, cell.qualifier) for cell in row.cells]
                    full.append((node, Get(node.key, columns=columns, versions=VERSIONS)))
                if len(row.cells) == share:
                    wide.append((node, row.cells[-1].qualifier))
            rows = self._context.read(schema.NODES, [get for _, get in full])
            self._context.load({cell.timestamp for row in rows for cell in row.cells})
            listed: list[Listed] = []
            for (node, get), row in zip(full, rows, strict=True):
                newest: dict[bytes, Cell] = {}
                later: Later = {}
                passed = self._collectable.in_row(node.path)
                for window, several in self._windows(row.cells, get):
                    yield from self._judge(node.path, row.key, window, known=True)
                    if several:
                        yield from self._lost.check(node.path, window, later)
                        passed.add(window)
                    for cell in window:
                        if cell.qualifier not in newest and self._context.sees(cell.timestamp):
                            newest[cell.qualifier] = cell
                yield from passed.problems()
                for cell in newest.values():
                    if not node.life or cell.value != schema.PRESENT or cell.timestamp < node.life:
                        continue
                    if is_name(cell.qualifier):
                        child = paths.join(node.path, paths.decode(cell.qualifier))
                        listed.append(Listed(node.path, child, cell.timestamp))
                    same = node.properties.get(b"\x01" + cell.qualifier)
                    if same is not None and same.timestamp >= node.life and same.value != values.TOMBSTONE:
                        yield _used_twice(node, cell, same)
            yield from self._links.check_listed(listed)
            pending = wide
        return widths

    # --- cells -------------------------------------------------------------------------------------------

    def _windows(self, cells: Sequence[Cell], get: Get) -> Iterator[tuple[Sequence[Cell], bool]]:
        """Yield the cells of a row, newest first, in windows that are each complete for their time span.

        With each: whether any column has several versions, in this window or in all of them together.
        ``cells`` are the newest VERSIONS of each column; ``get`` reads the older ones.
        """
        depth = VERSIONS
        deeper = False
        while True:
            count: dict[Column, int] = {}
            cut = 0
            for cell in cells:
                column = (cell.family, cell.qualifier)
                count[column] = count.get(column, 0) + 1
                if count[column] == depth:
                    cut = max(cut, cell.timestamp)
            if not cut:
                yield cells, deeper or len(count) < len(cells)
                return
            deeper = True
            yield [cell for cell in cells if cell.timestamp >= cut], True
            depth = next_limit(depth, size_of(cells), DEEPEST, LARGE, 2)
            cells = self._context.read(schema.NODES, [get._replace(before=cut, versions=depth)])[0].cells
            self._context.load({cell.timestamp for cell in cells})

    def _judge(self, path: str, key: bytes, cells: Sequence[Cell], *, known: bool) -> Iterator[Problem]:
        """Check each cell: its column, its value, and its revision's status and declared cells."""
        wrong: dict[int, list[Cell]] = {}
        versions = {cell.timestamp for cell in cells}
        statuses = {version: self._context.status(version) for version in versions}
        uncommitted = {version for version, status in statuses.items() if self._is_uncommitted(version, status)}
        found = dict.fromkeys(versions, 0)
        hashed_path = hash_of_path(path) if known else 0
        for cell in cells:
            family, qualifier, version, value = cell
            status = statuses[version]
            if version in uncommitted:
                wrong.setdefault(version, []).append(cell)
                if status.outcome is not Outcome.PENDING:
                    continue
            if known:
                column = (family, qualifier)
                hashed = hash_of(hashed_path, column)
                if status.declares(hashed):
                    found[version] ^= with_flag(hashed, column, value)
                else:
                    detail = f"{describe(cell)}: its revision does not declare it"
                    yield Problem(kinds.UNDECLARED, path, text(version), detail)
            reason = wrong_value(cell)
            if reason is not None:
                yield Problem(reason[0], path, text(version), f"{describe(cell)}: {reason[1]}")
        self._context.found.add(found)
        for version, of_version in wrong.items():
            yield from self._check_uncommitted(path, key, version, self._context.status(version), of_version)

    def _is_uncommitted(self, version: int, status: RevisionStatus) -> bool:
        """Return whether cells of a revision are wrong in the tables, because it is not committed."""
        if status.outcome is Outcome.COMMITTED or self._context.was_committed(version, status):
            return False
        return status.outcome is not Outcome.PENDING or self._context.is_visible(version)

    def _without_row_yet(self, path: str, key: bytes, version: int, cells: Sequence[Cell]) -> list[Problem] | None:
        """Return the problems of cells whose revision has got its row meanwhile, or gets it when it is decided.

        None if the revision does not exist.
        """
        # The log before the row: if the log shows the changes no more, the revision has been decided, as the row then shows.
        is_announced = self._context.is_announced_with_changes(version)
        now = self._context.current_status(version)
        if now.outcome is Outcome.ABORTED:
            return list(self._check_uncommitted(path, key, version, now, cells))
        if now.outcome is not Outcome.ABSENT:
            return []
        if not is_announced or self._context.is_visible(version):
            return None
        if not self._context.is_lease_over(version):
            return []
        detail = f"{_names(cells)}: its writer's lease has expired, and no instance has decided it yet"
        return [Problem(kinds.DEAD, path, text(version), detail, kinds.LEFTOVER, repairable=True)]

    def _check_uncommitted(
        self, path: str, key: bytes, version: int, status: RevisionStatus, cells: Sequence[Cell]
    ) -> Iterator[Problem]:
        """Yield problems for cells of an uncommitted revision, unless they are gone by now or the writer may remove them."""
        absent = status.outcome is Outcome.ABSENT
        if version in self._context.deferred():
            return
        if status.outcome is Outcome.PENDING:
            current = self._context.current_status(version)
            if current.outcome is Outcome.PENDING:
                detail = f"{describe(cells[0])}: instances that open now show it, and its revision is undecided"
                is_lease_over = self._context.is_lease_over(version)
                # The horizon passes decided revisions only, so its row is damaged: the revision may have committed.
                repairable = current.can_abort and is_lease_over and not self._context.is_collected(version)
                yield Problem(kinds.BELOW_WATERMARK, path, text(version), detail, repairable=repairable)
            return
        if not absent and status.swept is None and self._context.live and not self._context.is_lease_over(version):
            return
        columns = [(cell.family, cell.qualifier) for cell in cells]
        get = Get(key, columns=columns, since=version, before=version + 1)
        still = self._context.read(schema.NODES, [get])[0].cells
        if not still:
            return
        delete = (Delete(key, [CellVersion(cell.family, cell.qualifier, version) for cell in still]),)
        visible = self._context.is_visible(version)
        severity = kinds.DAMAGE if visible else kinds.LEFTOVER
        what = _names(still)
        seen = "; instances that opened after it show it as committed" if visible else ""
        if absent and self._context.is_trimmed(version):
            detail = f"{what}: written after its revision was swept; invisible, and deleted by hbasemk collect --full"
            yield Problem(kinds.LATE, path, text(version), detail, kinds.NOTE)
        elif absent and revisions.is_branch(version) and self._context.is_collected(version):
            # A process slept while a collector deleted its branch (protocol, section 9).
            detail = (
                f"{what}: written by a branch revision without a row; invisible, and deleted by hbasemk collect --full"
            )
            yield Problem(kinds.NO_ROW, path, text(version), detail, severity)
        elif absent and (found := self._without_row_yet(path, key, version, cells)) is not None:
            yield from found
        elif absent:
            detail = f"{what}: written by a revision that does not exist{seen}"
            repairable = not visible and self._context.is_lease_over(version)
            yield Problem(kinds.NO_ROW, path, text(version), detail, severity, repairable, delete)
        elif status.swept is None:
            detail = f"{what}: not rolled back{seen}"
            yield Problem(kinds.ABORTED, path, text(version), detail, severity, True, delete)
        elif status.swept != schema.SWEPT_IN_DOUBT:
            detail = f"{what}: still stored, although its revision is marked as swept{seen}"
            yield Problem(kinds.SWEPT, path, text(version), detail, severity, True, delete)
        elif visible:
            yield Problem(kinds.ABORTED, path, text(version), f"{what}{seen}", severity, True, delete)
        else:
            # A paused writer may write cells of these at any time; they stay hidden (protocol, section 6).
            detail = f"{what}: written after its revision was swept; invisible"
            yield Problem(kinds.LATE, path, text(version), detail, kinds.NOTE, True, delete)


def _path_of(key: bytes) -> tuple[str, Problem | None]:
    """Return the path of a row key, or a printable form of the key with its problem."""
    shown = ascii(key[:200])[2:-1]
    try:
        path = paths.check_path(paths.path_of(key))
    except (FormatError, InvalidPathError):
        return shown, Problem(kinds.ROW_KEY, shown, "", "no node can have this row key")
    if paths.key(path) != key:
        detail = f"the depth in the row key {shown!r} is not that of the path"
        return path, Problem(kinds.ROW_KEY, path, "", detail)
    return path, None


def _used_twice(node: _Node, child: Cell, same: Cell) -> Problem:
    detail = (
        f"{describe(child)} exists since {text(child.timestamp)}, and {describe(same)} since {text(same.timestamp)}"
    )
    return Problem(kinds.NAME_TWICE, node.path, text(max(child.timestamp, same.timestamp)), detail)


def _lifeless(path: str, version: int, why: str) -> Problem:
    return Problem(kinds.LIFE, path, text(version), f"it changed a node that did not exist: {why}")


def _names(cells: Sequence[Cell]) -> str:
    """Describe the columns of the first few cells."""
    return ", ".join(describe(cell) for cell in cells[:5]) + (", …" if len(cells) > 5 else "")
