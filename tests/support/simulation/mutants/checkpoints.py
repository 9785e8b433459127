"""Mutants of checkpoints: the kernel broken on purpose, one rule at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.format import schema
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import BranchView
from hbasemk.kernel import checkpoints
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.checkpoint_cells import CheckpointCells
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retrying_store import RetryingStore

MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = []


def mutant(function: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Register a mutant."""
    MUTANTS.append(function)
    return function


@mutant
def view_of_a_checkpoint_not_stored(patch: pytest.MonkeyPatch) -> None:
    original = CheckpointCells.change

    def change(self: CheckpointCells, revision: int, change: Any) -> None:
        def without_view(stored: Any, again: bool) -> Any:
            changed = change(stored, again)
            return None if changed is None else (changed[0]._replace(digest=0), None)

        original(self, revision, without_view)

    patch.setattr(CheckpointCells, "change", change)


@mutant
def view_of_a_checkpoint_by_its_id(patch: pytest.MonkeyPatch) -> None:
    def keep(_: Extent, upper: int) -> BranchView:
        return BranchView(Extent(upper), upper)

    patch.setattr(checkpoints, "BranchView", keep)


@mutant
def changes_of_checkpoints_not_announced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CheckpointCells, "_announce", lambda _: None)


@mutant
def position_before_checkpoint(patch: pytest.MonkeyPatch) -> None:
    original = Instance.at

    def at(self: Instance, revision: int) -> View:
        return self.journal.view_of(revision) or original(self, revision)

    patch.setattr(Instance, "at", at)


# --- found by scenarios, not by random schedules -------------------------------------------------------------


def checkpoint_opened_without_a_poll(patch: pytest.MonkeyPatch) -> None:
    original = CheckpointCells.read_view

    def read_view(self: CheckpointCells, revision: int) -> View | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._journal, "poll", list)
            inner.setattr(self._journal, "verify", lambda _: None)
            return original(self, revision)

    patch.setattr(CheckpointCells, "read_view", read_view)


def second_view_of_a_revision_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checkpoints, "_require_same", lambda *_, **__: None)


def checkpoints_changed_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    original = RetryingStore.check_and_write

    def check_and_write(self: RetryingStore, table: str, column: Any, expected: Any, put: Any, **named: Any) -> bool:
        if table == schema.CLUSTER and column[1].startswith(b"checkpoint:"):
            self.write(table, [put])
            return True
        return original(self, table, column, expected, put, **named)

    patch.setattr(RetryingStore, "check_and_write", check_and_write)
