"""Of several processes that merge or rebase one branch at the same time, one succeeds, and the others raise BranchError."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hbasemk import BranchError
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust, Operation
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import Settings
from hbasemk.testing.simulation import Actor, Simulator
from tests.support.branches import commit_on_branch

SEEDS = range(60)


class EndsAtOnce:
    """Three processes that end one branch, whose changes no other commit touches. Its first revision is not on the head."""

    def __init__(self, seed: int, change: Operation, ends: Sequence[str], *, transactions: bool) -> None:
        self.simulator = Simulator(seed, choices=None, transactions=transactions)
        first = self.simulator.add("first", lambda _: None).open(wanted=Settings(max_clock_skew_ms=500, lease_ms=2000))
        self._commit(first, AddNode("/a", {"n": 0}))
        self.branch = commit_on_branch(first, first.branches.begin(first.head()), [change])
        self._commit(first, AddNode("/other", {}))
        self.results: list[BranchError | None] = []
        for number, end in enumerate(ends):
            self.simulator.add(f"w{number}", self._work(end))

    def _commit(self, instance: Instance, *operations: Operation) -> None:
        instance.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)

    def _work(self, end: str) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            instance = actor.open()
            instance.poll()
            try:
                if end == "merge":
                    instance.branches.merge(self.branch, "")
                else:
                    rebase(instance.branches, self.branch, instance.head(), "")
                self.results.append(None)
            except BranchError as error:
                self.results.append(error)

        return work

    def run(self) -> None:
        """Run the schedule; raise the error of a process that was not a BranchError."""
        self.simulator.run()
        for actor in self.simulator.actors:
            if actor.error is not None:
                raise actor.error


@pytest.mark.parametrize("transactions", [False, True], ids=["steps", "transactions"])
@pytest.mark.parametrize("change", [AddNode("/x", {}), Adjust("/a", "n", 1)], ids=["node", "adjust"])
@pytest.mark.parametrize("ends", [("merge", "merge", "merge"), ("merge", "merge", "rebase")])
def test_one_of_the_ends_of_a_branch_succeeds(ends: Sequence[str], change: Operation, transactions: bool) -> None:
    for seed in SEEDS:
        run = EndsAtOnce(seed, change, ends, transactions=transactions)
        try:
            run.run()
            assert run.results.count(None) == 1
        except BaseException:
            print(f"seed {seed}")
            raise
