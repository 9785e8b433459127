"""Every mutant fits the kernel: it takes the arguments of what it replaces, so that schedules can find it at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.kernel.journal.outcomes import Outcomes
from tests.support.simulation.fitting import all_mutants, misfits


@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.__name__)
def test_a_mutant_takes_the_arguments_of_what_it_replaces(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert misfits(mutant) == []


def test_a_missing_argument_is_named() -> None:
    def outdated(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Outcomes, "decide", lambda self, revision, unless, then: True)

    assert misfits(outdated) == ["Outcomes.decide: in_doubt"]
