"""Rows that only one process writes: their marks, and the changes in logs (section 4)."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.format import schema, writer_log
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.read_back import Marks, ReadBack
from hbasemk.kernel.commit.sole_rows import SoleRows, mark_of, marked_puts, parts, with_mark
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.commit.writing import Writing
from hbasemk.store.abc import Put


def _with_marks(patch: pytest.MonkeyPatch, name: str) -> None:
    """Let the read-back never find what an attribute of its marks says."""
    original = ReadBack._find_marks

    def find(self: ReadBack, view: Any, low_bound: int, most: int, row: Any, marks: Marks) -> bool:
        deeper = original(self, view, low_bound, most, row, marks)
        setattr(marks, name, False)
        return deeper

    patch.setattr(ReadBack, "_find_marks", find)


def marks_ignored(patch: pytest.MonkeyPatch) -> None:
    _with_marks(patch, "overtaken")


def other_writers_overlooked(patch: pytest.MonkeyPatch) -> None:
    _with_marks(patch, "found_others")


def written_alone_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    def write(self: Writing, draft: Draft, plan: ChangeSet) -> bool:
        self._store.write(schema.NODES, marked_puts(plan, draft.revision), durable=False)
        return True

    patch.setattr(Writing, "write_alone", write)


def added_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    original = Writing.write_alone

    def write(self: Writing, draft: Draft, plan: ChangeSet) -> bool:
        changed, base, added = parts(plan)
        if added is None:
            return original(self, draft, plan)
        self._store.write(schema.NODES, [Put(added.key, added.cells, draft.revision)], durable=False)
        put = with_mark(changed, draft.revision, schema.shared_mark(draft.revision))
        return self._store.check_and_write(schema.NODES, schema.LAST_REVISION, mark_of(base), put)

    patch.setattr(Writing, "write_alone", write)


def names_overlooked(patch: pytest.MonkeyPatch) -> None:
    original = SoleRows.choose

    def choose(self: SoleRows, draft: Draft, plan: ChangeSet) -> None:
        for row in plan.rows:
            row.names_in_doubt = False
        original(self, draft, plan)

    patch.setattr(SoleRows, "choose", choose)


def marks_shared_beside_other_writers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Draft, "leaves_shared_mark", property(lambda draft: draft.stage is not Stage.ORDINARY))


def aborted_rows_without_the_changes_of_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer_log, "changes_of", lambda *_: None)
