"""Mutants of the collection: each breaks one rule, and the test of that rule must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hbasemk.errors import HbasemkError
from hbasemk.format import revisions
from hbasemk.format.branch_head import BranchClaim
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.branches.branch_revisions import BranchRevisions
from hbasemk.kernel.branches.claims import BranchClaims
from hbasemk.kernel.collection import (
    blob_references,
    ended_branches,
    journal_rows,
    late_cells,
    leases,
    memos,
    passed_rows,
    unused_blobs,
)
from hbasemk.kernel.collection.progress import Progress
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.ids import lease
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.arrival_poller import ArrivalPoller
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.news import News
from hbasemk.kernel.reading.cache import NodeCache
from tests.support.marking_store import store_in_memory
from tests.support.runtime import World

Mutant = Callable[[pytest.MonkeyPatch], None]


def claims_begin_anywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease, "_above_horizon", lambda _: 0)


def leases_of_any_age_go(patch: pytest.MonkeyPatch) -> None:
    old = leases.old_leases
    patch.setattr(leases, "old_leases", lambda store, _: old(store, revisions.MAX_REVISION))


def claims_do_not_learn_the_horizon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence, "show_to_claims", lambda *_: None)


def claims_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease.Lease, "_begin_above", lambda *_: None)


def memos_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(memos, "old_memos", lambda *_: iter(()))


def memos_of_any_view_go(patch: pytest.MonkeyPatch) -> None:
    old = memos.old_memos
    patch.setattr(memos, "old_memos", lambda store, _: old(store, revisions.MAX_REVISION))


def outcomes_without_a_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BranchRevisions, "_require_kept", lambda *_: None)


def claims_on_missing_rows(patch: pytest.MonkeyPatch) -> None:
    def take(self: BranchClaims, root: int, claimant: int, revision: int) -> None:
        self._replace(root, None, BranchClaim(claimant, revision))

    patch.setattr(BranchClaims, "take", take)


def rows_of_open_branches_go(patch: pytest.MonkeyPatch) -> None:
    def collect(run: Run, rows: Any) -> None:
        run.delete_rows(ended_branches.KIND, "journal", [row.key for row in rows])

    passed = passed_rows.collect
    patch.setattr(ended_branches, "collect", collect)
    patch.setattr(
        passed_rows,
        "collect",
        lambda run, batches=None: passed(
            Run(run.instance, run.horizon + (1 << 60), run.cells, run.writes, run.pause), batches
        ),
    )


def sleepers_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(News, "is_complete", property(lambda _: True, lambda *_: None))


def long_polls_trusted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence.Fence, "is_recent", lambda *_: True)


def rows_go_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence.Fence, "known_trim_level", property(lambda self: self.trimmed))


def rows_go_above_the_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        journal_rows,
        "settings",
        SimpleNamespace(read_watermark=lambda _: SimpleNamespace(revision=revisions.MAX_REVISION)),
    )


def rows_that_are_gone_overlooked(patch: pytest.MonkeyPatch) -> None:
    read = ArrivalPoller.read

    def read_all(self: ArrivalPoller, sequence: Any, read_contents: Any) -> News:
        news = read(self, sequence, read_contents)
        if not news.is_complete and self.cursor >= news.trimmed.arrival:
            news.is_complete = True
            news.contents = read_contents(news.committed)
        return news

    patch.setattr(ArrivalPoller, "read", read_all)


def caches_survive_a_new_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeCache, "forget", lambda *_: None)


def numbers_start_at_the_watermark(patch: pytest.MonkeyPatch) -> None:
    begin = ArrivalPoller.__init__

    def __init__(self: ArrivalPoller, store: Any, settings: Any, watermark: Watermark, wants_contents: Any) -> None:
        begin(self, store, settings, watermark, wants_contents)
        self.cursor = max(self.cursor, 10**9)

    patch.setattr(ArrivalPoller, "__init__", __init__)


def absent_rows_never_were(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "is_trimmed", lambda *_: False)


def journal_readers_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "require_recorded", lambda *_: None)
    patch.setattr(Journal, "require_readable", lambda *_: None)


def rows_go_before_their_use(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        journal_rows, "read_progress", lambda _: (Progress(revisions.MAX_REVISION, revisions.MAX_REVISION), None)
    )


def the_row_of_the_horizon_goes(patch: pytest.MonkeyPatch) -> None:
    collect = journal_rows.collect
    rows_go_before_their_use(patch)
    patch.setattr(
        journal_rows,
        "collect",
        lambda run, batches=None: collect(replace(run, horizon=run.horizon + 1), batches),
    )


def late_cells_of_gone_rows_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(late_cells, "of_hidden", lambda *_: [])


def late_cells_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(late_cells, "collect", lambda *_: None)


def only_the_newest_versions_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blob_references, "_deep", lambda _: {})


def blobs_go_at_once(patch: pytest.MonkeyPatch) -> None:
    collect = unused_blobs._collect
    patch.setattr(
        unused_blobs,
        "_collect",
        lambda run, found, limits: collect(run, found, limits._replace(used=limits.used + 2**40)),
    )


def must_fail(
    mutant: Mutant,
    test: Callable[..., None],
    arguments: tuple[Any, ...],
    patch: pytest.MonkeyPatch,
    *,
    ordered: bool = True,
) -> None:
    """Run the test of a rule with a mutant of it, in a store of its own; None among the arguments stands for ``patch``."""
    mutant(patch)
    world = World()
    store = store_in_memory(world.clock, ordered=ordered)
    given = [patch if one is None else one for one in arguments]
    with pytest.raises((AssertionError, HbasemkError, pytest.fail.Exception)):
        test(store, world, *given)
    store.close()
