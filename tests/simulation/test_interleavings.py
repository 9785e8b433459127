"""All interleavings of two writers, one commit each, for all pairs of operations; three writers with few preemptions.

Without settings some of the triples are run, with one preemption; ``HBASEMK_INTERLEAVINGS=triples`` runs all of them with up
to two (an hour of CPU), or as many as ``HBASEMK_PREEMPTIONS`` says.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

from tests.support import proof
from tests.support.simulation.allowed import Allowed
from tests.support.simulation.interleavings import ENOUGH, WAYS, Explored, explore
from tests.support.simulation.known_seeds import search
from tests.support.simulation.mutants import outcomes, read_back
from tests.support.simulation.trees import Broken
from tests.support.simulation.writers import KINDS, prepare

WHICH = os.environ.get("HBASEMK_INTERLEAVINGS", "")
PREEMPTIONS = int(os.environ.get("HBASEMK_PREEMPTIONS", "2" if WHICH == "triples" else "1"))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("kinds", "way"), proof.pairs(KINDS, WAYS, sample=7))
def test_two_writers_in_every_interleaving(kinds: tuple[str, str], way: str) -> None:
    print(explore(kinds, way))


FOUND_BY_ORDER_ALONE = [
    read_back.no_read_back,
    read_back.read_back_before_writing,
    read_back.higher_pending_ignored,
    read_back.lower_ignored,
    outcomes.aborting_without_compare_and_set,
    read_back.deleted_not_read_back,
    read_back.last_revision_not_read_back,
    read_back.child_not_read_back,
    read_back.names_not_kept_apart,
    read_back.changes_without_effect_rely_on_nothing,
    outcomes.pending_taken_for_aborted,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", proof.mutants(FOUND_BY_ORDER_ALONE, sample=3))
def test_a_mutant_is_found_by_the_order_of_steps_alone(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare()
    runs = 0
    pairs = list(itertools.combinations_with_replacement(KINDS, 2))
    for number in search("pairs", mutant.__name__, len(pairs)):
        kinds = pairs[number]
        with monkeypatch.context() as patch:
            allowed = Allowed(prepared, kinds)
            for one in range(2):
                allowed((one,))
            allowed((0, 1))
            mutant(patch)
            for run in itertools.islice(Explored(prepared, kinds, (0, 1)), ENOUGH):
                runs += 1
                try:
                    run.check(allowed)
                except Broken as error:
                    if error.__cause__ is not None:
                        # A process ended with a built-in Python error: that breaks no invariant.
                        continue
                    print(
                        f"{mutant.__name__} was found in run {runs}, pair {number}, {' and '.join(kinds)}: {str(error)[:80]}"
                    )
                    return
    pytest.fail(f"{mutant.__name__} was not found in {runs} runs")


ALL_TRIPLES = list(itertools.combinations_with_replacement(KINDS, 3))
TRIPLES = [
    ("increment", "increment", "increment"),
    ("add", "remove subtree", "set"),
    ("move", "add", "remove subtree"),
    ("re-add", "re-add", "re-add"),
    ("set", "set", "increment"),
    ("expect one, set other", "expect other, set one", "expect none, unset"),
    ("expect it, add", "expect none, unset", "old base, expecting"),
    ("expect one, set other", "remove leaf", "expect other, set one"),
    *ALL_TRIPLES[20::40],
]
"""The proof runs the first ones and every fourth of the others; the long proof runs all."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "kinds",
    proof.sampled(
        ALL_TRIPLES if WHICH == "triples" else TRIPLES,
        lambda position, _: position < 3,
        ", ".join,
        is_long=lambda position, _: position >= 8 and position % 4 > 0,
    ),
)
def test_three_writers_with_few_preemptions(kinds: tuple[str, ...]) -> None:
    prepared = prepare()
    explored = Explored(prepared, kinds, (0, 1, 0), PREEMPTIONS)
    explored.check(Allowed(prepared, kinds))
    print(f"{', '.join(kinds)}, up to {PREEMPTIONS} preemptions: {explored}")
