"""A store in this process's memory: the reference implementation, and the model that tests compare other stores with.

One lock makes every call atomic as a whole, which is more than the contract requires. An interrupt leaves no part of a
call. A row disappears with its last cell. Processes share nothing: a forked child works on its own copy, as it is between
two calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from hbasemk.errors import ClosedError, StoreUnusableError
from hbasemk.interrupts import Deferred
from hbasemk.store.abc import (
    LAST_ROW,
    Arrivals,
    Column,
    Decision,
    Delete,
    DeleteBelow,
    Get,
    Put,
    Row,
    Scan,
    Store,
    Table,
    in_order_of_last,
)
from hbasemk.store.atfork import ForkSafeLock
from hbasemk.store.memory_tables import MemoryTable
from hbasemk.store.sizes import size_of


def real_clock() -> int:
    """Return the wall clock in ms since 1970."""
    return time.time_ns() // 1_000_000


class _Changes:
    """Counts the changes of one set of tables, for all handles on it; before each change, so that an interrupt hides none."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class MemoryStore(Store):
    """A store in memory; its contents disappear with the object.

    ``clock`` returns the server's time in ms since 1970. ``clocks`` overrides it for the tables that it names.
    ``transactions`` enables :meth:`write_if`. ``parallel`` sets :attr:`supports_parallel_calls`, and ``batch_rows`` the
    property of that name, for tests.

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
        batch_rows: int = 1000,
        clocks: Mapping[str, Callable[[], int]] | None = None,
    ) -> None:
        self._clock = clock
        self._clocks = clocks or {}
        self._transactions = transactions
        self._parallel = parallel
        self._batch_rows = batch_rows
        self._fork_safe = ForkSafeLock()
        self._lock = self._fork_safe.lock
        self._tables: dict[str, MemoryTable] = {}
        self._changes = _Changes()
        self._closed = False

    @property
    def location(self) -> str:
        """The place where the cells are stored, for messages."""
        return "memory"

    @property
    def batch_rows(self) -> int:
        """The largest number of rows that the kernel should put into one batch."""
        return self._batch_rows

    def clock_ms(self) -> int | None:
        """Return the clock if the store has transactions, as SQLite does; else None, as a remote store does."""
        return self._clock() if self._transactions else None

    def change_counter(self) -> int | None:
        """Return the number of changes so far."""
        with self._lock:
            self._check_open()
            return self._changes.count

    def _now(self, table: MemoryTable) -> int:
        return self._clocks.get(table.name, self._clock)()

    def clone(self, clock: Callable[[], int] | None = None) -> MemoryStore:
        """Return an independent copy of the store; ``clock=None`` keeps the clock."""
        clock = self._clock if clock is None else clock
        other = MemoryStore(
            clock, transactions=self._transactions, parallel=self._parallel, batch_rows=self._batch_rows
        )
        with self._lock:
            self._check_open()
            other._tables = {name: table.clone() for name, table in self._tables.items()}
        return other

    def _share(self, other: MemoryStore) -> None:
        """Share the cells of another store from now on; each store is closed separately."""
        self._clock, self._transactions, self._parallel = other._clock, other._transactions, other._parallel
        self._batch_rows = other._batch_rows
        self._fork_safe, self._lock = other._fork_safe, other._lock
        self._tables, self._changes = other._tables, other._changes

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Create missing tables, then verify them."""
        with self._lock, Deferred():
            self._check_open()
            for table in tables:
                if table.name not in self._tables:
                    made = self._tables[table.name] = MemoryTable(table)
                    if table.arrivals and self._transactions:
                        made.written = []
            self._verify(tables)

    def verify(self, tables: Sequence[Table]) -> None:
        """Raise StoreUnusableError if a table is missing or has other settings."""
        with self._lock:
            self._check_open()
            self._verify(tables)

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Remove tables and their contents."""
        with self._lock, Deferred():
            self._check_open()
            self._changes.count += 1
            for table in tables:
                self._tables.pop(table.name, None)

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Return one row per get, all from one state of the table."""
        with self._lock:
            return self._read(self._table(table), gets)

    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        """Return the rows of the first gets, all from one state of the table."""
        rows: list[Row] = []
        with self._lock:
            found = self._table(table)
            for get in gets:
                if rows and most_bytes <= 0:
                    break
                rows += self._read(found, (get,))
                most_bytes -= size_of(rows[-1].cells)
        return rows

    def _read(self, found: MemoryTable, gets: Sequence[Get]) -> list[Row]:
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
            left = None if scan.reverse else scan.most_bytes
            for key in keys:
                if len(rows) >= scan.limit or (left is not None and left <= 0):
                    break
                cells = found.rows[key].select(scan)
                if cells:
                    rows.append(Row(key, cells))
                    left = None if left is None else left - size_of(cells)
            return rows

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:  # noqa: ARG002 - never durable
        """Write all cells atomically."""
        self.check_puts(puts)
        with self._lock, Deferred():
            found = self._table(table)
            for put in puts:
                found.check_families([cell[0] for cell in put.cells])
            now = self._now(found)
            self._changes.count += 1
            for put in puts:
                found.put(put, self._not_older(found, put, now))

    def _not_older(self, found: MemoryTable, put: Put, now: int) -> int:
        """Return the timestamp for cells without one: in a store with transactions, they replace those of their columns."""
        return max(now, found.newest(put)) if self._transactions else now

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
        with self._lock, Deferred():
            return self._compare_and_set(self._table(table), column, expected, put)

    def _compare_and_set(self, found: MemoryTable, column: Column, expected: bytes | None, put: Put) -> bool:
        found.check_families([column[0], *(cell[0] for cell in put.cells)])
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
        found.put(put, self._not_older(found, put, now))
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
        gets: Iterable[Get],
        judge: Callable[[list[Row]], bool],
        decision: Decision,
        also: Sequence[tuple[str, Get]] = (),
        *,
        unchanged_since: tuple[str, int] | None = None,
        durable: bool = True,
    ) -> int | None:
        """Read, decide and write under one lock."""
        if not self._transactions:
            return super().write_if(
                table, puts, gets, judge, decision, also, unchanged_since=unchanged_since, durable=durable
            )
        self.check_puts((*puts, decision.put, *decision.with_puts))
        with self._lock:
            found = self._table(table)
            for put in puts:
                found.check_families([cell[0] for cell in put.cells])
            if unchanged_since is None or self._has_changed(*unchanged_since):
                others = [row for name, get in also for row in self._read_also(self._table(name), get)]
                if not judge([*self._read(found, list(gets)), *others]):
                    return None
            deciding = self._table(decision.table)
            for put in decision.with_puts:
                deciding.check_families([cell[0] for cell in put.cells])
            if decision.unchanged is not None and self._has_changed(*decision.unchanged):
                return 0
            # An interrupt must not leave a part of it.
            with Deferred():
                if not self._compare_and_set(deciding, decision.column, decision.expected, decision.put):
                    return 0
                number = deciding.last_number or 1
                for written, some in ((deciding, decision.with_puts), (found, puts)):
                    now = self._now(written)
                    for put in some:
                        written.put(put, self._not_older(written, put, now))
            return number

    def _has_changed(self, table: str, number: int) -> bool:
        """Return whether a table was written to after an arrival number."""
        return self._table(table).last_number > number

    def _read_also(self, found: MemoryTable, get: Get) -> list[Row]:
        if get.row == LAST_ROW and found.rows:
            get = get._replace(row=found.rows.peekitem(-1)[0])
        return self._read(found, (get,))

    def arrivals(self, table: str, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
        """Return the rows written after an arrival number, all from one state."""
        with self._lock:
            found = self._table(table)
            if found.written is None:
                return super().arrivals(table, after, limit, columns)
            last, keys = found.written_after(after, limit)
            rows = self._read(found, [Get(key, columns=columns) for key in in_order_of_last(keys)])
            return Arrivals(last, rows, last >= found.last_number)

    def forget_arrivals(self, table: str, upto: int) -> None:
        """Forget the first writes, but never the last one."""
        with self._lock, Deferred():
            found = self._table(table)
            if found.written is None:
                super().forget_arrivals(table, upto)
            self._changes.count += 1
            found.forget(upto)

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete exactly the given cell versions."""
        with self._lock, Deferred():
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

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Delete ranges of versions."""
        with self._lock, Deferred():
            found = self._table(table)
            for delete in deletes:
                found.check_families([*(cell.family for cell in delete.cells), *(name for name, _ in delete.families)])
            self._changes.count += 1
            for delete in deletes:
                row = found.rows.get(delete.row)
                if row is not None:
                    row.delete_below(delete)
                    if not row.order:
                        del found.rows[delete.row]

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete whole rows."""
        with self._lock, Deferred():
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

    def _table(self, name: str) -> MemoryTable:
        self._check_open()
        found = self._tables.get(name)
        if found is None:
            raise StoreUnusableError(
                f"table {name!r} does not exist at {self.location}; check the name, or let connect() create the repository: "
                "leave out create=False"
            )
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
