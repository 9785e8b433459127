"""Rows that only this process has written lately, in a store that does not order all writes.

A commit that changes one such row writes its cells by one compare-and-set on ``lastRevision``, in place of a write and a
read-back, and creates its journal row when it is decided. Other writers respect the marks that the commit leaves
(``docs/decisions/0062-sole-writers.md``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hbasemk.format import changes, schema
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.stage import Stage
from hbasemk.store.abc import Put

MOST_ROWS: Final = 4096
"""The rows that one instance remembers."""
MOST_CHANGES: Final = 4096
"""The longest list of changes, in bytes, that a log shows."""
MOST_BYTES: Final = 1024 * 1024
"""The largest cells, in bytes, that a process writes alone: a compare-and-set is one call."""
LONGEST_WAIT: Final = 64
"""If a process has found another writer of a row, it makes one own commit to the row before it looks again; the next time two,
and so on up to this."""


class Known(NamedTuple):
    """The last commit of this instance to a row, the stage of the next one, and how many commits wait before a look."""

    revision: int
    stage: Stage
    waits: int = 0
    next_wait: int = 1

    def beside_others(self, revision: int) -> Known:
        """Return what is known after ``revision``, if another process has written the row, too."""
        return Known(revision, Stage.LOOK, self.next_wait, min(self.next_wait * 2, LONGEST_WAIT))


class SoleRows:
    """The rows that one instance has written last. Thread-safe: an entry never changes, and another one replaces it."""

    def __init__(self) -> None:
        self._rows: dict[bytes, Known] = {}

    def choose(self, draft: Draft, plan: ChangeSet) -> None:
        """Choose the stage of a commit."""
        draft.stage = Stage.ORDINARY
        if not _is_possible(draft, plan):
            return
        known = self._rows.get(plan.rows[0].key)
        base = plan.after[0].base
        # If the view shows a later revision of another process, this one is not the sole writer.
        if known is not None and not known.waits and base is not None and known.revision == base.revision:
            draft.stage = known.stage

    def record(self, draft: Draft, plan: ChangeSet) -> None:
        """Record a commit that has succeeded."""
        if not _is_possible(draft, plan):
            return
        key, revision = plan.rows[0].key, draft.revision
        known = self._rows.pop(key, None)
        if known is None:
            entry = Known(revision, Stage.LOOK)
        elif draft.stage is Stage.ORDINARY:
            entry = Known(revision, Stage.LOOK, max(known.waits - 1, 0), known.next_wait)
        elif draft.found_others:
            entry = known.beside_others(revision)
        else:
            entry = Known(revision, draft.stage.next, 0, known.next_wait)
        if len(self._rows) >= MOST_ROWS:
            self._rows.pop(next(iter(self._rows), b""), None)
        self._rows[key] = entry

    def lose(self, plan: ChangeSet) -> None:
        """Record that another process has written the row of a plan."""
        key = plan.rows[0].key
        known = self._rows.get(key)
        if known is not None:
            self._rows[key] = known.beside_others(known.revision)


def _is_possible(draft: Draft, plan: ChangeSet) -> bool:
    """Return whether a commit changes one node that exists, and depends on nothing but its row.

    Adjusts are no changes of this kind: several processes adjust one number without conflicts, and marks would make some.
    """
    return (
        len(plan.rows) == 1
        and len(plan.after) == 1
        and plan.after[0].base is not None
        and plan.after[0].exists
        and not (plan.adjusting or plan.private or plan.expected)
        and plan.reads is None
        and draft.ends is None
        and len(draft.encoded) == 1
        and changes.size_of(draft.encoded) <= MOST_CHANGES
        and plan.size <= MOST_BYTES
    )


def marked_put(plan: ChangeSet, revision: int) -> Put:
    """Return the cells of the only row of a plan, with a mark in ``lastRevision``."""
    row = plan.rows[0]
    cells = [
        (*schema.LAST_REVISION, schema.mark(revision), None) if cell[:2] == schema.LAST_REVISION else cell
        for cell in row.cells
    ]
    return Put(row.key, cells, revision)
