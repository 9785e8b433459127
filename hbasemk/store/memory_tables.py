"""Tables in memory: rows in key order, columns in order within a row, and the versions of a column by their timestamps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from sortedcontainers import SortedDict

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import (
    MAX_TIMESTAMP,
    Cell,
    CellVersion,
    Column,
    DeleteBelow,
    Get,
    Page,
    Put,
    Scan,
    Table,
)
from hbasemk.store.alike import NewCellFields

_TIMESTAMP: Final = itemgetter(2)
_FEW_COLUMNS: Final = 16
"""Up to so many new columns are put in their places one by one; more are sorted in."""


class MemoryRow:
    """The cells of one row by column, oldest version first; ``order`` holds the columns sorted."""

    __slots__ = ("order", "versions")

    def __init__(self) -> None:
        self.order: list[Column] = []
        self.versions: dict[Column, list[Cell]] = {}

    def put(self, cells: Iterable[NewCellFields], now: int, max_versions: int) -> None:
        """Add versions, and drop the oldest ones of a column that has more than ``max_versions``."""
        added: list[Column] = []
        for family, qualifier, value, timestamp in cells:
            column = (family, qualifier)
            cell = Cell(family, qualifier, now if timestamp is None else timestamp, value)
            kept = self.versions.get(column)
            if kept is None:
                self.versions[column] = [cell]
                added.append(column)
                continue
            if cell.timestamp > kept[-1].timestamp:
                kept.append(cell)
            else:
                at = bisect_left(kept, cell.timestamp, key=_TIMESTAMP)
                if kept[at].timestamp == cell.timestamp:
                    kept[at] = cell
                else:
                    kept.insert(at, cell)
            if len(kept) > max_versions:
                del kept[0]
        if len(added) <= _FEW_COLUMNS:
            for column in added:
                insort(self.order, column)
        else:
            self.order += added
            self.order.sort()

    def clone(self) -> MemoryRow:
        """Return a copy that later changes do not affect."""
        other = MemoryRow()
        other.order = self.order.copy()
        other.versions = {column: kept.copy() for column, kept in self.versions.items()}
        return other

    def delete(self, cells: Iterable[CellVersion]) -> None:
        """Delete exactly these versions."""
        for family, qualifier, timestamp in cells:
            column = (family, qualifier)
            kept = self.versions.get(column, [])
            at = bisect_left(kept, timestamp, key=_TIMESTAMP)
            if at < len(kept) and kept[at].timestamp == timestamp:
                del kept[at]
                if not kept:
                    del self.versions[column]
                    del self.order[bisect_left(self.order, column)]

    def delete_below(self, delete: DeleteBelow) -> None:
        """Delete the ranges of this row."""
        ranges = [((family, qualifier), before) for family, qualifier, before in delete.cells]
        ranges += [
            (column, before) for family, before in delete.families for column in self.order if column[0] == family
        ]
        for column, before in ranges:
            kept = self.versions.get(column, [])
            del kept[: bisect_left(kept, before, key=_TIMESTAMP)]
            if not kept and self.versions.pop(column, None) is not None:
                del self.order[bisect_left(self.order, column)]

    def columns_of(self, get: Get | Scan, page: Page | None) -> Iterable[Column]:
        """Return the requested columns, sorted; some of them may not exist."""
        if get.columns is not None:
            return sorted(set(get.columns))
        if page is not None:
            after = (page.family, page.after or b"")
            return self._family(page.family, (bisect_left if page.after is None else bisect_right)(self.order, after))
        if get.families is not None:
            return (
                column
                for family in sorted(set(get.families))
                for column in self._family(family, bisect_left(self.order, (family, b"")))
            )
        return self.order

    def _family(self, family: bytes, at: int) -> Iterable[Column]:
        order = self.order
        while at < len(order) and order[at][0] == family:
            yield order[at]
            at += 1

    def select(self, get: Get | Scan, page: Page | None = None) -> list[Cell]:
        """Return the requested versions, newest first within a column."""
        since, before, versions = get.since, get.before, get.versions
        limit = MAX_TIMESTAMP if page is None else page.limit
        found: list[Cell] = []
        for column in self.columns_of(get, page):
            if len(found) >= limit:
                break
            kept = self.versions.get(column)
            if kept is None:
                continue
            newest = kept[-1]
            if versions == 1 and since <= newest.timestamp < before:
                found.append(newest)
                continue
            end = bisect_left(kept, before, key=_TIMESTAMP)
            begin = max(bisect_left(kept, since, key=_TIMESTAMP), end - versions)
            found += reversed(kept[begin:end])
        return found if page is None else found[:limit]


class MemoryTable:
    """One table: its rows in key order, and the number of versions that a column keeps.

    ``written`` lists the keys of the rows in the order of writes, without the first ``forgotten`` ones; None: the table does
    not keep the order.
    """

    __slots__ = ("families", "forgotten", "name", "rows", "versions", "written")

    def __init__(self, table: Table) -> None:
        self.name = table.name
        self.families = frozenset(table.families)
        self.versions = table.versions
        self.rows: SortedDict[bytes, MemoryRow] = SortedDict()
        self.written: list[bytes] | None = None
        self.forgotten = 0

    @property
    def last_number(self) -> int:
        """The arrival number of the last write; 0 if the table does not keep the order."""
        return 0 if self.written is None else self.forgotten + len(self.written)

    def written_after(self, after: int, limit: int) -> tuple[int, list[bytes]]:
        """Return the rows written after an arrival number, at most ``limit`` writes, and the number of the last one."""
        begin = max(after - self.forgotten, 0)
        keys = (self.written or [])[begin : begin + limit]
        return (self.forgotten + begin + len(keys) if keys else after), keys

    def forget(self, upto: int) -> None:
        """Forget the writes up to an arrival number, but never the last one."""
        count = min(upto, self.last_number - 1) - self.forgotten
        if self.written is not None and count > 0:
            del self.written[:count]
            self.forgotten += count

    def clone(self) -> MemoryTable:
        """Return a copy that later changes do not affect."""
        other = MemoryTable(Table(self.name, tuple(self.families), self.versions))
        other.written = None if self.written is None else self.written.copy()
        other.forgotten = self.forgotten
        other.rows = SortedDict((key, row.clone()) for key, row in self.rows.items())
        return other

    def check_families(self, families: Iterable[bytes]) -> None:
        """Raise StoreUnusableError for a column family that the table does not have."""
        for family in families:
            if family not in self.families:
                raise StoreUnusableError(
                    f"table {self.name!r} has no column family {family!r}; it has {sorted(self.families)}"
                )

    def check_selection(self, get: Get | Scan, page: Page | None = None) -> None:
        """Raise StoreUnusableError if a read names a column family that the table does not have."""
        if get.columns is not None:
            self.check_families([column[0] for column in get.columns])
        elif page is not None:
            self.check_families((page.family,))
        elif get.families is not None:
            self.check_families(get.families)

    def newest(self, put: Put) -> int:
        """Return the highest timestamp in the columns that a put writes, or 0."""
        row = self.rows.get(put.row)
        if row is None:
            return 0
        kept = (row.versions.get(cell[:2]) for cell in put.cells)
        return max((versions[-1].timestamp for versions in kept if versions), default=0)

    def put(self, put: Put, now: int) -> None:
        """Write into one row; ``now`` is the timestamp of cells that have none."""
        row = self.rows.get(put.row)
        if row is None:
            row = self.rows[put.row] = MemoryRow()
        row.put(put.cells, now if put.timestamp is None else put.timestamp, self.versions)
        if self.written is not None:
            self.written.append(put.row)
