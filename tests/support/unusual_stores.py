"""Correct stores that do what the contract leaves open in another way than those of hbasemk."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import Column, Limits, NewCell, Put
from hbasemk.store.memory import MemoryStore, real_clock
from hbasemk.store.memory_tables import MemoryTable


class SmallLimits(MemoryStore):
    """A store for small rows; no value has room for the longest keys besides it."""

    limits = Limits(2000, 512 * 1024, 512 * 1024)

    def __init__(self) -> None:
        super().__init__(transactions=True)


class ClockAhead(MemoryStore):
    """A store whose server's clock is five seconds ahead."""

    def __init__(self) -> None:
        super().__init__(lambda: real_clock() + 5000, transactions=True)


class StampsOneLater(MemoryStore):
    """A compare-and-set stamps only the checked column, one later than the compared cell; the others get the clock."""

    def __init__(self) -> None:
        super().__init__(transactions=True)

    def _compare_and_set(self, found: MemoryTable, column: Column, expected: bytes | None, put: Put) -> bool:
        newest = found.newest(Put(put.row, [NewCell(*column, b"")]))
        if newest and put.timestamp is None:
            cells = [
                NewCell(*cell[:3], newest + 1 if cell[:2] == column and cell[3] is None else cell[3])
                for cell in put.cells
            ]
            put = put._replace(cells=cells)
        return super()._compare_and_set(found, column, expected, put)


class OtherWords(MemoryStore):
    """A store whose errors use other words for a column family."""

    def __init__(self) -> None:
        super().__init__(transactions=True)

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        try:
            super().write(table, puts, durable=durable)
        except StoreUnusableError as error:
            raise StoreUnusableError(str(error).replace("column family", "group of columns")) from None
