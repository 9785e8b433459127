"""Rules of the collection broken on purpose: the test of each rule must fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.errors import BlobNotFoundError, HbasemkError
from hbasemk.format.branch_head import BranchClaim
from hbasemk.kernel.branches.branch_revisions import BranchRevisions
from hbasemk.kernel.branches.claims import BranchClaims
from hbasemk.kernel.collection import blob_references, ended_branches, leases, memos, other_cells, unused_blobs
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.ids import lease
from hbasemk.store.memory import MemoryStore
from tests.kernel.collection import test_cluster, test_ended_branches, test_unused_blobs
from tests.kernel.collection.test_unused_blobs import commit
from tests.support.runtime import World, open_instance

Mutant = Callable[[pytest.MonkeyPatch], None]


def claims_begin_anywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease, "_above_horizon", lambda _: 0)


def leases_of_any_age_go(patch: pytest.MonkeyPatch) -> None:
    old = leases.old_leases
    patch.setattr(leases, "old_leases", lambda store, _: old(store, 2**62))


def memos_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memos, "old_memos", lambda *_: iter(()))


def memos_of_any_view_go(patch: pytest.MonkeyPatch) -> None:
    old = memos.old_memos
    patch.setattr(memos, "old_memos", lambda store, _: old(store, 2**62))


def outcomes_without_a_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BranchRevisions, "_require_recorded", lambda *_: None)


def claims_on_missing_rows(patch: pytest.MonkeyPatch) -> None:
    def take(self: BranchClaims, root: int, claimant: int, revision: int) -> None:
        self._replace(root, None, BranchClaim(claimant, revision))

    patch.setattr(BranchClaims, "take", take)


def rows_of_open_branches_go(patch: pytest.MonkeyPatch) -> None:
    def collect(run: Run, rows: Any) -> None:
        run.delete_rows(ended_branches.KIND, "journal", [row.key for row in rows])

    passed = other_cells.passed_rows.collect
    patch.setattr(ended_branches, "collect", collect)
    patch.setattr(
        other_cells.passed_rows,
        "collect",
        lambda run: passed(Run(run.instance, run.horizon + (1 << 60), run.cells, run.writes, run.pause)),
    )


def only_the_newest_versions_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blob_references, "_deep", lambda _: {})


def blobs_go_at_once(patch: pytest.MonkeyPatch) -> None:
    collect = unused_blobs._collect
    patch.setattr(
        unused_blobs,
        "_collect",
        lambda run, found, *, used_before, old: collect(run, found, used_before=used_before + 2**40, old=old),
    )


BROKEN: list[tuple[Mutant, Callable[..., None], tuple[Any, ...]]] = [
    (claims_begin_anywhere, test_cluster.test_a_claim_without_a_lease_before_it_begins_above_the_horizon, ()),
    (leases_of_any_age_go, test_cluster.test_leases_that_ended_below_the_horizon_go, ()),
    (memos_stay, test_cluster.test_stored_counts_below_the_horizon_go, (None,)),
    (memos_of_any_view_go, test_cluster.test_stored_counts_below_the_horizon_go, (None,)),
    (
        outcomes_without_a_row,
        test_ended_branches.test_a_process_that_slept_until_its_branch_was_collected_changes_nothing,
        (None, "commit"),
    ),
    (claims_on_missing_rows, test_ended_branches.test_a_claim_on_a_branch_that_is_gone_is_refused, ()),
    (rows_of_open_branches_go, test_ended_branches.test_an_open_branch_keeps_its_rows, ()),
]


@pytest.mark.parametrize(("mutant", "test", "arguments"), BROKEN, ids=lambda one: getattr(one, "__name__", ""))
def test_a_broken_rule_is_found(
    mutant: Mutant, test: Callable[..., None], arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    world = World()
    store = MemoryStore(world.clock, transactions=True)
    given = [monkeypatch if one is None else one for one in arguments]
    with pytest.raises((AssertionError, HbasemkError, pytest.fail.Exception)):
        test(store, world, *given)
    store.close()


BROKEN_SWEEPS: list[tuple[Mutant, Callable[..., None], tuple[str, ...]]] = [
    (
        only_the_newest_versions_are_read,
        test_unused_blobs.test_a_blob_stays_while_any_cell_refers_to_it,
        ("one of many versions",),
    ),
    (blobs_go_at_once, test_unused_blobs.test_a_writer_that_finds_its_content_keeps_it, ()),
]


@pytest.mark.parametrize(("mutant", "test", "arguments"), BROKEN_SWEEPS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_broken_sweep_of_blobs_is_found(
    mutant: Mutant, test: Callable[..., None], arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("ROWS", 2), ("VERSIONS", 2), ("DEEPER", 2)):
        monkeypatch.setattr(blob_references, name, value)
    world = World()
    store = MemoryStore(world.clock, transactions=True)
    one = open_instance(store, world)
    commit(one, AddNode("/a", {}), AddNode("/z", {}))
    mutant(monkeypatch)
    with pytest.raises((AssertionError, BlobNotFoundError)):
        test(one, world, *arguments)
    store.close()
