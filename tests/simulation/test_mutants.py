"""Mutants that neither schedules nor histories find, with the scenario of two processes that finds each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from hbasemk.errors import HbasemkError
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.testing.simulation import Actor, Simulator
from tests.support.branches import commit_on_branch
from tests.support.simulation.interleavings import must_be_found_beside
from tests.support.simulation.mutants import branches, read_back

SEEDS = 200


class Race:
    """Two processes commit to, or rebase, the same revision of one branch."""

    def __init__(self, seed: int) -> None:
        self.simulator = simulator = Simulator(seed)
        instance = simulator.add("first", lambda _: None).open()
        instance.commit(lambda _: OperationList([AddNode("/a", {"p": 0})]), "", retry_timeout=9, max_poll_age=0)
        self.root = instance.branches.begin(instance.head())
        instance.commit(lambda _: OperationList([SetProperty("/a", "q", 1)]), "", retry_timeout=9, max_poll_age=0)
        self.through: list[int] = []
        kinds: list[Callable[[Actor], int]] = [self._commits, self._rebases]
        for number in range(2):
            simulator.add(f"w{number}", self._work(simulator.chance.choice(kinds)))

    def _work(self, kind: Callable[[Actor], int]) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            with contextlib.suppress(HbasemkError):
                self.through.append(kind(actor))

        return work

    def _commits(self, actor: Actor) -> int:
        instance = actor.open()
        return commit_on_branch(instance, self.root, [SetProperty("/a", "p", actor.name)])

    def _rebases(self, actor: Actor) -> int:
        instance = actor.open()
        return rebase(instance.branches, self.root, instance.head(), "")

    def run(self) -> None:
        """Raise the error that ended a process, other than a conflict."""
        self.simulator.run()
        for actor in self.simulator.actors:
            if actor.error is not None:
                raise actor.error


def test_one_of_two_commits_on_the_same_branch_revision_succeeds() -> None:
    for seed in range(SEEDS):
        race = Race(seed)
        race.run()
        assert len(race.through) == 1, f"seed {seed}: {race.through}"


def test_heads_moved_without_a_compare_and_set_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    branches.branch_heads_without_compare_and_set(monkeypatch)
    for seed in range(SEEDS):
        race = Race(seed)
        race.run()
        if len(race.through) == 2:
            print(f"found by seed {seed}")
            return
    pytest.fail(f"not found in {SEEDS} races")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [
        (read_back.child_lists_not_read_back, ("serializable list", "serializable add")),
        (read_back.expectations_not_depended_on, ("expect one, set other", "expect other, set one")),
        (read_back.expectations_not_depended_on, ("expect other, set one", "old base, expecting")),
        (read_back.expected_absence_not_depended_on, ("expect none, unset", "expect it, add")),
    ],
)
def test_reads_not_read_back_are_found(
    mutant: Callable[[pytest.MonkeyPatch], None], kinds: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    must_be_found_beside(mutant, kinds, monkeypatch)
