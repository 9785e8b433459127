"""The journal rows that the horizon has passed since the last run: what is left of branches and of aborted revisions."""

from __future__ import annotations

from itertools import count, islice
from typing import Final

from hbasemk.format import journal_row, schema
from hbasemk.kernel.collection import ended_branches, late_cells
from hbasemk.kernel.collection.progress import read_rows_progress
from hbasemk.kernel.collection.run import Run
from hbasemk.store.abc import NewCell, Put, Scan

BATCH: Final = 1000
_COLUMNS: Final = (schema.COMMITTED, schema.ABORT, schema.SWEPT, schema.BRANCH_CLAIM, schema.REBASE_OF)


def collect(run: Run, batches: int | None = None) -> bool:
    """Delete the rows of ended branches and late cells up to the horizon, and record how far this is done.

    ``batches``: read at most so many batches of rows. Returns whether nothing is left to do.
    """
    done = read_rows_progress(run.instance.store, schema.COLLECTED_ROWS)
    low = 0 if run.full else done
    for _ in islice(count(), batches):
        if low >= run.horizon:
            break
        scan = Scan(schema.revision_key(low + 1), schema.revision_key(run.horizon + 1), BATCH, columns=_COLUMNS)
        found = run.instance.store.scan(schema.JOURNAL, scan)
        rows = [row for row in journal_row.decode(found) if row.revision != schema.NOTICE]
        ended_branches.collect(run, [row for row in rows if row.is_branch])
        late_cells.collect(run, [row for row in rows if not row.is_branch and row.swept == schema.SWEPT_IN_DOUBT])
        low = int.from_bytes(found[-1].key[:8], "big") if len(found) == BATCH else run.horizon
        if run.writes and low > done:
            # Another collector may write a lower revision: then rows are looked at twice.
            done = low
            put = Put(schema.SETTINGS_ROW, [NewCell(*schema.COLLECTED_ROWS, low.to_bytes(8, "big"))])
            run.instance.store.write(schema.CLUSTER, [put], durable=False)
    return low >= run.horizon
