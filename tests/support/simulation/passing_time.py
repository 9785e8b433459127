"""Two writers with at most two switches between them, and a pause past the lease at each switch.

The other interleavings need no time. Here the one that is stopped may find that its lease is over, that others have recovered
its revision, and that the watermark has passed it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pytest
from greenlet import getcurrent

from hbasemk.errors import LeaseLostError
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.testing.simulation import Actor, Died, SimulatedLock
from hbasemk.testing.stepped import SteppedSimulator
from tests.support.simulation.allowed import Allowed, Tree
from tests.support.simulation.interleavings import Known, Run
from tests.support.simulation.trees import Broken, tree
from tests.support.simulation.writers import Prepared, prepare

PAUSE_MS: Final = 4_000
"""More than the lease and the allowed skew."""


class Way(NamedTuple):
    """The kind of the store, and whether the monotonic clock of a paused process stands still meanwhile."""

    transactions: bool
    parallel: bool
    batch_rows: int
    stands_still: bool


WAYS: Final = {
    "as on HBase": Way(transactions=False, parallel=True, batch_rows=1000, stands_still=False),
    "as on HBase, paused machines": Way(transactions=False, parallel=True, batch_rows=1000, stands_still=True),
    "one transaction each, paused machines": Way(transactions=True, parallel=False, batch_rows=1000, stands_still=True),
    "step by step on SQLite": Way(transactions=True, parallel=False, batch_rows=1, stands_still=False),
    "step by step on SQLite, paused machines": Way(transactions=True, parallel=False, batch_rows=1, stands_still=True),
}


class TimedSimulator(SteppedSimulator):
    """A stepped simulator in which a process that sleeps lets time pass, and continues."""

    def switch(self, seconds: float = 0.0, lock: SimulatedLock | None = None) -> None:
        """Let time pass."""
        if getcurrent() is not self.main:
            if self.over:
                raise Died
            if lock is not None:
                raise AssertionError("a stepped process must have one thread")
        self.ms += seconds * 1000


class TimedRun(Run):
    """Two writers, and a keeper that recovers and moves the watermark during each pause.

    The keeper and an instance that opens then hold their snapshots, which must not change.
    """

    simulator_type = TimedSimulator

    def __init__(self, prepared: Prepared, kinds: Sequence[str], skews: Sequence[int], *, stands_still: bool) -> None:
        super().__init__(prepared, kinds, skews)
        self._stands_still = stands_still
        self.keeper = self.simulator.add("keeper", lambda _: None).open()
        self._held: list[tuple[Instance, View, Tree]] = []

    def go(self, order: tuple[int, int, int]) -> tuple[int, int]:
        """Run both to the end; return how many steps each made."""
        self.simulator.prepare()
        return self.simulator.run_with_switches(order, self._pause)

    def _pause(self, paused: Actor) -> None:
        self.simulator.ms += PAUSE_MS
        if self._stands_still:
            paused.missed_ms += PAUSE_MS
        self._keep()
        newcomer = self.simulator.add("newcomer", lambda _: None).open()
        for instance in (self.keeper, newcomer):
            view = instance.head()
            self._held.append((instance, view, tree(instance, view)))

    def _keep(self) -> None:
        with contextlib.suppress(LeaseLostError):
            self.keeper.poll()
            self.keeper.maintain()
            self.keeper.recovery.advance()

    def _must_know(self, instance: Instance, revision: int) -> bool:
        """Return False for what the watermark had passed when the instance started: it has no position, but must be visible."""
        if revision > instance.journal.floor:
            return True
        if not instance.journal.sees(instance.head(), revision):
            raise Broken(f"I3, I7: {revision:016x} is committed and is not visible")
        return instance.journal.knows(revision)

    def check(self, allowed: Allowed, known: Known | None = None) -> None:  # type: ignore[override]
        """Check as the base class, after all leases."""
        for _ in range(2):
            self.simulator.ms += PAUSE_MS
            self._keep()
            for instance in self.instances:
                with contextlib.suppress(LeaseLostError):
                    instance.poll()
                    instance.maintain()
        for instance, view, found in self._held:
            if tree(instance, view) != found:
                raise Broken(f"I5: the tree at {view.revision:016x} has changed")
        # A process that finds its lease over may give up. If both do, nothing is left to check.
        if any(isinstance(ended, int) for ended in self.ended):
            super().check(allowed, known)


def runs(prepared: Prepared, kinds: Sequence[str], way: Way, stride: int = 1) -> Iterator[TimedRun]:
    """Yield a run for each pair of moments at which the processes are switched, or every ``stride``-th of these."""
    for first in range(2):
        ends = made = 0
        while ends <= made:
            others = others_made = ends % stride
            while others <= others_made:
                run = TimedRun(prepared, kinds, (0, 1), stands_still=way.stands_still)
                made, others_made = run.go((first, ends, others))
                yield run
                run.simulator.end()
                others += stride
            ends += 1


def explore_with_pauses(kinds: Sequence[str], way: Way, stride: int = 1) -> int:
    """Check all runs; return their number. Raise Broken, and print the trace, if a tree is not allowed."""
    prepared = prepared_for(way)
    allowed = Allowed(prepared, kinds)
    count = 0
    for run in runs(prepared, kinds, way, stride):
        count += 1
        try:
            run.check(allowed)
        except Broken:
            print("\n".join(run.simulator.trace))
            raise
    return count


def must_be_found_with_pauses(
    mutant: Callable[[pytest.MonkeyPatch], None], kinds: Sequence[str], way: Way, patch: pytest.MonkeyPatch
) -> None:
    """Check runs with a mutant until one is not allowed; fail the test if all are."""
    prepared = prepared_for(way)
    allowed = Allowed(prepared, kinds)
    for writers in ((0,), (1,), (0, 1)):
        # Before the mutant changes the kernel.
        allowed(writers)
    mutant(patch)
    for number, run in enumerate(runs(prepared, kinds, way)):
        try:
            run.check(allowed)
        except Broken as error:
            if error.__cause__ is None:
                print(f"{mutant.__name__} was found in run {number}: {str(error)[:100]}")
                return
    pytest.fail(f"{mutant.__name__} was not found")


def prepared_for(way: Way) -> Prepared:
    """Return the initial state on a store of this kind."""
    return prepare(way.parallel, adjusts=True, transactions=way.transactions, batch_rows=way.batch_rows)
