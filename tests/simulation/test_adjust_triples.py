"""Three writers with two preemptions, for triples of operations with adjusts and expected versions.

There are 2,300 triples. The proof runs some of them that have names here, and a random sample for 20 s of CPU time; the long
proof runs all. ``HBASEMK_TRIPLES=all`` in the environment runs all, too; ``HBASEMK_TRIPLES=seed`` repeats a random sample.

An operation that only expects a version writes nothing. So a triple with it leaves no tree that a pair does not leave. It shows
only that the operation commits beside no other writers than it may. The other 2,024 triples are all different: no two operations
write and depend on the same columns in the same way.
"""

from __future__ import annotations

import itertools
import os
import random
import time

import pytest

from tests.support import proof
from tests.support.simulation import adjust_mutants
from tests.support.simulation.interleavings import explore_three, must_be_found_beside
from tests.support.simulation.writers import ADJUST_KINDS, EXPECT_KINDS

ALL_KINDS = [*ADJUST_KINDS, *EXPECT_KINDS]
ALL = list(itertools.combinations_with_replacement(ALL_KINDS, 3))
NAMED = [
    ("adjust", "adjust, on an old base", "set a number"),
    ("first adjust", "first adjust", "unset a number"),
    ("first adjust", "first adjust", "add a child of the name"),
    ("merge adjusts", "rebase and merge adjusts", "adjust"),
    ("expect the node, adjust it", "adjust", "fold"),
    ("adjust", "copy the node", "expect the node, set another"),
    # A writer sees one of the two others.
    ("set and adjust", "unset a number", "expect the node, adjust it"),
    ("set and adjust", "read it, serializable", "expect the node, adjust it"),
    ("first adjust", "unset a number", "copy the node"),
]
CHOSEN = os.environ.get("HBASEMK_TRIPLES", "")
SECONDS = 20.0


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kinds", proof.sampled(NAMED, lambda position, _: position == 0, ", ".join))
def test_three_writers_with_two_preemptions(kinds: tuple[str, ...]) -> None:
    print(f"{', '.join(kinds)}: {explore_three(kinds)}")


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seconds", proof.sizes(None, None, SECONDS))
def test_three_random_writers_with_two_preemptions(seconds: float) -> None:
    seed = int(CHOSEN) if CHOSEN.isdecimal() else random.SystemRandom().getrandbits(32)
    print(f"repeat with HBASEMK_TRIPLES={seed}", flush=True)
    chosen = random.Random(seed).sample(ALL, len(ALL))
    end = time.process_time() + seconds
    done = 0
    while done == 0 or time.process_time() < end:
        print(f"{', '.join(chosen[done])}: {explore_three(chosen[done])}", flush=True)
        done += 1
    print(f"{done} of {len(ALL)} triples")


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "first",
    ALL_KINDS if CHOSEN == "all" else [pytest.param(one, marks=proof.LONG) for one in ALL_KINDS],
)
def test_all_triples_of_writers_with_two_preemptions(first: str) -> None:
    for kinds in ALL:
        if kinds[0] == first:
            print(f"{', '.join(kinds)}: {explore_three(kinds)}", flush=True)


FOUND_BESIDE_TWO = [
    (adjust_mutants.base_without_subtraction, ("set and adjust", "unset a number", "expect the node, adjust it")),
    (adjust_mutants.slots_not_expected, ("set and adjust", "read it, serializable", "expect the node, adjust it")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "kinds"), FOUND_BESIDE_TWO, ids=[mutant.__name__ for mutant, _ in FOUND_BESIDE_TWO])
def test_a_mutant_of_adjust_is_found_by_three_writers(
    mutant: adjust_mutants.Mutant, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_be_found_beside(mutant, kinds, monkeypatch, adjusts=True)
