"""What the steps of simulated processes touch in their store, as far as the order of two steps can make a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hbasemk.format.schema import TABLES
from hbasemk.store.abc import (
    LAST_ROW,
    Arrivals,
    CellVersion,
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
)
from hbasemk.store.alike import NewCellFields
from hbasemk.store.delegating import DelegatingStore

RowOf = tuple[str, bytes]
"""A table and a row key."""
Columns = frozenset[Column]

WHOLE: Final[Columns] = frozenset()
"""All columns of a row. No step touches no column."""
ARRIVALS: Final = b""
"""In place of a row key, which is never empty: the order of the writes to the table."""


class Range(NamedTuple):
    """Columns of the rows from ``start`` up to ``stop``, which is excluded; None: to the end of the table."""

    table: str
    start: bytes
    stop: bytes | None
    columns: Columns

    def holds(self, row: RowOf) -> bool:
        """Return whether a row is in the range."""
        table, key = row
        return table == self.table and key != ARRIVALS and self.start <= key and (self.stop is None or key < self.stop)


class Footprint:
    """What one step touches: columns that it reads, in rows and in ranges of rows, and columns that it may change.

    ``counts_changes``: it reads how many changes there were. ``is_unbounded``: it may touch everything.
    """

    __slots__ = ("changes", "counts_changes", "is_unbounded", "ranges", "reads")

    def __init__(self) -> None:
        self.reads: dict[RowOf, Columns] = {}
        self.ranges: list[Range] = []
        self.changes: dict[RowOf, Columns] = {}
        self.counts_changes = False
        self.is_unbounded = False

    def is_independent_of(self, other: Footprint) -> bool:
        """Return whether both steps get the same answers and leave the same store in either order."""
        if self.is_unbounded or other.is_unbounded:
            return False
        if not self.changes and not other.changes:
            return True
        return not (_meet(self.changes, other.changes) or self._is_changed_by(other) or other._is_changed_by(self))

    def _is_changed_by(self, other: Footprint) -> bool:
        """Return whether the other step may change what this one reads."""
        return (
            (self.counts_changes and bool(other.changes))
            or _meet(self.reads, other.changes)
            or any(
                one.holds(row) and _share(one.columns, columns)
                for one in self.ranges
                for row, columns in other.changes.items()
            )
        )


def _meet(some: dict[RowOf, Columns], others: dict[RowOf, Columns]) -> bool:
    return any(row in others and _share(columns, others[row]) for row, columns in some.items())


def _share(some: Columns, others: Columns) -> bool:
    return WHOLE in (some, others) or not some.isdisjoint(others)


def _add(rows: dict[RowOf, Columns], row: RowOf, columns: Columns) -> None:
    known = rows.get(row)
    rows[row] = columns if known is None else WHOLE if WHOLE in (known, columns) else known | columns


class FootprintStore(DelegatingStore):
    """A store that records what is touched through it in :attr:`footprint`, which a caller replaces before each step.

    A write counts as a change of its columns even if it is refused or changes nothing. The clock of the store must stand
    still. Its tables are ``tables``.
    """

    def __init__(self, inner: Store, tables: Iterable[Table] = TABLES) -> None:
        super().__init__(inner)
        self.footprint = Footprint()
        self._ordered = frozenset(table.name for table in tables if table.arrivals and inner.supports_transactions)

    def _gets(self, table: str, gets: Iterable[Get]) -> None:
        for get in gets:
            _add(self.footprint.reads, (table, get.row), _selected(get))

    def _changes(self, table: str, row: bytes, cells: Iterable[NewCellFields | CellVersion]) -> None:
        _add(self.footprint.changes, (table, row), frozenset(cell[:2] for cell in cells))

    def _puts(self, table: str, puts: Iterable[Put]) -> None:
        """Record puts. If the table keeps the order of its writes, each of them also gets the next arrival number."""
        for put in puts:
            # What the put has no timestamp for is at least as new as what it replaces: no other column plays a part.
            self._changes(table, put.row, put.cells)
            if table in self._ordered:
                self._order_changes(table)

    def _order_is_read(self, table: str) -> None:
        _add(self.footprint.reads, (table, ARRIVALS), WHOLE)

    def _order_changes(self, table: str) -> None:
        _add(self.footprint.changes, (table, ARRIVALS), WHOLE)

    # --- calls that have no limits ---------------------------------------------------------------------------

    def give_way(self, at_most: float) -> bool:
        """Recorded as touching everything."""
        self.footprint.is_unbounded = True
        return super().give_way(at_most)

    def give_back_space(self) -> bool:
        """Recorded as touching everything."""
        self.footprint.is_unbounded = True
        return super().give_back_space()

    def create_tables(self, tables: Sequence[Table]) -> None:
        """Recorded as touching everything."""
        self.footprint.is_unbounded = True
        self.inner.create_tables(tables)

    def verify(self, tables: Sequence[Table]) -> None:
        """Recorded as touching everything."""
        self.footprint.is_unbounded = True
        self.inner.verify(tables)

    def drop_tables(self, tables: Sequence[Table]) -> None:
        """Recorded as touching everything."""
        self.footprint.is_unbounded = True
        self.inner.drop_tables(tables)

    # --- reads ----------------------------------------------------------------------------------------------

    def change_counter(self) -> int | None:
        """Recorded: every change counts."""
        self.footprint.counts_changes = True
        return super().change_counter()

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        """Recorded."""
        self._gets(table, gets)
        return self.inner.read(table, gets)

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Recorded: the whole range; if a forward scan found as many rows as it wanted, only up to the last one."""
        rows = self.inner.scan(table, scan)
        low, high = (_after(scan.stop), _after(scan.start)) if scan.reverse else (scan.start, scan.stop)
        if rows and len(rows) >= scan.limit and not scan.reverse:
            high = _after(rows[-1].key)
        self.footprint.ranges.append(Range(table, low or b"", high, _selected(scan)))
        return rows

    def arrivals(self, table: str, after: int, limit: int, columns: Sequence[Column]) -> Arrivals:
        """Recorded: the order of writes, and the rows that were found."""
        found = self.inner.arrivals(table, after, limit, columns)
        self._order_is_read(table)
        for row in found.rows:
            _add(self.footprint.reads, (table, row.key), frozenset(columns))
        return found

    # --- writes ---------------------------------------------------------------------------------------------

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """Recorded."""
        self._puts(table, puts)
        self.inner.write(table, puts, durable=durable)

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """Recorded."""
        _add(self.footprint.reads, (table, put.row), frozenset((column,)))
        self._puts(table, (put,))
        return self.inner.check_and_write(table, column, expected, put, durable=durable)

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
        """Recorded: all that the transaction may read or write; of ``gets``, those that the store asks for."""
        for name, get in also:
            if get.row == LAST_ROW:
                self.footprint.ranges.append(Range(name, b"", None, WHOLE))
            else:
                self._gets(name, (get,))
        for since in (unchanged_since, decision.unchanged):
            if since is not None:
                self._order_is_read(since[0])
        _add(self.footprint.reads, (decision.table, decision.put.row), frozenset((decision.column,)))
        # The answer is the arrival number, if the table keeps the order: then the put changes the order, too.
        self._puts(decision.table, (decision.put, *decision.with_puts))
        self._puts(table, puts)

        def recorded() -> Iterator[Get]:
            for get in gets:
                self._gets(table, (get,))
                yield get

        return self.inner.write_if(
            table, puts, recorded(), judge, decision, also, unchanged_since=unchanged_since, durable=durable
        )

    def forget_arrivals(self, table: str, upto: int) -> None:
        """Recorded."""
        self._order_changes(table)
        self.inner.forget_arrivals(table, upto)

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Recorded."""
        for delete in deletes:
            self._changes(table, delete.row, delete.cells)
        self.inner.delete(table, deletes)

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Recorded."""
        for delete in deletes:
            if delete.families:
                _add(self.footprint.changes, (table, delete.row), WHOLE)
            else:
                self._changes(table, delete.row, delete.cells)
        self.inner.delete_below(table, deletes)

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Recorded."""
        for row in rows:
            _add(self.footprint.changes, (table, row), WHOLE)
        self.inner.delete_rows(table, rows)


def _selected(get: Get | Scan) -> Columns:
    """Return the columns that a read may select."""
    return WHOLE if get.columns is None else frozenset(get.columns)


def _after(key: bytes | None) -> bytes | None:
    """Return the least key after this one."""
    return None if key is None else key + b"\0"
