"""A store in this process's memory: the reference implementation, and the model that tests compare other stores with.

One lock makes every call atomic as a whole, which is more than the contract requires. A row disappears with its last
cell. Processes share nothing: a forked child works on its own copy.

A :class:`NamedStore` is one handle on a store that the process shares by name. Handles are counted: the contents
disappear when the last handle is closed, whenever Python frees the objects.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from sortedcontainers import SortedDict

from hbasemk.errors import ClosedError, StoreUnusableError
from hbasemk.store.abc import (
    MAX_TIMESTAMP,
    Cell,
    CellVersion,
    Column,
    Decision,
    Delete,
    Get,
    NewCell,
    Page,
    Put,
    Row,
    Scan,
    Store,
    Table,
)

_TIMESTAMP: Final = itemgetter(2)
_FEW_COLUMNS: Final = 16
"""Up to so many new columns are put in their places one by one; more are sorted in."""


def real_clock() -> int:
    """Return the wall clock in ms since 1970."""
    return time.time_ns() // 1_000_000


class _Row:
    """The cells of one row by column, oldest version first; ``order`` holds the columns sorted."""

    __slots__ = ("order", "versions")

    def __init__(self) -> None:
        self.order: list[Column] = []
        self.versions: dict[Column, list[Cell]] = {}

    def put(self, cells: Iterable[NewCell], now: int, max_versions: int) -> None:
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

    def clone(self) -> _Row:
        other = _Row()
        other.order = self.order.copy()
        other.versions = {column: kept.copy() for column, kept in self.versions.items()}
        return other

    def delete(self, cells: Iterable[CellVersion]) -> None:
        for family, qualifier, timestamp in cells:
            column = (family, qualifier)
            kept = self.versions.get(column, [])
            at = bisect_left(kept, timestamp, key=_TIMESTAMP)
            if at < len(kept) and kept[at].timestamp == timestamp:
                del kept[at]
                if not kept:
                    del self.versions[column]
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


class _Changes:
    """Counts the changes of one set of tables, for all handles on it; before each change, so that an interrupt hides none."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class _Table:
    """One table: its rows in key order, and the number of versions that a column keeps."""

    __slots__ = ("families", "name", "rows", "versions")

    def __init__(self, table: Table) -> None:
        self.name = table.name
        self.families = frozenset(table.families)
        self.versions = table.versions
        self.rows: SortedDict[bytes, _Row] = SortedDict()

    def clone(self) -> _Table:
        other = _Table(Table(self.name, tuple(self.families), self.versions))
        other.rows = SortedDict((key, row.clone()) for key, row in self.rows.items())
        return other

    def check_families(self, families: Iterable[bytes]) -> None:
        for family in families:
            if family not in self.families:
                raise StoreUnusableError(
                    f"table {self.name!r} has no column family {family!r}; it has {sorted(self.families)}"
                )

    def check_selection(self, get: Get | Scan, page: Page | None = None) -> None:
        if get.columns is not None:
            self.check_families([column[0] for column in get.columns])
        elif page is not None:
            self.check_families((page.family,))
        elif get.families is not None:
            self.check_families(get.families)

    def put(self, put: Put, now: int) -> None:
        row = self.rows.get(put.row)
        if row is None:
            row = self.rows[put.row] = _Row()
        row.put(put.cells, now, self.versions)


class MemoryStore(Store):
    """A store in memory; its contents disappear with the object.

    ``clock`` returns the server's time in ms since 1970. ``clocks`` overrides it for the tables that it names.
    ``transactions`` enables :meth:`write_if`. ``parallel`` sets :attr:`supports_parallel_calls`, for tests.

    The store behaves like HBase, also where the contract is silent. A compare-and-set that takes the server's time uses
    the checked cell's timestamp if that is later. An empty value of the checked column counts as absent. There is one
    difference: after a delete of an exact version or of a row, HBase hides a later put of that version until the next
    major compaction; here the put is visible at once. The contract leaves this open, so callers must rely on neither.
    """

    def __init__(
        self,
        clock: Callable[[], int] = real_clock,
        *,
        transactions: bool = False,
        parallel: bool = False,
        clocks: Mapping[str, Callable[[], int]] | None = None,
    ) -> None:
        self._clock = clock
        self._clocks = clocks or {}
        self._transactions = transactions
        self._parallel = parallel
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}
        self._changes = _Changes()
        self._closed = False

    @property
    def location(self) -> str:
        """The place where the cells are stored, for messages."""
        return "memory"

    def clock_ms(self) -> int | None:
        """Return the clock if the store has transactions, as SQLite does; else None, as a remote store does."""
        return self._clock() if self._transactions else None

    def change_counter(self) -> int | None:
        """Return the number of changes so far."""
        with self._lock:
            self._check_open()
            return self._changes.count

    def _now(self, table: _Table) -> int:
        return self._clocks.get(table.name, self._clock)()

    def clone(self, clock: Callable[[], int] | None = None) -> MemoryStore:
        """Return an independent copy of the store; ``clock=None`` keeps the clock."""
        clock = self._clock if clock is None else clock
        other = MemoryStore(clock, transactions=self._transactions, parallel=self._parallel)
        with self._lock:
            self._check_open()
            other._tables = {name: table.clone() for name, table in self._tables.items()}
        return other

    def _share(self, other: MemoryStore) -> None:
        """Share the cells of another store from now on; each store is closed separately."""
        self._clock, self._transactions, self._parallel = other._clock, other._transactions, other._parallel
        self._lock, self._tables, self._changes = other._lock, other._tables, other._changes

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create missing tables, then verify them."""
        with self._lock:
            self._check_open()
            for table in tables:
                if table.name not in self._tables:
                    self._tables[table.name] = _Table(table)
            self._verify(tables)

    def verify(self, tables: Sequence[Table]) -> None:
        """Raise StoreUnusableError if a table is missing or has other settings."""
        with self._lock:
            self._check_open()
            self._verify(tables)

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Remove tables and their contents."""
        with self._lock:
            self._check_open()
            self._changes.count += 1
            for table in tables:
                self._tables.pop(table.name, None)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Return one row per get, all from one state of the table."""
        with self._lock:
            return self._read(self._table(table), gets)

    def _read(self, found: _Table, gets: Sequence[Get]) -> list[Row]:
        rows = []
        for get in gets:
            found.check_selection(get, get.page)
            row = found.rows.get(get.row)
            rows.append(Row(get.row, [] if row is None else row.select(get, get.page)))
        return rows

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Return the first rows of a range, all from one state of the table."""
        with self._lock:
            found = self._table(table)
            found.check_selection(scan)
            if scan.reverse:
                keys = found.rows.irange(scan.stop, scan.start, (False, True), reverse=True)
            else:
                keys = found.rows.irange(scan.start, scan.stop, (True, False))
            rows: list[Row] = []
            for key in keys:
                if len(rows) >= scan.limit:
                    break
                cells = found.rows[key].select(scan)
                if cells:
                    rows.append(Row(key, cells))
            return rows

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:  # noqa: ARG002 - never durable
        """Write all cells atomically."""
        self.check_puts(puts)
        with self._lock:
            found = self._table(table)
            for put in puts:
                found.check_families([cell.family for cell in put.cells])
            now = self._now(found)
            self._changes.count += 1
            for put in puts:
                found.put(put, now)

    def check_and_write(
        self,
        table: str,
        column: Column,
        expected: bytes | None,
        put: Put,
        *,
        durable: bool = True,  # noqa: ARG002 - never durable
    ) -> bool:
        """Write ``put`` if the newest value of ``column`` is ``expected``."""
        self.check_puts((put,))
        with self._lock:
            return self._compare_and_set(self._table(table), column, expected, put)

    def _compare_and_set(self, found: _Table, column: Column, expected: bytes | None, put: Put) -> bool:
        found.check_families([column[0], *(cell.family for cell in put.cells)])
        now = self._now(found)
        row = found.rows.get(put.row)
        kept = None if row is None else row.versions.get(column)
        value = None
        if kept:
            value = kept[-1].value
            now = max(now, kept[-1].timestamp)
        if (value or None) != (expected or None):
            return False
        self._changes.count += 1
        found.put(put, now)
        return True

    @property
    def supports_transactions(self) -> bool:
        """Whether the constructor enabled transactions."""
        return self._transactions

    @property
    def supports_parallel_calls(self) -> bool:
        """Whether the constructor enabled parallel calls."""
        return self._parallel

    def write_if(
        self,
        table: str,
        puts: Sequence[Put],
        gets: Sequence[Get],
        judge: Callable[[list[Row]], bool],
        decision: Decision,
        also: Sequence[tuple[str, Get]] = (),
    ) -> bool | None:
        """Read, decide and write under one lock."""
        if not self._transactions:
            return super().write_if(table, puts, gets, judge, decision, also)
        self.check_puts((*puts, decision.put))
        with self._lock:
            found = self._table(table)
            for put in puts:
                found.check_families([cell.family for cell in put.cells])
            others = [row for name, get in also for row in self._read(self._table(name), (get,))]
            if not judge([*self._read(found, gets), *others]):
                return None
            if not self._compare_and_set(self._table(decision.table), decision.column, decision.expected, decision.put):
                return False
            now = self._now(found)
            for put in puts:
                found.put(put, now)
            return True

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exactly the given cell versions."""
        with self._lock:
            found = self._table(table)
            for delete in deletes:
                found.check_families([cell.family for cell in delete.cells])
            self._changes.count += 1
            for delete in deletes:
                row = found.rows.get(delete.row)
                if row is not None:
                    row.delete(delete.cells)
                    if not row.order:
                        del found.rows[delete.row]

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete whole rows."""
        with self._lock:
            found = self._table(table)
            self._changes.count += 1
            for key in rows:
                found.rows.pop(key, None)

    def close(self) -> None:
        """Release the contents; idempotent."""
        with self._lock:
            self._closed = True
            self._tables = {}

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the memory store is closed and its contents are gone; open it again")

    def _table(self, name: str) -> _Table:
        self._check_open()
        found = self._tables.get(name)
        if found is None:
            raise StoreUnusableError(f"table {name!r} does not exist in memory; call create_tables first")
        return found

    def _verify(self, tables: Sequence[Table]) -> None:
        for table in tables:
            found = self._table(table.name)
            found.check_families(table.families)
            if found.versions != table.versions:
                raise StoreUnusableError(
                    f"table {table.name!r} in memory has versions={found.versions}, expected "
                    f"versions={table.versions}; drop the table or use another store"
                )


class NamedStore(MemoryStore):
    """One handle on a named store; :meth:`NamedStores.open` creates it."""

    def __init__(self, cells: MemoryStore, name: str, stores: NamedStores) -> None:
        super().__init__()
        self._share(cells)
        self._name = name
        self._stores: NamedStores | None = stores

    @property
    def location(self) -> str:
        """The URL."""
        return f"memory://{self._name}"

    def close(self) -> None:
        """Close this handle; the contents disappear with the last one. Idempotent."""
        super().close()
        stores, self._stores = self._stores, None
        if stores is not None:
            stores.closed(self._name)


class NamedStores:
    """The memory stores that this process has open, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[MemoryStore, int]] = {}

    def open(self, name: str) -> NamedStore:
        """Return one more handle on the named store, creating the store for the first; the caller closes it."""
        with self._lock:
            cells, handles = self._open.get(name, (None, 0))
            if cells is None:
                cells = MemoryStore()
            self._open[name] = cells, handles + 1
        return NamedStore(cells, name, self)

    def closed(self, name: str) -> None:
        """Record that one handle was closed."""
        with self._lock:
            cells, handles = self._open.pop(name)
            if handles > 1:
                self._open[name] = cells, handles - 1
