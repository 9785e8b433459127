"""Rows that only this process has written lately, in a store that does not order all writes.

A commit that changes one such row writes its cells by one compare-and-set on ``lastRevision``, in place of a write and a
read-back, and creates its journal row when it is decided. It may also add one node below: another compare-and-set finds that
its row is new. Other writers respect the marks that the commit leaves (``docs/decisions/0062-sole-writers.md``).

Processes that compete over a property compare the shared marks of each other (``docs/decisions/0064-marks-among-others.md``).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from hbasemk.format import changes, paths, schema
from hbasemk.format.changes import ADDED, CHANGED
from hbasemk.format.node import NodeState
from hbasemk.kernel.commit.change_set import ChangeSet, RowPlan
from hbasemk.kernel.commit.change_source import Prediction
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
        """Return what is known after ``revision``, if another process has written the row at the same time."""
        return Known(revision, Stage.LOOK, self.next_wait, min(self.next_wait * 2, LONGEST_WAIT))


class Simple(NamedTuple):
    """A commit that depends on one row only: this row, the state of its node before, and the row of a node that it adds below."""

    changed: RowPlan
    base: NodeState
    added: RowPlan | None


class SoleRows:
    """The rows that one instance has written last, and those where it came too late.

    Thread-safe: an entry never changes, and another one replaces it in one step. ``batch_rows`` is that of the store. A commit of
    more rows writes a part of them first, so it has no stages.
    """

    def __init__(self, batch_rows: int) -> None:
        self._batch_rows = batch_rows
        # Ordered: to remove the first entry is one step.
        self._rows: OrderedDict[bytes, Known] = OrderedDict()
        self._refused: dict[bytes, int] = {}
        """Revisions of nodes by row key: another process had written after their marks, and nothing of that was visible."""

    def choose(self, draft: Draft, plan: ChangeSet) -> None:
        """Find out whether a commit depends on one row only, and choose its stage."""
        draft.stage, draft.sole_row, draft.competes = Stage.ORDINARY, None, False
        simple = _simple(draft, plan)
        if simple is None:
            return
        draft.sole_row = simple.changed.key
        if len(plan.rows) <= self._batch_rows:
            draft.stage = self.stage_after(simple.base)
            draft.competes = draft.is_hot and simple.added is None
            if draft.competes:
                draft.stage = self._stage_among_others(simple, draft.stage)
            if draft.stage is Stage.ALONE and simple.changed.names_in_doubt:
                # Only a read-back shows whether a child has the name of a new property.
                draft.stage = Stage.MARK

    def stage_after(self, base: NodeState) -> Stage:
        """Return the stage of the next simple commit to a node, if its view shows this state."""
        known = self._rows.get(paths.key(base.path))
        # If the view shows a later revision of another process, this one is not the sole writer.
        if known is None or known.waits or known.revision != base.revision:
            return Stage.ORDINARY
        return known.stage

    def _stage_among_others(self, simple: Simple, stage: Stage) -> Stage:
        """Return the stage of a commit that competes; ``stage`` is the one by the own commits to the row."""
        base = simple.base
        if self._refused.get(simple.changed.key) == base.revision:
            # What is above the mark may never become visible.
            return Stage.ORDINARY
        if stage is Stage.ALONE or base.has_shared_mark:
            return Stage.ALONE
        return Stage.MARK

    def refuse(self, plan: ChangeSet) -> None:
        """Record that another process has written a row after the mark that a commit has found in its view."""
        changed, base, _ = parts(plan)
        if len(self._refused) >= MOST_ROWS:
            self._refused = {}
        self._refused[changed.key] = base.revision
        self.lose(plan)

    def record(self, draft: Draft) -> None:
        """Record a commit that has succeeded."""
        key, revision = draft.sole_row, draft.revision
        if key is None:
            return
        known = self._rows.pop(key, None)
        if known is None:
            # Most rows have one writer. If this one has others, the next mark only follows a look.
            has_met_others = draft.stage is Stage.MARK and draft.found_others
            entry = Known(revision, Stage.LOOK if has_met_others else max(Stage.MARK, draft.stage.next))
        elif draft.stage is Stage.ORDINARY:
            entry = Known(revision, Stage.LOOK, max(known.waits - 1, 0), known.next_wait)
        elif draft.found_others:
            entry = known.beside_others(revision)
        else:
            entry = Known(revision, draft.stage.next, 0, known.next_wait)
        self._rows[key] = entry
        while len(self._rows) > MOST_ROWS:
            self._rows.popitem(last=False)

    def lose(self, plan: ChangeSet) -> None:
        """Record that another process has written the row of a simple plan, or may have added the same node below."""
        key = parts(plan).changed.key
        known = self._rows.get(key)
        if known is not None:
            self._rows[key] = known.beside_others(known.revision)


def _simple(draft: Draft, plan: ChangeSet) -> Simple | None:
    """Return the parts of a commit that depends on one row only, if its changes fit the log; else None.

    Adjusts are no changes of this kind: several processes adjust one number without conflicts, and marks would make some.
    """
    if (
        len(plan.rows) > 2
        or len(plan.rows) != len(plan.after)
        or plan.adjusting
        or plan.private
        or plan.expected
        or plan.reads is not None
        or draft.ends is not None
        or len(draft.encoded) != 1
        or changes.size_of(draft.encoded) > MOST_CHANGES
        or plan.size > MOST_BYTES
    ):
        return None
    existing = [node for node in plan.after if node.base is not None]
    # A node that replaces another one depends on its own row, too.
    if len(existing) != 1 or not existing[0].exists or existing[0].is_new:
        return None
    return parts(plan)


def parts(plan: ChangeSet) -> Simple:
    """Return the parts of a plan that depends on one row only."""
    one, *others = plan.after
    base = one.base
    if base is not None:
        return Simple(plan.rows[0], base, plan.rows[1] if others else None)
    base = others[0].base
    assert base is not None
    return Simple(plan.rows[1], base, plan.rows[0])


def mark_of(base: NodeState) -> bytes:
    """Return the mark that the revision of this state has left in the row of its node."""
    return schema.shared_mark(base.revision) if base.has_shared_mark else schema.mark(base.revision)


def added_alone(prediction: Prediction) -> str | None:
    """Return the path of the node that a commit adds, if it changes nothing else but the parent."""
    if len(prediction.changes) != 2 or prediction.adjusts:
        return None
    one, other = prediction.changes
    added, changed = (one, other) if one.kind == ADDED else (other, one)
    is_one = added.kind == ADDED and changed.kind == CHANGED and changed.path == paths.parent(added.path)
    return added.path if is_one else None


def marked_puts(plan: ChangeSet, revision: int) -> list[Put]:
    """Return the cells of a simple plan, with a mark in ``lastRevision`` of the row that it changes."""
    changed, _, added = parts(plan)
    marked = with_mark(changed, revision, schema.mark(revision))
    return [marked] if added is None else [marked, Put(added.key, added.cells, revision)]


def with_mark(row: RowPlan, revision: int, mark: bytes) -> Put:
    """Return the cells of a row, with this value of ``lastRevision``."""
    cells = [(*schema.LAST_REVISION, mark, None) if cell[:2] == schema.LAST_REVISION else cell for cell in row.cells]
    return Put(row.key, cells, revision)
