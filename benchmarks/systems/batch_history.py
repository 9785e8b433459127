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


def write_history(
    instance: Instance, nodes: Sequence[str], name: str, commits: int, stop: Callable[[], bool], together: int = 1
) -> int:
    """Set a property of nodes to 0, 1, 2 and so on, one revision each, and advance the watermark past them.

    Each revision changes the next ``together`` of the nodes, and begins again after the last one. Returns the number of
    revisions, which is smaller if ``stop`` returned True. No other process may change the property meanwhile.
    """
    base, number = instance.head().revision, 0
    while number < commits and not stop():
        numbers = range(number, min(commits, number + BATCH))
        chosen = [_chosen(nodes, one, together) for one in numbers]
        revisions = _create(instance, base, name, chosen)
        _commit(instance, name, base, list(zip(revisions, numbers, chosen, strict=True)))
        base, number = revisions[-1], number + len(revisions)
    if number < ADVANCE_AFTER:
        instance.poll()
    else:
        _advance_watermark(instance)
    return number


def _chosen(nodes: Sequence[str], number: int, together: int) -> list[str]:
    """Return the nodes that a revision changes."""
    first = number * together
    return [nodes[place % len(nodes)] for place in range(first, first + min(together, len(nodes)))]


def _create(instance: Instance, base: int, name: str, chosen: Sequence[Sequence[str]]) -> list[int]:
    """Create a pending revision for each of these lists of nodes; all have the same base."""
    revisions: list[int] = []
    puts = []
    for nodes in chosen:
        new = instance.announcements.next(max([base, instance.journal.highest_seen, *revisions[-1:]]), [])
        declared = changes.encode([RowChange(path, CHANGED, [name]) for path in nodes])
        puts.append(Put(schema.revision_key(new), [*journal_row.begin(os.urandom(16), base, ""), *declared]))
        revisions.append(new)
    if not instance.store.supports_transactions:
        # One call announces all of them.
        instance.announcements.announce(revisions[-1])
    instance.store.write(schema.JOURNAL, puts)
    return revisions


def _commit(instance: Instance, name: str, base: int, made: Sequence[tuple[int, int, Sequence[str]]]) -> None:
    """Write the cells and commit the revisions, each based on the previous one.

    ``made`` has each revision, its value, and its nodes.
    """
    journal = []
    cells: dict[str, list[NewCell]] = {}
    for new, value, nodes in made:
        for path in nodes:
            row = cells.setdefault(path, [])
            row.append(NewCell(*schema.property_column(name), values.encode(value), new))
            row.append(NewCell(*schema.LAST_REVISION, schema.TOUCHED, new))
        committed = [NewCell(*schema.COMMITTED, schema.YES), NewCell(*schema.BASE, schema.revision_key(base))]
        journal.append(Put(schema.revision_key(new), committed))
        base = new
    instance.store.write(schema.NODES, [Put(paths.key(path), row) for path, row in cells.items()])
    instance.store.write(schema.JOURNAL, journal)
    for new, *_ in made:
        instance.announcements.decided(new)


def _advance_watermark(instance: Instance) -> None:
    instance.poll()
    instance.announcements.renew(instance.journal.highest_seen)
    instance.recovery.advance()
