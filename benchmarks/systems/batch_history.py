"""A long history on hbasemk, written in batches instead of commit by commit.

Each batch follows the protocol (``docs/protocol.md``, section 2), but takes each step for all its revisions together. It creates
the journal rows as pending and announces them; then it writes the cells; then it commits all rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from hbasemk.format import changes, journal_row, paths, schema, values
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.periodic_work import ADVANCE_AFTER
from hbasemk.store.abc import NewCell, Put

BATCH: Final = 1000


def write_history(instance: Instance, path: str, name: str, commits: int, stop: Callable[[], bool]) -> int:
    """Set a node's property to 0, 1, 2 and so on, one revision each, and advance the watermark past them.

    Returns the number of revisions, which is smaller if ``stop`` returned True. No other process may change the property
    meanwhile.
    """
    base, number = instance.head().revision, 0
    while number < commits and not stop():
        numbers = range(number, min(commits, number + BATCH))
        revisions = _create(instance, base, [RowChange(path, CHANGED, [name])], len(numbers))
        _commit(instance, path, name, base, dict(zip(revisions, numbers, strict=True)))
        base, number = revisions[-1], number + len(revisions)
    if number < ADVANCE_AFTER:
        instance.poll()
    else:
        _advance_watermark(instance)
    return number


def _create(instance: Instance, base: int, touched: Sequence[RowChange], count: int) -> list[int]:
    """Create ``count`` pending revisions with the same base."""
    revisions: list[int] = []
    puts = []
    declared = changes.encode(touched)
    for _ in range(count):
        new = instance.announcements.next(max([base, instance.journal.highest_seen, *revisions[-1:]]))
        puts.append(Put(schema.revision_key(new), [*journal_row.begin(os.urandom(16), base, ""), *declared]))
        revisions.append(new)
    if not instance.store.supports_transactions:
        # One call announces all of them.
        instance.announcements.announce(revisions[-1])
    instance.store.write(schema.JOURNAL, puts)
    return revisions


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
    for new in values_of:
        instance.announcements.decided(new)


def _advance_watermark(instance: Instance) -> None:
    instance.poll()
    instance.announcements.renew(instance.journal.highest_seen)
    instance.recovery.advance()
