"""Cells that a paused writer, or a gateway, wrote after another instance had swept their revision.

They never become visible, because the revision is aborted. So a collector may delete them at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import changes, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.batches import batched
from hbasemk.kernel.collection.run import ROWS, Run
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.store.abc import CellVersion, Delete, Get

KIND: Final = "cells of aborted revisions"


def collect(run: Run, rows: Sequence[JournalRow]) -> None:
    """Delete the cells of aborted trunk revisions that were swept in doubt."""
    for row in journal_rows(run.instance.store, [row.revision for row in rows]):
        if not row.aborted:
            continue
        try:
            touched = row.changes
        except FormatError:
            # The integrity check reports that its changes are unreadable.
            continue
        for part in batched(changes.deletes(touched, row.revision), ROWS):
            run.delete(KIND, schema.NODES, _existing(run, part, row.revision))


def _existing(run: Run, deletes: Sequence[Delete], revision: int) -> list[Delete]:
    gets = [
        Get(one.row, columns=[cell[:2] for cell in one.cells], since=revision, before=revision + 1) for one in deletes
    ]
    found = run.instance.store.read(schema.NODES, gets)
    return [Delete(row.key, [CellVersion(*cell[:3]) for cell in row.cells]) for row in found if row.cells]
