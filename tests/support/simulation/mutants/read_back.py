"""The read-back: what a commit depends on, and which conflicts it finds (section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hbasemk.format import schema
from hbasemk.kernel.commit import change_set
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.operations import Expect
from hbasemk.kernel.commit.read_back import ReadBack
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.commit.staging import Staging
from hbasemk.kernel.commit.writing import Writing
from hbasemk.store.abc import Column, Get, Row


def no_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadBack, "validate", lambda *_, **__: None)


def one_transaction_without_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadBack, "precondition", lambda *_: ([], lambda _: True))


def read_back_before_writing(patch: pytest.MonkeyPatch) -> None:
    def read_then_write(self: Writing, draft: Draft, plan: ChangeSet, gets: Sequence[Get]) -> list[Row]:
        rows = self._store.read(schema.NODES, gets)
        self._store.write(schema.NODES, plan.puts(draft.revision), durable=False)
        return rows

    patch.setattr(Writing, "write", read_then_write)


def read_back_without(patch: pytest.MonkeyPatch, is_left_out: Callable[[Column], bool]) -> None:
    """Let commits not depend on the columns for which ``is_left_out`` is true."""
    original = change_set._plan

    def plan(node: Any) -> Any:
        row, change = original(node)
        for column in filter(is_left_out, list(row.depends_on)):
            del row.depends_on[column]
        return row, change

    patch.setattr(change_set, "_plan", plan)


def deleted_not_read_back(patch: pytest.MonkeyPatch) -> None:
    read_back_without(patch, lambda column: column == schema.DELETED)


def last_revision_not_read_back(patch: pytest.MonkeyPatch) -> None:
    read_back_without(patch, lambda column: column == schema.LAST_REVISION)


def child_not_read_back(patch: pytest.MonkeyPatch) -> None:
    read_back_without(patch, lambda column: column[0] == schema.CHILDREN)


def only_the_newest_version_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hbasemk.kernel.commit.read_back._versions_of", lambda *_: 1)
    patch.setattr("hbasemk.kernel.commit.read_back.ALL_VERSIONS", 1)


def resolve_only(patch: pytest.MonkeyPatch, is_kept: Callable[[int, int], bool]) -> None:
    """Let commits ignore the revisions in conflict for which ``is_kept(other, own)`` is false."""
    resolve = ReadBack._resolve

    def some(self: ReadBack, revision: int, view: Any, met: Any) -> Any:
        return resolve(self, revision, view, {other: seen for other, seen in met.items() if is_kept(other, revision)})

    patch.setattr(ReadBack, "_resolve", some)


def higher_pending_ignored(patch: pytest.MonkeyPatch) -> None:
    # Lower revisions win; higher ones find the conflict themselves.
    resolve_only(patch, lambda other, revision: other < revision)


def lower_ignored(patch: pytest.MonkeyPatch) -> None:
    resolve_only(patch, lambda other, revision: other > revision)


def child_lists_not_read_back(patch: pytest.MonkeyPatch) -> None:
    """Only interleavings find it: histories also read each listed child, and the schedules list nothing."""
    patch.setattr(ReadSet, "children", lambda *_: None)


def reads_not_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadSet, "gets", lambda *_: [])


def changes_without_effect_rely_on_nothing(patch: pytest.MonkeyPatch) -> None:
    """Histories and interleavings find it: the schedules repeat no value."""
    patch.setattr(StagedNode, "depends_on_base", property(lambda _: False))
    patch.setattr(change_set, "_columns_without_effect", lambda _: {})


def expectations_not_depended_on(patch: pytest.MonkeyPatch) -> None:
    """Histories and interleavings find it: the schedules expect nothing."""
    patch.setattr(ChangeSet, "depends_on", lambda self: self.reads or ReadSet())


def expected_absence_not_depended_on(patch: pytest.MonkeyPatch) -> None:
    """Histories and interleavings find it: the schedules expect nothing."""
    original = ChangeSet.depends_on

    def depends_on(self: ChangeSet) -> ReadSet:
        present = {path: version for path, version in self.expected.items() if version is not None}
        return original(replace(self, expected=present))

    patch.setattr(ChangeSet, "depends_on", depends_on)


def versions_of_the_head_expected(patch: pytest.MonkeyPatch) -> None:
    """Only a branch, and the error of a commit on an old base, show it: elsewhere the read-back finds the same."""
    original = Staging._expect

    def expect(self: Staging, operation: Expect) -> None:
        mine = self.view
        self.view = self._reader._cells._journal.head
        state = self._reader.node(self.view, operation.path)
        self._nodes[operation.path] = StagedNode(operation.path, state)
        original(self, operation)
        self.view = mine
        del self._nodes[operation.path]

    patch.setattr(Staging, "_expect", expect)


def names_not_kept_apart(patch: pytest.MonkeyPatch) -> None:
    """Only interleavings find it: no workload of the schedules names a property like a child."""
    patch.setattr(change_set, "_keep_names_apart", lambda node, plan, created: None)
