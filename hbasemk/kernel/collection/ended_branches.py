"""The journal rows of ended branches.

A sweep deletes the cells of an ended branch, newest revision first, and marks each row. While a branch is not swept, the
horizon stays below its first revision. So a row up to the horizon belongs to a branch that is swept, or it was written by a
process that slept, or by a request that arrived late. Nothing reads it either way: no view is below the horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.collection import late_cells
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.journal.rows import journal_rows

KIND: Final = "rows of ended branches"


def collect(run: Run, rows: Sequence[JournalRow]) -> None:
    """Delete those of some rows of branch revisions up to the horizon whose branch is swept."""
    store = run.instance.store
    found = list(journal_rows(store, [row.revision for row in rows], (schema.BRANCH, schema.COMMITTED, schema.SWEPT)))
    roots = {row.branch_root for row in found if row.branch_root is not None}
    columns = (schema.NONCE, schema.SWEPT, *([schema.BRANCH_VIEW] if run.full else []))
    first = {row.revision: row for row in journal_rows(store, sorted(roots), columns)}
    gone: list[JournalRow] = []
    for row in found:
        root = None if row.branch_root is None else first[row.branch_root]
        if root is not None and root.cells and root.swept is None and root.value(schema.BRANCH_VIEW) is None:
            # A full run deletes it: the view would hold the horizon back, so a request that arrived late has written the row.
            continue
        if row.swept is not None or row.value(schema.COMMITTED) is None or _is_rolled_back(run, row.revision):
            gone.append(row)
    late_cells.collect(run, [row for row in gone if row.swept == schema.SWEPT_IN_DOUBT])
    # The highest first, so that the first row of a branch is deleted last.
    run.delete_rows(KIND, schema.JOURNAL, [row.key for row in reversed(gone)])


def _is_rolled_back(run: Run, revision: int) -> bool:
    """Roll back a revision that was written after its branch was deleted, if its writer's lease is over."""
    if not run.writes:
        return False
    try:
        return run.instance.outcomes.recover_if_over(revision)
    except FormatError:
        # The integrity check reports that its changes are unreadable.
        return False
