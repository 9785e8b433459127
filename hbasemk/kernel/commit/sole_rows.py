"""Rows that only this process has written lately, in a store that does not order all writes.

A commit that changes one such row writes its cells by one compare-and-set on ``lastRevision``, in place of a write and a
read-back, and creates its journal row when it is decided. Other writers respect the marks that the commit leaves
(``docs/decisions/0062-sole-writers.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
"""After a look that found other writers, a process does not look again for one own commit to the row, then two, up to this."""


@dataclass(slots=True)
class Known:
    """The last commit of this instance to a row, the stage of the next one, and how many commits wait before a look."""

    revision: int
    stage: Stage
    waits: int = 0
    next_wait: int = 1


class SoleRows:
    """The rows that one instance has written last. Thread-safe."""

    def __init__(self) -> None:
        self._rows: dict[bytes, Known] = {}

    def choose(self, draft: Draft, plan: ChangeSet) -> None:
        """Choose the stage of a commit: ``draft.stage``, and for ``ALONE`` the mark that it expects in ``draft.mark``."""
        draft.stage, draft.mark = Stage.ORDINARY, 0
        if not _is_possible(draft, plan):
            return
        known = self._rows.get(plan.rows[0].key)
        base = plan.after[0].base
        # If the view shows a later revision of another process, this one is not the sole writer.
        if known is not None and base is not None and known.revision == base.revision:
            draft.stage = Stage.ORDINARY if known.waits else known.stage
            draft.mark = known.revision if draft.stage is Stage.ALONE else 0

    def record(self, draft: Draft, plan: ChangeSet) -> None:
        """Record a commit that has succeeded."""
        if not _is_possible(draft, plan):
            return
        key = plan.rows[0].key
        known = self._rows.pop(key, None)
        entry = Known(draft.revision, Stage.LOOK)
        if known is not None and draft.stage is Stage.ORDINARY:
            entry.waits, entry.next_wait = max(known.waits - 1, 0), known.next_wait
        elif known is not None and draft.found_others:
            entry.waits, entry.next_wait = known.next_wait, min(known.next_wait * 2, LONGEST_WAIT)
        elif known is not None:
            entry.stage, entry.next_wait = draft.stage.next, known.next_wait
        if len(self._rows) >= MOST_ROWS:
            self._rows.pop(next(iter(self._rows), b""), None)
        self._rows[key] = entry

    def lose(self, plan: ChangeSet) -> None:
        """Record that another process has written the row of a plan."""
        known = self._rows.get(plan.rows[0].key)
        if known is not None:
            known.stage, known.waits = Stage.LOOK, known.next_wait
            known.next_wait = min(known.next_wait * 2, LONGEST_WAIT)


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
