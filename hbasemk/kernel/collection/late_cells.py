"""Cells that a paused writer, or a gateway, wrote after another instance had swept their revision.

They never become visible, because the revision is aborted. So a collector may delete them at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from hbasemk.errors import FormatError, RevisionCollectedError
from hbasemk.format import changes, schema
from hbasemk.format.journal_row import JournalRow, Outcome
from hbasemk.kernel.batches import batched
from hbasemk.kernel.collection.run import ROWS, Run
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.store.abc import CellVersion, Delete, Get, Row

KIND: Final = "cells of aborted revisions"


def collect(run: Run, rows: Sequence[JournalRow]) -> None:
    """Delete the cells of aborted revisions that were swept in doubt."""
    # It raises if another collector deletes a row at this moment, after the late cells.
    with suppress(RevisionCollectedError):
        for row in journal_rows(run.instance.store, [row.revision for row in rows]):
            if row.aborted:
                _delete(run, row)


def of_hidden(run: Run, rows: Sequence[Row], hidden: Collection[int]) -> list[Delete]:
    """Return the cells of revisions that the watermark hides, in rows of nodes. Their journal rows may be deleted."""
    found = [(row.key, cell) for row in rows for cell in row.cells if cell.timestamp in hidden]
    ids = sorted({cell.timestamp for _, cell in found})
    outcomes = run.instance.outcomes.of_many(ids)
    # A committed revision is hidden only by damage, which the integrity check repairs.
    aborted = {one for one in ids if outcomes[one] in (Outcome.ABORTED, Outcome.ABSENT)}
    return [Delete(key, [CellVersion(*cell[:3])]) for key, cell in found if cell.timestamp in aborted]


def _delete(run: Run, row: JournalRow) -> None:
    try:
        touched = row.changes
    except FormatError:
        # The integrity check reports that its changes are unreadable.
        return
    for part in batched(changes.deletes(touched, row.revision), ROWS):
        run.delete(KIND, schema.NODES, _existing(run, part, row.revision))


def _existing(run: Run, deletes: Sequence[Delete], revision: int) -> list[Delete]:
    gets = [
        Get(one.row, columns=[cell[:2] for cell in one.cells], since=revision, before=revision + 1) for one in deletes
    ]
    found = run.instance.store.read(schema.NODES, gets)
    return [Delete(row.key, [CellVersion(*cell[:3]) for cell in row.cells]) for row in found if row.cells]
