"""Histories of simulated runs: a seed decides the workload's choices, every interleaving and every fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hbasemk.errors import HbasemkError, StoreError
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.periodic_work import SWEEP_EVERY
from hbasemk.kernel.settings import Settings
from hbasemk.testing.history.anomalies import Anomaly
from hbasemk.testing.history.recorder import Attempt, Moments
from hbasemk.testing.history.records import SERIALIZABLE, History, Transaction
from hbasemk.testing.history.resolve_outcomes import judge
from hbasemk.testing.history.worker import Worker
from hbasemk.testing.history.workloads.workload import Workload
from hbasemk.testing.simulation import FAULTS, START_MS, Actor, Died, Simulator
from hbasemk.transaction import Isolation

SHORT: Final = Settings(max_clock_skew_ms=500, lease_ms=2000)
LEFT: Final = 60_000
"""Simulated ms after which every lease has expired."""
LATE_SWEEP: Final = int(SWEEP_EVERY * 1000) + 1000
"""Simulated ms after which an instance has searched for rows that came too late for any poll."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of one run.

    ``fresh_instance`` resolved its outcomes, ``insisted`` holds the calls that retried conflicts, and ``opened`` the time at
    which the opening of each instance began.
    """

    history: History
    anomalies: list[Anomaly]
    simulator: Simulator
    fresh_instance: Instance
    insisted: list[str]
    opened: Mapping[str, float]

    def explain(self) -> str:
        """Return the counterexamples."""
        return "\n\n".join(anomaly.explain(self.history) for anomaly in self.anomalies)

    def refused(self) -> list[str]:
        """Return the calls that should have committed without failures, and did not.

        These are the calls that retry after conflicts, and the calls without a rival that wrote what they wrote or read.
        """
        through = {one.call for one in self.history if one.outcome == "committed"}
        alone = [one.call for one in self.history if one.call not in through and not self._rivals(one)]
        return sorted({*self.insisted, *alone} - through)

    def _rivals(self, one: Transaction) -> bool:
        """Return whether another call met it after its instance was opened and read their state.

        On an older snapshot the rival may be in the same instance.
        """
        # Not its first transaction: what committed between the two may be missing in the instance's head.
        opened = self.opened.get(one.instance, float("-inf"))
        return any(
            other.writes
            and (other.instance != one.instance or (not one.ordered and other.call != one.call))
            and (other.ended is None or other.ended > opened)
            and _overlap(one, other)
            for other in self.history
        )


def _overlap(one: Transaction, other: Transaction) -> bool:
    """Return whether one of two transactions may lose to the other: they used the same key.

    A serializable transaction depends on whole nodes, so any property of the same node is enough if one of the two is
    serializable (``docs/decisions/0012-serializable.md``).
    """
    part: Callable[[str], str] = _node if SERIALIZABLE in (one.isolation, other.isolation) else str
    return not {part(operation.key) for operation in one.operations}.isdisjoint(
        part(operation.key) for operation in other.operations
    )


def _node(key: str) -> str:
    """Return the path of a key's node."""
    return key.partition("#")[0]


class Run:
    """One run of workloads: ``writers`` processes with ``turns`` transactions each, and one that starts later.

    ``choices`` replays a run, complete or shrunk (:func:`hbasemk.testing.choices.shrink`). ``transactions``, ``parallel`` and
    ``batch_rows`` are those of :class:`~hbasemk.testing.simulation.Simulator`.
    """

    def __init__(
        self,
        seed: int,
        workloads: Sequence[Workload],
        *,
        faults: bool = True,
        writers: int = 3,
        turns: int = 5,
        weakened: Isolation | None = None,
        choices: Sequence[int] | None = None,
        transactions: bool = False,
        parallel: bool = False,
        batch_rows: int = 1000,
    ) -> None:
        chances = FAULTS if faults else {}
        self.simulator = Simulator(
            seed, choices=choices, transactions=transactions, parallel=parallel, batch_rows=batch_rows, **chances
        )
        self.workloads = workloads
        self.turns = turns
        self.weakened = weakened
        self.lines: list[Transaction] = []
        self.workers: list[tuple[Actor, Worker]] = []
        self.opened: dict[str, float] = {}
        self._moments = Moments(lambda: (self.simulator.ms - START_MS) / 1000)
        first = self.simulator.add("setup", lambda _: None)
        self._worker(first, first.open(wanted=SHORT)).prepare(self._prepare)
        for number in range(writers):
            skew = self.simulator.chance.choice((0, 0, -200, 200))
            self.simulator.add(f"w{number}", self._work(0.0), skew_ms=skew)
        self.simulator.add("late", self._work(self.simulator.chance.choice((0.5, 3.0))))

    def _prepare(self, attempt: Attempt) -> None:
        for workload in self.workloads:
            workload.prepare(attempt)

    def _worker(self, actor: Actor, instance: Instance) -> Worker:
        made = Worker(
            actor.name,
            instance,
            self.lines.append,
            self._moments,
            self.simulator.chance,
            number=len(self.workers),
            weakened=self.weakened,
        )
        self.workers.append((actor, made))
        return made

    def _work(self, after: float) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            actor.runtime.sleep(after)
            self.opened[actor.name] = self._moments()
            worker = self._worker(actor, self._opened(actor))
            chance = self.simulator.chance
            for _ in range(self.turns):
                chance.choice(self.workloads).turn(worker)
                if chance.random() < 0.3:
                    worker.maintain()
                if chance.random() < 0.2:
                    worker.sleep(chance.choice((0.001, 0.05, 1.0)))

        return work

    def _opened(self, actor: Actor) -> Instance:
        while True:
            try:
                return actor.open()
            except StoreError:
                actor.runtime.sleep(0.1)

    def finish(self) -> Simulated:
        """Run to the end, resolve pending outcomes in a later instance, let every instance read everything, and check.

        Raises the error of a simulated process, unless the simulator caused it.
        """
        simulator = self.simulator
        simulator.run()
        for actor in simulator.actors:
            if actor.error is not None and not isinstance(actor.error, Died):
                raise actor.error
        simulator.calm()
        simulator.ms += LEFT
        last = simulator.add("fresh_instance", lambda _: None)
        fresh_instance = self._worker(last, last.open())
        fresh_instance.instance.clock.next(0)
        self._resolve_pending(fresh_instance.instance)
        for actor, worker in self.workers:
            if not isinstance(actor.error, Died):
                self._read_all(worker)
        history, anomalies = judge(History(self.lines), fresh_instance.instance)
        insisted = [call for _, worker in self.workers for call in worker.insisted]
        return Simulated(history, anomalies, simulator, fresh_instance.instance, insisted, self.opened)

    def _resolve_pending(self, fresh_instance: Instance) -> None:
        fresh_instance.maintain()
        # Another instance sweeps a losing revision only after its writer's lease has expired.
        self.simulator.ms += SHORT.lease_ms + SHORT.max_clock_skew_ms + 100
        fresh_instance.poll()
        fresh_instance.maintain()
        fresh_instance.poll()
        self.simulator.ms += LATE_SWEEP
        fresh_instance.maintain()
        fresh_instance.poll()
        for _, worker in self.workers:
            for revision in worker.unknown:
                if fresh_instance.outcome(int(revision, 16)) is Outcome.PENDING:
                    raise HbasemkError(f"revision {revision} is still pending after its writer's lease has expired")

    def _read_all(self, worker: Worker) -> None:
        polled = self._moments()
        worker.instance.poll()
        attempt = Attempt(worker, worker.instance.head(), worker.tag(), "snapshot")
        for workload in self.workloads:
            workload.read_all(attempt)
        attempt.record("committed", polled=polled)
