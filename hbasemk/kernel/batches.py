"""Groups of what fits one call of a store, by number and size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Final, TypeVar

from hbasemk.store.abc import CellVersion, Column, Delete, DeleteBelow, Get, Put
from hbasemk.store.alike import NewCellFields, size_of_new
from hbasemk.store.sizes import by_size

T = TypeVar("T")
D = TypeVar("D", Delete, DeleteBelow)

CELL_BYTES: Final = 32
"""The approximate size of a cell besides its qualifier and value: family, timestamp, lengths."""
FEW_KEYS: Final = 16
"""So many keys and qualifiers fit one call, however long they are."""

_row: Final[Callable[[Get], bytes]] = itemgetter(0)
_columns: Final[Callable[[Get], Sequence[Column] | None]] = itemgetter(1)
_qualifier: Final[Callable[[Column], bytes]] = itemgetter(1)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Group items in order, ``size`` items per group; the last group may be smaller."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def growing(items: Sequence[T], first: int, size: int) -> Iterator[Sequence[T]]:
    """Group items in order: ``first`` items, then twice as many each time, at most ``size``."""
    begin, count = 0, min(first, size)
    while begin < len(items):
        yield items[begin : begin + count]
        begin, count = begin + count, min(2 * count, size)


def put_size(put: Put) -> int:
    """Return the approximate size of a put in a message, in bytes."""
    return len(put.row) + CELL_BYTES * len(put.cells) + size_of_new(put.cells)


def delete_size(delete: Delete | DeleteBelow) -> int:
    """Return the approximate size of a delete in a message, in bytes."""
    return len(delete.row) + sum(map(_column_size, delete.cells))


def get_size(get: Get) -> int:
    """Return the approximate size of a get in a message, in bytes."""
    return len(get.row) + CELL_BYTES + sum(map(_column_size, get.columns or ()))


def fit(gets: Sequence[Get], most: int) -> bool:
    """Return whether gets fit one call of ``most`` bytes."""
    # Every read comes through here, and nearly all are short enough. So no step of the sum is Python code.
    columns = list(chain.from_iterable(filter(None, map(_columns, gets))))
    count = len(gets) + len(columns)
    if count <= FEW_KEYS:
        return True
    return sum(map(len, map(_row, gets))) + sum(map(len, map(_qualifier, columns))) + count * CELL_BYTES <= most


def fitting(gets: Sequence[Get], most: int) -> Sequence[Get]:
    """Return the first gets, as many as fit one call of ``most`` bytes; at least one."""
    return gets if len(gets) <= 1 or fit(gets, most) else next(by_size(gets, get_size, len(gets), most))


def parts_of(get: Get, most: int) -> Sequence[Get]:
    """Return a get, divided by its columns if it is too large for one call. The order of the parts is that of a row's cells."""
    if get.columns is None or fit((get,), most):
        return (get,)
    columns = sorted(set(get.columns))
    parts = by_size(columns, _column_size, len(columns), most - len(get.row) - CELL_BYTES)
    return [get._replace(columns=part) for part in parts]


def _column_size(column: Column | CellVersion) -> int:
    return len(column[1]) + CELL_BYTES


def _cell_size(cell: NewCellFields) -> int:
    return len(cell[1]) + len(cell[2]) + CELL_BYTES


def put_batches(puts: Iterable[Put], rows: int, most: int) -> Iterator[list[Put]]:
    """Group puts by call; divide a row that is too large for one call by its cells."""

    def sized() -> Iterator[tuple[Put, int]]:
        for put in puts:
            size = put_size(put)
            if size <= most:
                yield put, size
            else:
                for cells in by_size(put.cells, _cell_size, len(put.cells), most - len(put.row)):
                    part = put._replace(cells=cells)
                    yield part, put_size(part)

    return ([put for put, _ in part] for part in by_size(sized(), itemgetter(1), rows, most))


def delete_batches(deletes: Iterable[D], rows: int, most: int) -> Iterator[list[D]]:
    """Group deletes by call; divide a row that is too large for one call by its cells."""

    def divided() -> Iterator[D]:
        for delete in deletes:
            if delete_size(delete) <= most:
                yield delete
            else:
                for part in by_size(delete.cells, _column_size, len(delete.cells), most - len(delete.row)):
                    yield delete._replace(cells=part)

    return by_size(divided(), delete_size, rows, most)
