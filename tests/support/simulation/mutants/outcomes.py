"""Outcomes: the decision, and the rollback of aborted revisions (sections 4 and 6)."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.format import changes, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit import new_row
from hbasemk.kernel.commit.attempt import Attempts
from hbasemk.kernel.commit.draft import Draft
from hbasemk.kernel.commit.preparation import Preparation
from hbasemk.kernel.journal.outcomes import Outcomes
from hbasemk.store.abc import Cell, Column, NewCell, Put


def put_for_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    def decide(self: Outcomes, revision: int, _: object, then: Column, *__: object, **___: object) -> bool:
        self._store.write(schema.JOURNAL, [Put(schema.revision_key(revision), [NewCell(*then, schema.YES)])])
        return True

    patch.setattr(Outcomes, "decide", decide)


def aborting_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outcomes, "abort_other", lambda *_: Outcome.ABORTED)


def recovery_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    def recover(self: Outcomes, revision: int) -> Outcome:
        self._store.write(schema.JOURNAL, [Put(schema.revision_key(revision), [NewCell(*schema.ABORT, schema.YES)])])
        self.sweep_again(revision)
        return Outcome.ABORTED

    patch.setattr(Outcomes, "recover", recover)


def pending_taken_for_aborted(patch: pytest.MonkeyPatch) -> None:
    original = Outcomes.of_many

    def of_many(self: Outcomes, ids: Any, **options: Any) -> Any:
        found = original(self, ids, **options)
        return {one: Outcome.ABORTED if how is Outcome.PENDING else how for one, how in found.items()}

    patch.setattr(Outcomes, "of_many", of_many)


def roll_back_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = Outcomes._sweep
    patch.setattr(Outcomes, "_sweep", lambda self, revision, _, by: original(self, revision, (), by))


def roll_back_of_committed_revisions(patch: pytest.MonkeyPatch) -> None:
    def abort(self: Outcomes, revision: int) -> Outcome:
        self.decide(revision, schema.COMMITTED, schema.ABORT)
        return Outcome.ABORTED

    patch.setattr(Outcomes, "abort", abort)


def cells_before_the_journal_row(patch: pytest.MonkeyPatch) -> None:
    create = Preparation.create

    def late(self: Preparation, draft: Draft) -> None:
        declared = changes.decode(
            Cell(cell.family, cell.qualifier, draft.revision, cell.value) for cell in draft.encoded
        )
        self._store.write(
            schema.NODES,
            [
                Put(
                    delete.row,
                    [NewCell(cell.family, cell.qualifier, b"\x02\x01", draft.revision) for cell in delete.cells],
                )
                for delete in changes.deletes(declared, draft.revision)
            ],
        )
        create(self, draft)

    patch.setattr(Preparation, "create", late)


def lost_reply_to_the_decision_read_as_a_refusal(patch: pytest.MonkeyPatch) -> None:
    original = Attempts._turned_out_committed

    def turned_out(self: Attempts, draft: Draft, *, clean: bool) -> bool:
        if clean:
            return original(self, draft, clean=clean)
        self._outcomes._sweep(draft.revision, draft.touched, schema.SWEPT_IN_DOUBT)
        return False

    patch.setattr(Attempts, "_turned_out_committed", turned_out)
    patch.setattr("hbasemk.kernel.retry.RetryBudget.wait", lambda self: False)


def own_creation_read_as_a_foreign_one(patch: pytest.MonkeyPatch) -> None:
    def require_ours(self: Preparation, revision: int, nonce: bytes) -> None:
        raise new_row.issued_twice(revision)

    patch.setattr(Preparation, "_require_ours", require_ours)
