"""A store that is too simple to be wrong and too slow for use: one dict of cells, sorted and filtered at each read.

The memory store is compared with it, as all others are with the memory store.
"""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.store.abc import Cell, Column, Delete, DeleteBelow, Get, Page, Put, Row, Scan, Store, Table


class NaiveStore(Store):
    """Cells by (table, row, family, qualifier, timestamp); timestamps must be given."""

    location = "a dict"

    def __init__(self) -> None:
        self.cells: dict[tuple[str, bytes, bytes, bytes, int], bytes] = {}
        self.versions: dict[str, int] = {}

    def create_tables(self, tables: Sequence[Table]) -> None:
        self.versions |= {table.name: table.versions for table in tables}

    def verify(self, tables: Sequence[Table]) -> None:
        raise NotImplementedError

    def drop_tables(self, tables: Sequence[Table]) -> None:
        raise NotImplementedError

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        return [Row(get.row, self._row(table, get.row, get, get.page)) for get in gets]

    def scan(self, table: str, scan: Scan) -> list[Row]:
        keys = sorted({key[1] for key in self.cells if key[0] == table}, reverse=scan.reverse)
        rows = [Row(key, self._row(table, key, scan, None)) for key in keys if self._inside(key, scan)]
        return [row for row in rows if row.cells][: scan.limit]

    def _inside(self, key: bytes, scan: Scan) -> bool:
        low, high = (scan.stop, scan.start) if scan.reverse else (scan.start, scan.stop)
        if scan.reverse:
            return (low is None or key > low) and (high is None or key <= high)
        return (low is None or key >= low) and (high is None or key < high)

    def _row(self, table: str, row: bytes, get: Get | Scan, page: Page | None) -> list[Cell]:
        columns: dict[Column, list[Cell]] = {}
        for key, value in sorted(self.cells.items(), key=lambda item: (*item[0][:4], -item[0][4])):
            _, _, family, qualifier, timestamp = key
            if key[:2] != (table, row) or not get.since <= timestamp < get.before:
                continue
            if get.columns is not None and (family, qualifier) not in get.columns:
                continue
            if get.families is not None and family not in get.families:
                continue
            if page is not None and (family != page.family or (page.after is not None and qualifier <= page.after)):
                continue
            columns.setdefault((family, qualifier), []).append(Cell(family, qualifier, timestamp, value))
        found = [cell for cells in columns.values() for cell in cells[: get.versions]]
        return found if page is None else found[: page.limit]

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        for put in puts:
            for family, qualifier, value, own in put.cells:
                timestamp = put.timestamp if own is None else own
                assert timestamp is not None
                self.cells[table, put.row, family, qualifier, timestamp] = value
                stamps = sorted(key[4] for key in self.cells if key[:4] == (table, put.row, family, qualifier))
                for old in stamps[: -self.versions[table]]:
                    del self.cells[table, put.row, family, qualifier, old]

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        newest = self.read(table, [Get(put.row, columns=[column])])[0].cells
        if (newest[0].value if newest else None) != expected:
            return False
        self.write(table, [put])
        return True

    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        for row, cells in deletes:
            for family, qualifier, timestamp in cells:
                self.cells.pop((table, row, family, qualifier, timestamp), None)

    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        for row, columns, families in deletes:
            for key in list(self.cells):
                below = [before for *column, before in columns if column == list(key[2:4])]
                below += [before for family, before in families if family == key[2]]
                if key[:2] == (table, row) and key[4] < max(below, default=0):
                    del self.cells[key]

    def delete_rows(self, table: str, rows: Sequence[bytes]) -> None:
        self.cells = {key: value for key, value in self.cells.items() if key[0] != table or key[1] not in rows}

    def close(self) -> None:
        pass
