"""Journal rows of trunk that no reader needs any more, and the numbers of their writes.

Readable views contain everything up to the horizon. So no reader needs a row below it, and the collector needs it only until
its passes over the nodes have used it. The collector publishes the trim level before it deletes. An instance that has not read
all of the deleted rows learns this with its next poll, and begins again. See ``docs/protocol.md``, section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, islice
from typing import Final

from hbasemk.format import journal_row, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.trim_level import TrimLevel
from hbasemk.kernel import settings
from hbasemk.kernel.collection import late_cells
from hbasemk.kernel.collection.progress import read_progress, read_rows_progress
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import NewCell, Put, Scan

KIND: Final = "journal rows"
BATCH: Final = 1000
_COLUMNS: Final = (schema.COMMITTED, schema.SWEPT)
_NOTICES: Final = (schema.NOTICE_FIRST, schema.revision_key(schema.NOTICE))


def collect(run: Run, batches: int | None = None) -> bool:
    """Delete the rows of trunk revisions below the horizon that all readers know, which the passes over nodes have used.

    ``batches``: read at most so many batches of rows. Returns whether nothing is left to do.

    A pending row there was created by a request that was repeated: the revision was decided long ago. So the collector deletes
    only the row, never cells of a revision that may have committed.
    """
    if run.instance.store.supports_transactions:
        return _collect_by_arrival(run, batches)
    return _collect_published(run, batches)


def _delete(run: Run, rows: Sequence[JournalRow]) -> None:
    # What is written later is found by a run that looks at everything: the watermark hides the revision.
    late_cells.collect(run, [row for row in rows if row.swept == schema.SWEPT_IN_DOUBT])
    run.delete_rows(KIND, schema.JOURNAL, [row.key for row in rows])


# --- a store that orders all writes --------------------------------------------------------------------------


def _collect_by_arrival(run: Run, batches: int | None) -> bool:
    """Publish the trim level, and delete the rows up to it: a poll that misses one learns the level in the same transaction."""
    store = run.instance.store
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
            return True
    # Rows that are deleted cost nothing in the next step.
    if not _delete_between(run, 0, limit, batches):
        return False
    if run.writes:
        store.forget_arrivals(schema.JOURNAL, level.arrival)
    return True


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


def _delete_between(
    run: Run, low: int, high: int, batches: int | None, record: Callable[[int], None] = lambda _: None
) -> bool:
    """Delete the rows above one id, up to another; call ``record`` after each batch with the id up to which this is done.

    Reads at most so many ``batches`` (None: no limit); returns whether nothing is left to do.
    """
    for _ in islice(count(), batches):
        if low >= high:
            break
        scan = Scan(schema.revision_key(low + 1), schema.revision_key(high + 1), BATCH, columns=_COLUMNS)
        rows = run.instance.store.scan(schema.JOURNAL, scan)
        _delete(run, [row for row in journal_row.decode(rows) if not row.is_branch and row.key not in _NOTICES])
        low = high if len(rows) < BATCH else int.from_bytes(rows[-1].key[:8], "big")
        record(low)
    return low >= high


# --- other stores --------------------------------------------------------------------------------------------


def publish(instance: Instance) -> None:
    """Raise the trim level, in a store that does not order all writes, before the run waits until all readers know it.

    It is at most the watermark, as the settings row shows it now: an instance that begins again begins there.
    """
    store = instance.store
    if store.supports_transactions:
        return
    found = fence.read_trim_level(store)
    limit = min(_unneeded(store, instance.journal.fence.horizon), settings.read_watermark(store).revision)
    if limit > found.revision:
        fence.publish_trim_level(store, found, found._replace(revision=limit))
        # Only what the store shows counts: if its clock went back, an earlier cell hides the new one.
        instance.journal.fence.learn_trim_level(fence.read_trim_level(store).revision)


def _unneeded(store: RetryingStore, horizon: int) -> int:
    """Return the id up to which the passes over nodes have used the rows, below a published horizon."""
    return min(horizon - 1, *read_progress(store)[0])


def _collect_published(run: Run, batches: int | None) -> bool:
    """Delete the rows up to the trim level that all readers know, and record how far this is done.

    Only a full run reads what lies below: HBase steps over the markers of deleted rows until a major compaction.
    """
    store = run.instance.store
    done = read_rows_progress(store, schema.DELETED_ROWS)
    level = run.instance.journal.fence.known_trim_level
    if not run.writes:
        # A run that writes has published the level first.
        level = max(fence.read_trim_level(store).revision, _unneeded(store, run.horizon))

    def record(reached: int) -> None:
        if run.writes and reached > done:
            # Another collector may write a lower id: then a later run reads deleted rows once more.
            put = Put(schema.SETTINGS_ROW, [NewCell(*schema.DELETED_ROWS, reached.to_bytes(8, "big"))])
            store.write(schema.CLUSTER, [put], durable=False)

    return _delete_between(run, 0 if run.full else done, level, batches, record)
