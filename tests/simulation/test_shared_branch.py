"""A branch that several processes merge and rebase at the same time counts once; mutants that break this are found.

``HBASEMK_BRANCH_SEEDS=first:last`` runs other schedules, as many as you like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hbasemk.errors import BranchError
from hbasemk.format import schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.branches import merged_part, one_transaction, unfinished_rebases
from hbasemk.kernel.branches.branches import Branches
from hbasemk.kernel.branches.cache import BranchState
from hbasemk.kernel.branches.claims import BranchClaims
from hbasemk.kernel.branches.merge_end import MergeEnd
from hbasemk.kernel.branches.one_transaction import BranchTransactions
from hbasemk.kernel.commit.attempt import Attempts
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.draft import Draft
from hbasemk.store.abc import Decision, NewCell, Put, Row
from hbasemk.testing.simulation import Actor
from tests.support import proof
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.known_seeds import search
from tests.support.simulation.running import each_run
from tests.support.simulation.shared_branch import (
    AdoptedBranch,
    SharedBranch,
    SharedBranchOfNodes,
    SharedBranchOfSets,
)

SEEDS = proof.seeds("HBASEMK_BRANCH_SEEDS", sample=150, proof=1000, long=3000, chunk=500)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("faults", [False, True], ids=["without faults", "with faults"])
@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(
    "kind",
    [SharedBranch, SharedBranchOfNodes, AdoptedBranch, SharedBranchOfSets],
    ids=["adjusts", "nodes", "adopted", "sets"],
)
def test_a_shared_branch_takes_effect_at_most_once(kind: type[SharedBranch], seeds: range, faults: bool) -> None:
    note = f", {kind.__name__}, {'with' if faults else 'without'} faults"
    for _ in each_run("HBASEMK_BRANCH_SEEDS", seeds, lambda seed: kind(seed, faults=faults), note=note):
        pass


class Merges(SharedBranch):
    """One run of a seed, in which all processes merge the branch, and nothing else happens."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        simulator = self.simulator
        del simulator.actors[1:]
        self.merged = 0
        for number in range(3):
            simulator.add(f"m{number}", self._merge)

    def _merge(self, actor: Actor) -> None:
        instance = actor.open()
        self._slow_claims(actor, instance)
        self._some_in_steps(instance)
        try:
            instance.branches.merge(self.newest, "")
            self.merged += 1
        except BranchError as error:
            assert "merged into trunk" in str(error) or "If that one fails" in str(error)


class MergesOfNodes(Merges, SharedBranchOfNodes):
    """The same with a branch that adds a node."""


@pytest.mark.parametrize("kind", [Merges, MergesOfNodes])
def test_merges_of_one_branch_do_not_conflict_with_each_other(kind: type[Merges]) -> None:
    for seed in range(60):
        run = kind(seed)
        run.run()
        assert run.merged == 1, f"seed {seed}: {run.merged} merges have succeeded"


def merges_claim_nothing(patch: pytest.MonkeyPatch) -> None:
    original = BranchClaims.take

    def take(self: Any, root: int, claimant: int, *details: Any, **named: Any) -> Any:
        return original(self, root, claimant, *details, **named) if claimant & 0x80 else None

    patch.setattr(BranchClaims, "take", take)


def merges_claim_after_their_decision(patch: pytest.MonkeyPatch) -> None:
    original = Attempts._step_by_step

    def step_by_step(self: Attempts, draft: Draft, plan: ChangeSet) -> Any:
        ends, draft.ends = draft.ends, None
        try:
            conflict = original(self, draft, plan)
        finally:
            draft.ends = ends
        if conflict is None and ends is not None:
            self._claim(draft, plan, ends)
        return conflict

    patch.setattr(Attempts, "_step_by_step", step_by_step)


def rebases_claim_nothing(patch: pytest.MonkeyPatch) -> None:
    original = BranchClaims.take

    def take(self: Any, root: int, claimant: int, *details: Any, **named: Any) -> Any:
        return None if claimant & 0x80 else original(self, root, claimant, *details, **named)

    patch.setattr(BranchClaims, "take", take)
    patch.setattr(BranchClaims, "finalize", lambda *_: True)


def transactions_that_merge_do_not_look_at_the_branch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MergeEnd, "is_possible", lambda *_: True)


def rebases_in_one_transaction_overlook_claims(patch: pytest.MonkeyPatch) -> None:
    def may_end(_: BranchTransactions, revision: int, row: Row) -> bool:
        return JournalRow(row).value(schema.BRANCH_HEAD) == schema.revision_key(revision)

    patch.setattr(BranchTransactions, "may_end", may_end)


def rebases_in_one_transaction_claim_nothing(patch: pytest.MonkeyPatch) -> None:
    original = one_transaction._if_newest

    def unclaimed(root: int, revision: int, cells: Sequence[NewCell], rows: Sequence[Put]) -> Decision:
        kept = [cell for cell in cells if cell.qualifier != schema.BRANCH_CLAIM[1]]
        return original(root, revision, kept, rows)

    patch.setattr(one_transaction, "_if_newest", unclaimed)


def transactions_of_branches_do_not_compare_the_head(patch: pytest.MonkeyPatch) -> None:
    original = one_transaction._if_newest

    def always(root: int, revision: int, cells: Sequence[NewCell], rows: Sequence[Put]) -> Decision:
        decision = original(root, revision, cells, rows)
        return decision._replace(column=schema.SWEPT, expected=None)

    patch.setattr(one_transaction, "_if_newest", always)
    patch.setattr(BranchTransactions, "may_end", lambda *_: True)


def claims_of_rebases_never_final(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BranchClaims, "finalize", lambda *_: True)


def earlier_claims_stay_in_effect(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BranchClaims, "_is_in_effect", lambda *_: False)


def merged_adjusts_are_applied_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merged_part, "without", lambda _, effect: effect)


def merged_adjusts_unknown_to_later_sets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merged_part, "adjusts", lambda _: {})


def resets_move_the_head_of_a_claimed_branch_back(patch: pytest.MonkeyPatch) -> None:
    def move_back(self: Branches, state: BranchState, revision: int, ancestor: int) -> int:
        if not self._heads.move(state.root, schema.revision_key(revision), schema.revision_key(ancestor)):
            raise self._moved_on(revision)
        return ancestor

    patch.setattr(Branches, "_reset_to_new", move_back)


def new_branches_take_effect_before_old_ones_have_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Branches, "require_begun", lambda *_: None)
    patch.setattr(unfinished_rebases, "leads_to", lambda _, links: dict.fromkeys(links, True))


KINDS_APART = 6000
"""The seeds of mutants from here on have the next one of the kinds of branches, and after as many more the one after it."""
MUTANTS = [
    transactions_that_merge_do_not_look_at_the_branch,
    rebases_in_one_transaction_overlook_claims,
    rebases_in_one_transaction_claim_nothing,
    transactions_of_branches_do_not_compare_the_head,
    merges_claim_nothing,
    merges_claim_after_their_decision,
    rebases_claim_nothing,
    claims_of_rebases_never_final,
    earlier_claims_stay_in_effect,
    merged_adjusts_are_applied_again,
    merged_adjusts_unknown_to_later_sets,
    resets_move_the_head_of_a_claimed_branch_back,
    new_branches_take_effect_before_old_ones_have_ended,
]
KINDS = [SharedBranch, SharedBranchOfNodes, AdoptedBranch, SharedBranchOfSets]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(MUTANTS, sample=2))
def test_a_mutant_of_claims_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    seeds = search("shared branches", mutant.__name__, len(KINDS) * KINDS_APART)

    def run(seed: int) -> SharedBranch:
        return KINDS[seed // KINDS_APART](seed, faults=seed % 2 == 1)

    must_be_found(mutant.__name__, run, seeds)
