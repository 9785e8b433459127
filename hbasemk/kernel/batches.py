"""Batched store calls: reads of journal rows and nodes, writes and deletes of the cells of nodes.

No call carries more than ``Store.batch_rows`` rows. No call carries more than ``Store.batch_bytes`` bytes, unless a
single cell is larger. A larger row is written in several calls; readers see none of its cells before the commit is
decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnknownError
from hbasemk.format import changes, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.retry import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column, Delete, Get, NewCell, Put, Row, Scan, Store

T = TypeVar("T")

JOURNAL_BATCH: Final = 200
"""Journal rows contain the changes of a revision, so they are read in smaller batches than nodes."""
CELL_BYTES: Final = 32
"""The approximate size of a cell besides its qualifier and value: family, timestamp, lengths."""
WHOLE: Final[Sequence[Column]] = (
    schema.COMMITTED,
    schema.ABORT,
    schema.NONCE,
    schema.BASE,
    schema.MESSAGE,
    schema.SWEPT,
    schema.BRANCH,
    schema.BRANCH_VIEW,
    schema.BRANCH_HEAD,
    (schema.DATA, schema.CHANGES),
)
"""The columns of a journal row, except the further chunks of ``changes``."""


def by_size(items: Iterable[T], size_of: Callable[[T], int], rows: int, most: int) -> Iterator[list[T]]:
    """Group items in order, at most ``rows`` items and ``most`` bytes per group; a larger item forms its own group."""
    part: list[T] = []
    size = 0
    for one in items:
        more = size_of(one)
        if part and (len(part) >= rows or size + more > most):
            yield part
            part, size = [], 0
        part.append(one)
        size += more
    if part:
        yield part


def put_size(put: Put) -> int:
    """Return the approximate size of a put in a message, in bytes."""
    return len(put.row) + sum(len(cell[1]) + len(cell[2]) + CELL_BYTES for cell in put.cells)


def delete_size(delete: Delete) -> int:
    """Return the approximate size of a delete in a message, in bytes."""
    return len(delete.row) + sum(len(cell[1]) + CELL_BYTES for cell in delete.cells)


def _cell_size(cell: NewCell) -> int:
    return len(cell[1]) + len(cell[2]) + CELL_BYTES


def put_batches(puts: Iterable[Put], rows: int, most: int) -> Iterator[list[Put]]:
    """Group puts by call; divide a row that is too large for one call by its cells."""

    def divided() -> Iterator[Put]:
        for put in puts:
            if put_size(put) <= most:
                yield put
            else:
                for part in by_size(put.cells, _cell_size, len(put.cells), most - len(put.row)):
                    yield Put(put.row, part)

    return by_size(divided(), put_size, rows, most)


def delete_batches(deletes: Iterable[Delete], rows: int, most: int) -> Iterator[list[Delete]]:
    """Group deletes by call; divide a row that is too large for one call by its cells."""

    def divided() -> Iterator[Delete]:
        for delete in deletes:
            if delete_size(delete) <= most:
                yield delete
            else:
                for part in by_size(
                    delete.cells, lambda cell: len(cell[1]) + CELL_BYTES, len(delete.cells), most - len(delete.row)
                ):
                    yield Delete(delete.row, part)

    return by_size(divided(), delete_size, rows, most)


def read_rows(store: Store, runtime: Runtime, gets: Sequence[Get], table: str = schema.NODES) -> list[Row]:
    """Read rows, by default of nodes. One round trip, unless the rows are so large that the call times out.

    The size of rows is known only after reading them. So after a call that timed out, the next one reads half as many.
    """
    size = len(gets)
    rows: list[Row] = []

    def read() -> list[Row]:
        nonlocal size
        try:
            return store.read(table, gets[len(rows) : len(rows) + size])
        except (StoreNotAppliedError, StoreUnknownError) as error:
            size = _fewer(size, error)
            raise

    while len(rows) < len(gets):
        rows += again(runtime, read)
    return rows


def scan_rows(store: Store, runtime: Runtime, scan: Scan, table: str = schema.NODES) -> list[Row]:
    """Return the first rows of a forward scan, reading fewer rows per call after a timeout as :func:`read_rows` does."""
    size = scan.limit
    rows: list[Row] = []

    def read() -> tuple[list[Row], int]:
        nonlocal size
        limit = min(size, scan.limit - len(rows))
        start = rows[-1].key + b"\0" if rows else scan.start
        try:
            return store.scan(table, scan._replace(start=start, limit=limit)), limit
        except (StoreNotAppliedError, StoreUnknownError) as error:
            size = _fewer(size, error)
            raise

    while True:
        found, limit = again(runtime, read)
        rows += found
        if len(rows) >= scan.limit or len(found) < limit:
            return rows


def _fewer(size: int, error: StoreError) -> int:
    """Return how many rows to request next: half as many after a timeout, as many as before after other errors."""
    too_much = isinstance(error.__cause__, (TimeoutError, EOFError))
    return max(1, size // 2) if too_much else size


def journal_rows(
    store: Store, runtime: Runtime, revisions: Sequence[int], columns: Sequence[Column] | None = None
) -> Iterator[JournalRow]:
    """Yield the journal rows of some revisions, in the given order.

    One round trip for each 200 whole rows, or for each ``Store.batch_rows`` rows if ``columns`` names a few small
    columns. A whole row with large changes takes one further round trip for each 16 MiB.
    """
    size = JOURNAL_BATCH if columns is None else store.batch_rows
    for at in range(0, len(revisions), size):
        gets = [Get(schema.revision_key(revision), columns or WHOLE) for revision in revisions[at : at + size]]
        rows = again(runtime, lambda gets=gets: store.read(schema.JOURNAL, gets))  # type: ignore[misc]
        decoded = map(JournalRow, rows)
        yield from decoded if columns is not None else whole_rows(store, runtime, decoded)


def whole_rows(store: Store, runtime: Runtime, rows: Iterable[JournalRow]) -> Iterator[JournalRow]:
    """Add the further chunks of ``changes`` to rows that were read with the columns :data:`WHOLE`."""
    for row in rows:
        first = row.cells.get(schema.CHANGES)
        if first is None or len(first.value) < changes.FIRST_CHUNK:
            yield row
            continue
        key = schema.revision_key(row.revision)
        cells = list(row.cells.values())
        group = max(1, store.batch_bytes // changes.CHUNK)
        number, more = 1, True
        while more:
            columns = [(schema.DATA, changes.chunk_qualifier(one)) for one in range(number, number + group)]
            get = Get(key, columns)
            found = again(runtime, lambda get=get: store.read(schema.JOURNAL, [get]))[0].cells  # type: ignore[misc]
            cells += found
            number += group
            more = len(found) == group
        yield JournalRow(Row(key, cells))


def write_changes(store: Store, runtime: Runtime, revision: int, chunks: Sequence[NewCell]) -> None:
    """Add large changes to the journal row of a revision, before any of its cells is written.

    The first chunk is written last, in its own call: a row without it shows that no cell has been written.
    """
    row = schema.revision_key(revision)
    first, *further = chunks
    for part in put_batches([Put(row, further)] if further else [], store.batch_rows, store.batch_bytes):
        again(runtime, lambda part=part: store.write(schema.JOURNAL, part, durable=False))  # type: ignore[misc]
    again(runtime, lambda: store.write(schema.JOURNAL, [Put(row, [first])], durable=False))


def write_nodes(
    store: Store,
    runtime: Runtime,
    puts: Iterable[Put],
    in_doubt: Callable[[], None] | None = None,
    between: Callable[[], None] | None = None,
) -> None:
    """Write cells of nodes, in order and without forcing them to disk. ``in_doubt`` is called for each lost reply.

    ``between`` is called before each store call except the first, for example to renew a lease.
    """
    for number, part in enumerate(put_batches(puts, store.batch_rows, store.batch_bytes)):
        if number and between is not None:
            between()
        again(runtime, lambda part=part: store.write(schema.NODES, part, durable=False), in_doubt=in_doubt)  # type: ignore[misc]
