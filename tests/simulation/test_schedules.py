"""The kernel in random schedules that one seed decides, and sabotages of it that must be found.

``HBASEMK_SIM_SEEDS=first:last`` runs other schedules, as many as you like.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.kernel import changeset, schema
from hbasemk.kernel.cache import NodeCache
from hbasemk.kernel.clock import IdClock
from hbasemk.kernel.commit import Committer
from hbasemk.kernel.journal import Journal
from hbasemk.kernel.outcome import Outcome, Outcomes
from hbasemk.store.abc import NewCell, Put
from tests.simulation.schedules import Broken, Schedule

FIRST, LAST = (int(part) for part in os.environ.get("HBASEMK_SIM_SEEDS", "0:1000").split(":"))


@pytest.mark.slow
@pytest.mark.parametrize("faults", [False, True], ids=["without faults", "with faults"])
def test_every_schedule_keeps_the_invariants(faults: bool) -> None:
    for seed in range(FIRST, LAST):
        schedule = Schedule(seed, faults=faults)
        try:
            schedule.run()
        except BaseException:
            print(f"repeat with HBASEMK_SIM_SEEDS={seed}:{seed + 1}, {'with' if faults else 'without'} faults")
            print("\n".join(schedule.simulator.trace[-200:]))
            raise


def test_a_seed_gives_the_same_run_call_by_call() -> None:
    for seed in range(20):
        one, two = Schedule(seed), Schedule(seed)
        one.run()
        two.run()
        assert one.simulator.trace == two.simulator.trace


def no_read_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "_read_back", lambda *_: None)


def bound_too_high(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "low_bound_for", lambda self, _: self.highest_seen + 1)


def put_for_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    def decide(self: Outcomes, which: int, _: object, then: Any) -> bool:
        self._store.write(schema.JOURNAL, [Put(schema.revision_key(which), [NewCell(*then, schema.YES)])])
        return True

    patch.setattr(Outcomes, "decide", decide)


def aborting_without_asking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outcomes, "abort_other", lambda *_: Outcome.ABORTED)


def ids_without_what_was_seen(patch: pytest.MonkeyPatch) -> None:
    original = IdClock._candidate
    patch.setattr(IdClock, "_candidate", lambda self, _, branch: original(self, 0, branch))


def cache_not_invalidated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeCache, "arrived", lambda *_: None)


def deleted_not_read_back(patch: pytest.MonkeyPatch) -> None:
    original = changeset._plan

    def plan(node: Any) -> Any:
        row, change = original(node)
        row.relied.pop(schema.DELETED, None)
        return row, change

    patch.setattr(changeset, "_plan", plan)


def last_revision_not_read_back(patch: pytest.MonkeyPatch) -> None:
    original = changeset._plan

    def plan(node: Any) -> Any:
        row, change = original(node)
        row.relied.pop(schema.LAST_REVISION, None)
        return row, change

    patch.setattr(changeset, "_plan", plan)


def pending_taken_for_aborted(patch: pytest.MonkeyPatch) -> None:
    original = Outcomes.of_many

    def of_many(self: Outcomes, asked: Any) -> Any:
        found = original(self, asked)
        return {one: Outcome.ABORTED if how is Outcome.PENDING else how for one, how in found.items()}

    patch.setattr(Outcomes, "of_many", of_many)


def roll_back_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = Outcomes._sweep
    patch.setattr(Outcomes, "_sweep", lambda self, which, _, by: original(self, which, (), by))


def poll_bound_too_high(patch: pytest.MonkeyPatch) -> None:
    original = Journal._raise_low_bound

    def raise_it(self: Journal, began: float, found: Any) -> None:
        original(self, began, found)
        self._low_bound = max(self._low_bound, found.highest)

    patch.setattr(Journal, "_raise_low_bound", raise_it)


SABOTAGES = [
    no_read_back,
    bound_too_high,
    put_for_compare_and_set,
    aborting_without_asking,
    ids_without_what_was_seen,
    cache_not_invalidated,
    deleted_not_read_back,
    last_revision_not_read_back,
    pending_taken_for_aborted,
    roll_back_forgotten,
    poll_bound_too_high,
]


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda one: one.__name__)
def test_a_sabotage_of_the_kernel_is_found(
    sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    for seed in range(4000):
        try:
            Schedule(seed, faults=seed % 2 == 1).run()
        except Broken as error:
            print(f"{sabotage.__name__} was found by schedule {seed}: {str(error)[:100]}")
            return
    pytest.fail(f"{sabotage.__name__} was not found in 4000 schedules")
