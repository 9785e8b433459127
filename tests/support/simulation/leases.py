"""Schedules about time: wrong clocks, pauses past the lease, delayed requests, concurrent recovery and compaction.

They add to :mod:`tests.support.simulation.schedules`. Clocks are ten minutes off or jump by as much. A gateway delivers requests
long after their timeout, even after recovery of their sender and after the watermark. Two processes only recover, move
the watermark and drop the positions below it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from greenlet import getcurrent

from hbasemk.errors import LeaseLostError, StoreError, StoreUnknownError
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.known_revisions import Arrival
from hbasemk.kernel.settings import Settings
from hbasemk.testing.history.simulated import LATE_SWEEP
from hbasemk.testing.simulation import Actor, Simulator
from hbasemk.testing.trace import Step
from tests.support.simulation.invariants import look_for_late_rows
from tests.support.simulation.schedules import Schedule, store_like
from tests.support.simulation.trees import Broken, check_tables, tree

T = TypeVar("T")

MINUTES: Final = 600_000
FAULTS: Final = {"lost": 0.02, "refused": 0.01, "deaths": 0.004, "pauses": 0.01, "twice": 0.05, "jumps": 0.01}
HELD: Final = 0.02
LATE: Final = (500, 3_000, 40_000, 61_000, 63_000, 10**9)
"""Delays of held requests in ms: the fresh instance begins after a minute, and the last ones arrive at its end."""


class HoldingSimulator(Simulator):
    """A simulator whose gateway delays requests past their timeout."""

    held = 0.0

    def calm(self) -> None:
        """Stop all faults and delays."""
        super().calm()
        self.held = 0.0

    def __init__(self, seed: int, *, choices: Sequence[int] | None = None) -> None:
        super().__init__(seed, choices=choices, **store_like(seed))
        self.late: list[tuple[float, Callable[[], object]]] = []
        self.let_through = 0

    def let(self, until: float) -> None:
        """Deliver the requests that are due."""
        due = [one for one in self.late if one[0] <= until]
        self.late = [one for one in self.late if one[0] > until]
        for _, do in due:
            do()
            self.let_through += 1

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """Run one store call on one row, after the delayed requests that are due."""
        self.let(self.ms)
        if getcurrent() is not self.main and what.writes and self.happens(self.held):
            self.late.append((self.ms + self.chance.choice(LATE), do))
            self._note(actor, what, "held by the gateway")
            raise StoreUnknownError(f"the gateway holds {what.method} back")
        return super().step(actor, what, do)


class LeaseSchedule(Schedule):
    """One run of a seed."""

    simulator_type: type[HoldingSimulator] = HoldingSimulator
    simulator: HoldingSimulator

    def __init__(self, seed: int, *, writers: int = 3, commits: int = 4, choices: Sequence[int] | None = None) -> None:
        simulator = self.simulator_type(seed, choices=choices)
        self.came: dict[int, dict[int, int]] = {}
        self.watch(self.begin(simulator, Settings(max_clock_skew_ms=500, lease_ms=2000), FAULTS))
        simulator.held = HELD
        simulator.jump_ms = MINUTES
        for number in range(writers):
            simulator.add(f"writer{number}", self.writer(number, range(commits)), skew_ms=self.skew())
        simulator.add("reader", lambda actor: self.reader(actor, 6), skew_ms=self.skew())
        for number in range(2):
            simulator.add(f"keeper{number}", self.keeper, skew_ms=self.skew())

    def skew(self) -> int:
        """Return the offset of a process's clock in ms."""
        return self.simulator.chance.choice((0, 0, 0, 200, -200, MINUTES, -MINUTES))

    def opened(self, actor: Actor) -> Instance:
        """Open an instance and record the order of its arrivals, which the instance itself drops."""
        instance = super().opened(actor)
        self.watch(instance)
        return instance

    def watch(self, instance: Instance) -> None:
        """Record the arrivals of an instance."""
        came = self.came[id(instance)] = {revision: number for number, revision in enumerate(instance.journal)}

        def note(arrivals: Sequence[Arrival]) -> None:
            came.update({arrival.revision: arrival.position for arrival in arrivals})

        instance.journal.listeners.append(note)

    def keeper(self, actor: Actor) -> None:
        """Recover, move the watermark, compact, and keep snapshots; never commit."""
        instance = self.opened(actor)
        for _ in range(8):
            actor.runtime.sleep(self.simulator.chance.choice((0.3, 0, 0.005, 2.6, 5)))
            with contextlib.suppress(StoreError, LeaseLostError):
                instance.poll()
                snapshot = instance.head()
                visible = frozenset(one for one in instance.journal if instance.journal.sees(snapshot, one))
                self.kept.append((instance, snapshot, tree(instance, snapshot), visible))
                instance.maintain()
                instance.recovery.advance()

    def run(self) -> None:
        """Run it and check everything; then deliver the remaining requests, which must change nothing."""
        super().run()
        trees = [tree(instance, instance.head()) for instance in self.live]
        self.simulator.let(10**15)
        for instance, seen in zip(self.live, trees, strict=True):
            if tree(instance, instance.head()) != seen:
                raise Broken("I8: late cells show")
            instance.poll()
            if tree(instance, instance.head()) != seen:
                raise Broken("I8: late cells show after a poll")
        fresh = self.simulator.add("fresh", lambda _: None).open()
        if tree(fresh, fresh.head()) != trees[0]:
            raise Broken("I8: late cells show to who begins then")
        # They do not block later commits either.
        fresh.commit(lambda _: OperationList([AddNode("/at-the-end", {})]), "", retry_timeout=20, max_poll_age=0)
        self.simulator.ms += LATE_SWEEP
        for one in (fresh, *self.live[:2]):
            one.poll()
            with contextlib.suppress(LeaseLostError):
                one.maintain()
            one.recovery.advance()
        check_tables(fresh, "tables, after what was held came", self.excused)

    def check(self, fresh_instance: Instance, but: Sequence[str] = ()) -> None:
        """Check after an hour: requests may have been delayed that long."""
        look_for_late_rows(self.simulator, fresh_instance)
        super().check(fresh_instance)

    def came_before(self, earlier: int, base: int) -> bool:
        """Compare by the recorded order; journals may have dropped it."""
        return any(base in came and came.get(earlier, -1) <= came[base] for came in self.came.values())
