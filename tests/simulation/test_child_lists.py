"""Lists of children in the node cache, which arriving revisions change, in random schedules; and the mutants they must find.

``HBASEMK_CHILD_LIST_SEEDS=first:last`` runs other schedules, as many as you like.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import proof
from tests.support.simulation.child_lists import ChildListSchedule
from tests.support.simulation.finding import must_be_found
from tests.support.simulation.known_seeds import search
from tests.support.simulation.mutants import reading
from tests.support.simulation.running import each_run

SEEDS = proof.seeds("HBASEMK_CHILD_LIST_SEEDS", sample=60, proof=600, chunk=180)
MUTANTS = [
    reading.a_changed_child_list_shown_in_older_views,
    reading.only_the_last_change_of_a_child_list_applied,
    reading.a_changed_child_list_kept_although_its_node_was_replaced,
]


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seeds", SEEDS)
def test_cached_lists_of_children_are_right(seeds: range) -> None:
    commits = 0
    for schedule in each_run("HBASEMK_CHILD_LIST_SEEDS", seeds, ChildListSchedule):
        commits += len(schedule.acknowledged)
    print(f"{commits} commits in {len(seeds)} schedules")
    assert len(seeds) < 50 or commits > 3 * len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(MUTANTS, sample=1))
def test_a_mutant_of_child_lists_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    must_be_found(mutant.__name__, ChildListSchedule, search("child lists", mutant.__name__, 5000))
