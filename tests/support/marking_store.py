"""A store in memory that hides and shows again what HBase does: later writes behind delete markers, and earlier versions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hbasemk.format import revisions, schema
from hbasemk.store.abc import Cell, CellVersion, Column, Delete, DeleteBelow, Get, NewCell, Put, Row, Scan, Table
from hbasemk.store.memory import MemoryStore, real_clock
from hbasemk.store.memory_tables import MemoryRow, MemoryTable

EARLIER: Final = 2
"""The number of versions above the limit of a family that stay in the files until a compaction."""
REMEMBERED: Final = 50


@dataclass
class _Marks:
    """The delete markers of one row: of exact versions, of columns and families below a timestamp, and of the whole row."""

    exact: set[CellVersion] = field(default_factory=set)
    columns: dict[Column, int] = field(default_factory=dict)
    families: dict[bytes, int] = field(default_factory=dict)
    whole: bool = False

    def add(self, new: _Marks) -> None:
        self.exact |= new.exact
        self.whole = self.whole or new.whole
        for column, before in new.columns.items():
            self.columns[column] = max(before, self.columns.get(column, 0))
        for family, before in new.families.items():
            self.families[family] = max(before, self.families.get(family, 0))

    def hide(self, cell: Cell) -> bool:
        family, qualifier, timestamp, _ = cell
        return (
            self.whole
            or timestamp < self.columns.get((family, qualifier), 0)
            or timestamp < self.families.get(family, 0)
            or CellVersion(family, qualifier, timestamp) in self.exact
        )


class MarkedTable(MemoryTable):
    """A table with delete markers."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.marks: dict[bytes, _Marks] = {}
        self.hidden: list[tuple[bytes, Cell]] = []

    def put(self, put: Put, now: int) -> None:
        """Write into one row, except what a marker hides."""
        marks = self.marks.get(put.row)
        stamp = now if put.timestamp is None else put.timestamp
        cells = [
            Cell(family, qualifier, stamp if own is None else own, value) for family, qualifier, value, own in put.cells
        ]
        hidden = [cell for cell in cells if marks is not None and marks.hide(cell)]
        self.hidden += [(put.row, cell) for cell in hidden]
        shown = [NewCell(*cell[:2], cell.value, cell.timestamp) for cell in cells if cell not in hidden]
        if shown:
            self.rows.setdefault(put.row, MemoryRow()).put(shown, now, self.versions + EARLIER)

    def mark(self, row: bytes, new: _Marks) -> None:
        """Add markers. They also delete what earlier ones hide, so that it does not appear without those."""
        self.hidden = [(key, cell) for key, cell in self.hidden if key != row or not new.hide(cell)]
        self.marks.setdefault(row, _Marks()).add(new)

    def compact(self, *, reveal: bool) -> None:
        """Drop the markers and what they hide; ``reveal``: what was not in a file yet appears instead."""
        self.marks.clear()
        hidden, self.hidden = self.hidden, []
        for row in self.rows.values():
            for kept in row.versions.values():
                del kept[: -self.versions]
        for key, cell in hidden if reveal else ():
            self.put(Put(key, [NewCell(*cell[:2], cell.value, cell.timestamp)]), 0)


def store_in_memory(clock: Callable[[], int], *, ordered: bool) -> MemoryStore:
    """Return an empty store; without an order of writes, deletes leave markers, as in HBase."""
    return MemoryStore(clock, transactions=True) if ordered else MarkingStore(clock, parallel=True)


class MarkingStore(MemoryStore):
    """A store that does not order all writes, with markers. ``compact`` is a major compaction.

    With ``seed`` compactions come at random, and creations of branch rows, writes of blobs, and all deletes sometimes arrive
    once more, much later, as from a gateway that held a request.
    """

    def __init__(self, clock: Callable[[], int] = real_clock, *, seed: int | None = None, **options: Any) -> None:
        super().__init__(clock, **options)
        self._chance = None if seed is None else random.Random(seed)
        self._remembered: list[Callable[[], object]] = []
        self._repeating = False
        self.repeated = 0
        """The number of requests that arrived once more."""

    def create_tables(self, tables: Sequence[Table]) -> None:
        """As the base class, with markers."""
        for table in tables:
            self._tables.setdefault(table.name, MarkedTable(table))
        super().create_tables(tables)

    def compact(self, *, reveal: bool = False) -> None:
        """Compact all tables."""
        for table in self._tables.values():
            assert isinstance(table, MarkedTable)
            table.compact(reveal=reveal)

    def clone(self, clock: Callable[[], int] | None = None) -> MemoryStore:
        """Return a copy with the markers."""
        other = MarkingStore(clock or self._clock, parallel=self._parallel, batch_rows=self._batch_rows)
        for name, table in self._tables.items():
            assert isinstance(table, MarkedTable)
            copy = other._tables[name] = MarkedTable(Table(name, tuple(table.families), table.versions))
            copy.rows.update((key, row.clone()) for key, row in table.rows.items())
            for key, marks in table.marks.items():
                copy.mark(key, marks)
            copy.hidden = list(table.hidden)
        return other

    def _marked(self, table: str) -> MarkedTable:
        found = self._tables[table]
        assert isinstance(found, MarkedTable)
        return found

    # --- reads: versions above the limit of a family are not shown --------------------------------------------

    def _read(self, found: MemoryTable, gets: Sequence[Get]) -> list[Row]:
        return super()._read(found, [get._replace(versions=min(get.versions, found.versions)) for get in gets])

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """As the base class."""
        limit = self._table(table).versions
        return super().scan(table, scan._replace(versions=min(scan.versions, limit)))

    # --- writes ---------------------------------------------------------------------------------------------

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        """As the base class."""
        super().write(table, puts, durable=durable)
        self._again(table == schema.BLOBS, lambda: self.write(table, puts))

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        """As the base class."""
        answer = super().check_and_write(table, column, expected, put, durable=durable)
        creates = table == schema.JOURNAL and expected is None and column == schema.COMMITTED
        branch = creates and revisions.is_branch(int.from_bytes(put.row[:8], "big"))
        self._again(table == schema.BLOBS or branch, lambda: self.check_and_write(table, column, expected, put))
        return answer

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        """Delete, and hide later writes of these versions."""
        super().delete(table, deletes)
        for one in deletes:
            self._marked(table).mark(one.row, _Marks(exact=set(one.cells)))
        self._again(True, lambda: self.delete(table, deletes))

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        """Delete, and hide later writes into these ranges."""
        super().delete_below(table, deletes)
        for one in deletes:
            columns = {(family, qualifier): before for family, qualifier, before in one.cells}
            self._marked(table).mark(one.row, _Marks(columns=columns, families=dict(one.families)))
        self._again(True, lambda: self.delete_below(table, deletes))

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        """Delete, and hide all later writes to these rows."""
        super().delete_rows(table, rows)
        for key in rows:
            self._marked(table).mark(key, _Marks(whole=True))
        self._again(True, lambda: self.delete_rows(table, rows))

    def _again(self, remember: bool, request: Callable[[], object]) -> None:
        """Remember a request; sometimes compact, and sometimes repeat an earlier request."""
        chance = self._chance
        if chance is None or self._repeating:
            return
        if remember:
            self._remembered.append(request)
            del self._remembered[:-REMEMBERED]
        if chance.random() < 0.02:
            self.compact(reveal=chance.random() < 0.5)
        if self._remembered and chance.random() < 0.05:
            self._repeating = True
            try:
                chance.choice(self._remembered)()
                self.repeated += 1
            finally:
                self._repeating = False
