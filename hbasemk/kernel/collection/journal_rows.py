"""Journal rows of trunk that no reader needs any more, and the numbers of their writes.

Readable views contain everything up to the horizon. So no reader needs a row below it, and the collector needs it only until
its passes over the nodes have used it. The collector publishes the trim level before it deletes. An instance that has not read
all of the deleted rows learns this with its next poll, and begins again. See ``docs/protocol.md``, section 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.format import journal_row, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.trim_level import TrimLevel
from hbasemk.kernel.collection import late_cells
from hbasemk.kernel.collection.progress import read_progress
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.journal import fence
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Scan

KIND: Final = "journal rows"
BATCH: Final = 1000
_COLUMNS: Final = (schema.COMMITTED, schema.SWEPT)
_NOTICES: Final = (schema.NOTICE_FIRST, schema.revision_key(schema.NOTICE))


def collect(run: Run) -> None:
    """Delete the rows of trunk revisions below the horizon that all readers know, which the passes over nodes have used.

    A pending row there was created by a request that was repeated: the revision was decided long ago. So the collector deletes
    only the row, never cells of a revision that may have committed.
    """
    store = run.instance.store
    if not store.supports_transactions:
        return
    collected, forgotten = read_progress(store)[0]
    if not run.writes:
        # A run that writes has moved the passes first.
        collected, forgotten = run.horizon, max(forgotten, run.forgotten)
    limit = min(run.horizon - 1, collected, forgotten)
    if run.writes:
        found = fence.read_trim_level(store)
        level = TrimLevel(_writes_up_to(store, found.arrival, limit), max(limit, found.revision))
        if level != found and not fence.publish_trim_level(store, found, level):
            # Another collector has published another level, and deletes the rows.
            return
    scan = Scan(None, schema.revision_key(limit + 1), BATCH, columns=_COLUMNS)
    while True:
        rows = store.scan(schema.JOURNAL, scan)
        _delete(run, [row for row in journal_row.decode(rows) if not row.is_branch and row.key not in _NOTICES])
        if len(rows) < BATCH:
            break
        scan = scan._replace(start=rows[-1].key + b"\0")
    if run.writes:
        store.forget_arrivals(schema.JOURNAL, level.arrival)


def _delete(run: Run, rows: Sequence[JournalRow]) -> None:
    # What is written later is found by a run that looks at everything: the watermark hides the revision.
    late_cells.collect(run, [row for row in rows if row.swept == schema.SWEPT_IN_DOUBT])
    run.delete_rows(KIND, schema.JOURNAL, [row.key for row in rows])


def _writes_up_to(store: RetryingStore, after: int, limit: int) -> int:
    """Return the number of the last write before the first write of a revision of trunk above ``limit``."""
    size = BATCH
    while size:
        last, rows, complete = store.arrivals(schema.JOURNAL, after, size, _COLUMNS)
        if any(row.revision > limit and not row.is_branch for row in journal_row.decode(rows)):
            size //= 2
        elif complete:
            return last
        else:
            after = last
    return after
