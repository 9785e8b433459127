"""A long history on hbasemk, written in batches instead of commit by commit.

Each batch follows the protocol (``docs/protocol.md``, section 2), but takes each step for all its revisions together. It creates
the journal rows as pending; if they were created in time, it writes the cells; then it commits all rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from hbasemk.format import changes, journal_row, paths, schema, values
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.kernel.instance import ADVANCE_AFTER, Instance
from hbasemk.store.abc import NewCell, Put

BATCH: Final = 1000
WATERMARK_WITHIN: Final = 120.0
"""Seconds for the watermark to pass the history: the allowed clock skew, and a poll of the whole history."""


def write_history(instance: Instance, path: str, name: str, commits: int, stop: Callable[[], bool]) -> int:
    """Set a node's property to 0, 1, 2 and so on, one revision each, and advance the watermark past them.

    Returns the number of revisions, which is smaller if ``stop`` returned True. No other process may change the property
    meanwhile. Raises TimeoutError if the watermark does not advance within :data:`WATERMARK_WITHIN` seconds.
    """
    base, number, size = instance.head().revision, 0, BATCH
    while number < commits and not stop():
        numbers = range(number, min(commits, number + size))
        revisions = _create(instance, base, [RowChange(path, CHANGED, [name])], len(numbers))
        if revisions:
            _commit(instance, path, name, base, dict(zip(revisions, numbers, strict=True)))
            base, number = revisions[-1], number + len(revisions)
        else:
            size = max(1, size // 2)
    if number < ADVANCE_AFTER:
        instance.poll()
    else:
        _advance_watermark(instance, base)
    return number


def _create(instance: Instance, base: int, touched: Sequence[RowChange], count: int) -> list[int]:
    """Create ``count`` pending revisions with the same base. If that took too long for a commit, abort them and return none."""
    revisions: list[int] = []
    puts = []
    declared = changes.encode(touched)
    for _ in range(count):
        new = instance.clock.next(max([base, instance.journal.highest_seen, *revisions[-1:]]))
        puts.append(Put(schema.revision_key(new), [*journal_row.begin(os.urandom(16), base, ""), *declared]))
        revisions.append(new)
    instance.store.write(schema.JOURNAL, puts)
    # The first revision is the oldest.
    created_ms = instance.outcomes.created_ms(revisions[0])
    if created_ms is not None and not instance.clock.is_late(revisions[0], created_ms):
        return revisions
    for late in revisions:
        instance.outcomes.abort_own(late, ())
    return []


def _commit(instance: Instance, path: str, name: str, base: int, values_of: dict[int, int]) -> None:
    """Write the cells and commit the revisions, each based on the previous one."""
    cells, journal = [], []
    for new, value in values_of.items():
        cells.append(NewCell(*schema.property_column(name), values.encode(value), new))
        cells.append(NewCell(*schema.LAST_REVISION, schema.TOUCHED, new))
        committed = [NewCell(*schema.COMMITTED, schema.YES), NewCell(*schema.BASE, schema.revision_key(base))]
        journal.append(Put(schema.revision_key(new), committed))
        base = new
    instance.store.write(schema.NODES, [Put(paths.key(path), cells)])
    instance.store.write(schema.JOURNAL, journal)


def _advance_watermark(instance: Instance, newest: int) -> None:
    """Advance the watermark. Without an order of arrival, first wait until no revision below the newest can appear."""
    deadline = time.monotonic() + WATERMARK_WITHIN
    while instance.journal.arrived is None and instance.journal.low_bound <= newest:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the watermark did not pass the history within {WATERMARK_WITHIN:g} s")
        time.sleep(0.2)
        instance.poll()
    instance.poll()
    instance.recovery.advance()
