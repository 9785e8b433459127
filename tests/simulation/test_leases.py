"""Leases, recovery, the watermark and the shortened journal in schedules about time, and their mutants.

``HBASEMK_LEASE_SEEDS=first:last`` runs other schedules, as many as you like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.format.extent import Extent
from hbasemk.format.watermark import Watermark
from hbasemk.kernel import instance
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.journal import journal
from hbasemk.kernel.journal.recovery import Recovery
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.testing.choices import shrink
from tests.support import proof
from tests.support.simulation import mutants
from tests.support.simulation.fitting import misfits
from tests.support.simulation.known_seeds import search
from tests.support.simulation.leases import LeaseSchedule
from tests.support.simulation.running import each_run
from tests.support.simulation.schedules import Broken, breaks

SEEDS = proof.seeds("HBASEMK_LEASE_SEEDS", sample=50, proof=300, chunk=125)
ENOUGH = 4000


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances drop positions, and read the watermark, after two revisions."""
    monkeypatch.setattr(journal, "KEPT", 2)
    monkeypatch.setattr(instance, "ADVANCE_AFTER", 2)


def shortest(seed: int) -> list[str]:
    """Return the shrunk trace of a failing seed."""
    failed = LeaseSchedule(seed)

    def fails(choices: list[int]) -> bool:
        try:
            LeaseSchedule(seed, choices=choices).run()
        except Broken:
            return True
        except BaseException:
            return False
        return False

    if not fails(list(failed.simulator.chance.drawn)) and not breaks(failed):
        return failed.simulator.trace
    short = LeaseSchedule(seed, choices=shrink(failed.simulator.chance.drawn, fails))
    breaks(short)
    return short.simulator.trace


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seeds", SEEDS)
def test_invariants_hold_with_wrong_clocks_pauses_and_late_requests(seeds: range) -> None:
    commits = late = 0
    for schedule in each_run("HBASEMK_LEASE_SEEDS", seeds, LeaseSchedule, shortest=shortest):
        commits += len(schedule.acknowledged)
        late += schedule.simulator.let_through  # type: ignore[attr-defined]
    print(f"{len(seeds)} schedules, {commits} commits, {late} requests let through late")
    assert len(seeds) < 50 or commits > 2 * len(seeds)


def late_cells_not_hidden(patch: pytest.MonkeyPatch) -> None:
    original = Recovery._move

    def move(self: Recovery, current: Watermark, moved: Watermark, **named: Any) -> bool:
        # A scan for late rows lists them without moving it.
        shown = moved if moved.revision == current.revision else Watermark(moved.revision, frozenset())
        return original(self, current, shown, **named)

    patch.setattr(Recovery, "_move", move)


def late_rows_not_hidden(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_hide", lambda *_: None)


def hidden_revisions_lost_when_shortened(patch: pytest.MonkeyPatch) -> None:
    original = RevisionSequence.shortened

    def shortened(self: RevisionSequence, watermark: Watermark, limit: int, keep: int) -> RevisionSequence | None:
        shorter = original(self, watermark, limit, keep)
        if shorter is not None:
            shorter.hidden = frozenset()
        return shorter

    patch.setattr(RevisionSequence, "shortened", shortened)


def held_snapshots_without_revisions_above(patch: pytest.MonkeyPatch) -> None:
    original = RevisionSequence.store_extents

    def store_extents(self: RevisionSequence, pins: Any, low_bound: int) -> None:
        original(self, pins, low_bound)
        for pin in pins.values():
            pin.extent = Extent(pin.extent[0], frozenset())

    patch.setattr(RevisionSequence, "store_extents", store_extents)


def held_snapshots_with_too_many_revisions(patch: pytest.MonkeyPatch) -> None:
    original = RevisionSequence.store_extents

    def store_extents(self: RevisionSequence, pins: Any, low_bound: int) -> None:
        original(self, pins, low_bound)
        for pin in pins.values():
            pin.extent = Extent(self.upper_at(len(self) - 1), pin.extent[1])

    patch.setattr(RevisionSequence, "store_extents", store_extents)


def shortened_past_possible_late_revisions(patch: pytest.MonkeyPatch) -> None:
    original = RevisionSequence.shortened

    def shortened(self: RevisionSequence, watermark: Watermark, limit: int, keep: int) -> RevisionSequence | None:
        top = max(self.uppers, default=self.top)
        return original(self, watermark, top, keep)

    patch.setattr(RevisionSequence, "shortened", shortened)


def watermark_that_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    original = Recovery.advance

    def advance(self: Recovery) -> Any:
        low = self._journal.poller.low_bound
        skew_ms = self._journal._settings.max_clock_skew_ms
        self._journal.poller.low_bound = self._journal.highest_seen + (skew_ms + 1 << 24)
        try:
            return original(self)
        finally:
            self._journal.poller.low_bound = low

    patch.setattr(Recovery, "advance", advance)


def ids_of_any_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IdClock, "_check_not_ahead", lambda *_: None)
    patch.setattr(IdClock, "is_late", lambda *_: False)


MUTANTS = [
    late_cells_not_hidden,
    late_rows_not_hidden,
    hidden_revisions_lost_when_shortened,
    held_snapshots_without_revisions_above,
    held_snapshots_with_too_many_revisions,
    shortened_past_possible_late_revisions,
    watermark_that_does_not_wait,
    ids_of_any_time,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_takes_the_arguments_of_what_it_replaces(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert misfits(mutant) == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(MUTANTS, sample=1))
def test_a_mutant_is_found(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    mutants.must_be_found(mutant.__name__, LeaseSchedule, search("leases", mutant.__name__, ENOUGH))


def test_a_mutant_that_no_longer_fits_the_kernel_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "advance", lambda _, another_argument: None)
    with pytest.raises(pytest.fail.Exception, match="outdated was not found in 30 schedules.*TypeError"):
        mutants.must_be_found("outdated", LeaseSchedule, range(30))
