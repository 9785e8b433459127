"""A long history made in little time: what so many commits of one process would leave, a thousand at a time.

By the protocol (``docs/protocol.md``, section 2) like commits, only that each step of it is taken for all of a batch: the
rows of the journal are created, pending; if they were created in time, the cells are written; then all are committed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from hbasemk.kernel import changes, journal_row, paths, schema, values
from hbasemk.kernel.changes import CHANGED, RowChange
from hbasemk.kernel.instance import ADVANCE_AFTER, Instance
from hbasemk.store.abc import NewCell, Put

BATCH: Final = 1000
SETTLED_WITHIN: Final = 120.0
"""Seconds; it takes the allowed clock skew, and as long as a poll of the whole history takes."""


def age(instance: Instance, path: str, name: str, commits: int, stop: Callable[[], bool]) -> int:
    """Set a node's property to 0, 1, 2 and so on, a revision each, and move the watermark as time would have.

    Returns how many revisions were made before ``stop`` said to. Nobody else may change that property meanwhile. Raises
    TimeoutError if the watermark could not follow within :data:`SETTLED_WITHIN` seconds.
    """
    base, number, size = instance.head().revision, 0, BATCH
    while number < commits and not stop():
        wanted = range(number, min(commits, number + size))
        made = _create(instance, base, [RowChange(path, CHANGED, [name])], len(wanted))
        if made:
            _commit(instance, path, name, base, dict(zip(made, wanted, strict=True)))
            base, number = made[-1], number + len(made)
        else:
            size = max(1, size // 2)
    if number < ADVANCE_AFTER:
        instance.poll()
    else:
        _settle(instance, base)
    return number


def _create(instance: Instance, base: int, touched: Sequence[RowChange], count: int) -> list[int]:
    """So many pending revisions, all on one that is there; none, all aborted, if that took longer than a commit may."""
    made: list[int] = []
    puts = []
    told = changes.encode(touched)
    for _ in range(count):
        new = instance.clock.next(max([base, instance.journal.highest_seen, *made[-1:]]))
        puts.append(Put(schema.revision_key(new), [*journal_row.begin(os.urandom(16), base, ""), *told]))
        made.append(new)
    instance.store.write(schema.JOURNAL, puts)
    # The first is the oldest.
    created_ms = instance.outcomes.created_ms(made[0])
    if created_ms is not None and not instance.clock.is_late(made[0], created_ms):
        return made
    for late in made:
        instance.outcomes.abort_own(late, ())
    return []


def _commit(instance: Instance, path: str, name: str, base: int, made: dict[int, int]) -> None:
    """Each on the one before."""
    cells, journal = [], []
    for new, value in made.items():
        cells.append(NewCell(*schema.property_column(name), values.encode(value), new))
        cells.append(NewCell(*schema.LAST_REVISION, schema.TOUCHED, new))
        done = [NewCell(*schema.COMMITTED, schema.YES), NewCell(*schema.BASE, schema.revision_key(base))]
        journal.append(Put(schema.revision_key(new), done))
        base = new
    instance.store.write(schema.NODES, [Put(paths.key(path), cells)])
    instance.store.write(schema.JOURNAL, journal)


def _settle(instance: Instance, newest: int) -> None:
    """Wait until no revision can appear below the newest any more, which takes the allowed clock skew; move the watermark."""
    deadline = time.monotonic() + SETTLED_WITHIN
    while instance.journal.low_bound <= newest:
        if time.monotonic() > deadline:
            raise TimeoutError(f"a history was not settled within {SETTLED_WITHIN:g} s")
        time.sleep(0.2)
        instance.poll()
    instance.recovery.advance()
