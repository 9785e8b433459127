"""Schedules about time: wrong and jumping clocks, pauses past the lease, held requests, several that recover and compact.

Besides what :mod:`tests.simulation.schedules` has, clocks are ten minutes off or jump by as much, a gateway lets requests
through long after it was given up (as long as their sender's recovery and the watermark's passing), and two processes do
nothing but recover, move the watermark and drop what it settles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from greenlet import getcurrent

from hbasemk.errors import LeaseLostError, StoreError, StoreUnknownError
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.journal import Arrival
from hbasemk.kernel.settings import Settings
from hbasemk.testing.history.simulated import LATE_LOOK
from hbasemk.testing.simulation import Actor, Simulator
from hbasemk.testing.trace import Step
from tests.simulation.schedules import Broken, Schedule, check_tables, store_like, tree

T = TypeVar("T")

MINUTES: Final = 600_000
FAULTS: Final = {"lost": 0.02, "refused": 0.01, "deaths": 0.004, "pauses": 0.01, "twice": 0.05, "jumps": 0.01}
HELD: Final = 0.02
LATE: Final = (500, 3_000, 40_000, 61_000, 63_000, 10**9)
"""After how many ms a held request is let through: the fresh instance begins after a minute, the last come at its end."""


class HoldingSimulator(Simulator):
    """A simulator whose gateway holds requests back and lets them through when nobody expects them."""

    held = 0.0

    def calm(self) -> None:
        """From now on nothing fails, and nothing more is held back."""
        super().calm()
        self.held = 0.0

    def __init__(self, seed: int, *, choices: Sequence[int] | None = None) -> None:
        super().__init__(seed, choices=choices, **store_like(seed))
        self.late: list[tuple[float, Callable[[], object]]] = []
        self.let_through = 0

    def let(self, until: float) -> None:
        """Let through what is due."""
        due = [one for one in self.late if one[0] <= until]
        self.late = [one for one in self.late if one[0] > until]
        for _, do in due:
            do()
            self.let_through += 1

    def step(self, actor: Actor, what: Step, do: Callable[[], T]) -> T:
        """One store call on one row, after what was held and is due."""
        self.let(self.ms)
        if getcurrent() is not self.main and what.writes and self.happens(self.held):
            self.late.append((self.ms + self.chance.choice(LATE), do))
            self._note(actor, what, "held by the gateway")
            raise StoreUnknownError(f"the gateway holds {what.method} back")
        return super().step(actor, what, do)


class LeaseSchedule(Schedule):
    """One run of a seed."""

    simulator_type: type[HoldingSimulator] = HoldingSimulator

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
        """How far off a process's clock is."""
        return self.simulator.chance.choice((0, 0, 0, 200, -200, MINUTES, -MINUTES))

    def opened(self, actor: Actor) -> Instance:
        """As the other schedules', noting the order of what arrives, which the instance itself forgets."""
        instance = super().opened(actor)
        self.watch(instance)
        return instance

    def watch(self, instance: Instance) -> None:
        """Note what an instance has seen, and sees."""
        came = self.came[id(instance)] = {made: number for number, made in enumerate(instance.journal)}

        def note(arrival: Arrival) -> None:
            came[arrival.revision] = arrival.position

        instance.journal.listeners.append(note)

    def keeper(self, actor: Actor) -> None:
        """Recovers, moves the watermark, compacts, and holds on to what it saw; never commits."""
        instance = self.opened(actor)
        for _ in range(8):
            actor.runtime.sleep(self.simulator.chance.choice((0.3, 0, 0.005, 2.6, 5)))
            with contextlib.suppress(StoreError, LeaseLostError):
                instance.poll()
                snapshot = instance.head()
                visible = frozenset(made for made in instance.journal if instance.journal.sees(snapshot, made))
                self.kept.append((instance, snapshot, tree(instance, snapshot), visible))
                instance.maintain()
                instance.recovery.advance()

    def run(self) -> None:
        """Run it and check everything; then let through what was held until the end, which must change nothing."""
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
        # Nor are they in anybody's way.
        fresh.commit(lambda _: [AddNode("/at-the-end", {})], "", retry_timeout=20, max_poll_age=0)
        self.simulator.ms += LATE_LOOK
        for one in (fresh, *self.live[:2]):
            one.poll()
            with contextlib.suppress(LeaseLostError):
                one.maintain()
            one.recovery.advance()
        check_tables(fresh, "tables, after what was held came", self.excused)

    def check(self, fresh_instance: Instance, but: Sequence[str] = ()) -> None:
        """After an hour: requests may have been held that long."""
        self.an_hour_later(fresh_instance)
        super().check(fresh_instance)

    def came_before(self, earlier: int, base: int) -> bool:
        """By the order that was noted; journals may have dropped it."""
        return any(base in came and came.get(earlier, -1) <= came[base] for came in self.came.values())
