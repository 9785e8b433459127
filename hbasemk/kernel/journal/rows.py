"""Reads of whole journal rows, the write of large changes, and the row of a revision that never gets its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hbasemk.format import changes, schema, writer_log
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.revisions import is_branch
from hbasemk.kernel.batches import batched
from hbasemk.kernel.journal.fence import unrecorded
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Column, Get, NewCell, Put, Row

JOURNAL_BATCH: Final = 200
"""Journal rows contain the changes of a revision, so they are read in smaller batches than nodes."""
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
    schema.BRANCH_CLAIM,
    schema.REBASE_OF,
    (schema.DATA, schema.CHANGES),
)
"""The columns of a journal row, except the further chunks of ``changes``."""


def journal_rows(
    store: RetryingStore, revisions: Sequence[int], columns: Sequence[Column] | None = None
) -> Iterator[JournalRow]:
    """Yield the journal rows of some revisions, in the given order.

    One round trip for each 200 whole rows, or for each ``Store.batch_rows`` rows if ``columns`` names a few small
    columns. A whole row with large changes takes one further round trip for each 16 MiB.
    """
    if columns is None:
        yield from whole_rows(store, first_parts(store, revisions))
        return
    for part in batched(revisions, store.batch_rows):
        yield from map(JournalRow, store.read(schema.JOURNAL, [Get(schema.revision_key(one), columns) for one in part]))


def first_parts(
    store: RetryingStore, revisions: Sequence[int], columns: Sequence[Column] = WHOLE
) -> Iterator[JournalRow]:
    """Yield journal rows without the further chunks of large ``changes``. One round trip for each 200."""
    for part in batched(revisions, JOURNAL_BATCH):
        yield from map(JournalRow, store.read(schema.JOURNAL, [Get(schema.revision_key(one), columns) for one in part]))


def whole_rows(store: RetryingStore, rows: Iterable[JournalRow]) -> Iterator[JournalRow]:
    """Add the further chunks of ``changes`` to rows that were read with the first one.

    Raises RevisionCollectedError if a row is deleted meanwhile.
    """
    for row in rows:
        first = row.value((schema.DATA, schema.CHANGES))
        if first is None or len(first) < changes.FIRST_CHUNK:
            yield row
            continue
        cells = list(row.cells)
        group = max(1, store.batch_bytes // changes.CHUNK)
        number, more = 1, True
        while more:
            columns = [(schema.DATA, changes.chunk_qualifier(one)) for one in range(number, number + group)]
            # A row is deleted as a whole, and every row has this flag.
            (rest,) = store.read(schema.JOURNAL, [Get(row.key, [schema.COMMITTED, *columns])])
            if not rest.cells:
                raise unrecorded(store, row.revision)
            found = [cell for cell in rest.cells if (cell.family, cell.qualifier) != schema.COMMITTED]
            cells += found
            number += group
            more = len(found) == group
        yield JournalRow(Row(row.key, cells))


def create_aborted(store: RetryingStore, revision: int) -> bool:
    """Create the row of a revision as aborted; return False if one has come meanwhile. One round trip.

    For a trunk revision in a store that does not order all writes it is two: its cells may exist, and its row must list them
    before its writer's log does so no more.
    """
    cells = [NewCell(*schema.COMMITTED, schema.NO), NewCell(*schema.ABORT, schema.YES)]
    if not store.supports_transactions and not is_branch(revision):
        (log,) = store.read(schema.CLUSTER, [writer_log.get_changes(revision)])
        intent = writer_log.changes_of(log, revision)
        if intent is not None:
            cells.append(NewCell(schema.DATA, schema.CHANGES, intent))
    put = Put(schema.revision_key(revision), cells)
    return store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, put)


def write_changes(store: RetryingStore, revision: int, chunks: Sequence[NewCell]) -> None:
    """Add large changes to the journal row of a revision, before any of its cells is written.

    The first chunk is written last, in its own call: a row without it shows that no cell has been written.
    """
    row = schema.revision_key(revision)
    first, *further = chunks
    if further:
        store.write(schema.JOURNAL, [Put(row, further)], durable=False)
    store.write(schema.JOURNAL, [Put(row, [first])], durable=False)
