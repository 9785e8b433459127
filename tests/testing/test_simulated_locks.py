"""The simulator's locks: processes that wait for each other's locks end the run with an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk.testing.simulation import Actor, SimulatedLock, Simulator


class Deadlock:
    """A simulator with two processes that take two locks in opposite orders."""

    def __init__(self) -> None:
        self.simulator = Simulator(0)
        first, second = self.locks = SimulatedLock(self.simulator), SimulatedLock(self.simulator)
        for name, one, other in (("p", first, second), ("q", second, first)):
            self.simulator.add(name, self.work(one, other))

    def work(self, one: SimulatedLock, other: SimulatedLock) -> Callable[[Actor], None]:
        def work(actor: Actor) -> None:
            with one:
                actor.runtime.sleep(0.01)
                with other:
                    pass

        return work


def test_processes_that_wait_for_each_others_locks_end_the_run_with_an_error() -> None:
    with pytest.raises(RuntimeError, match="2 threads wait for locks that none of them gives back"):
        Deadlock().simulator.run()


def test_the_caller_of_a_simulator_does_not_wait_for_a_lock_that_a_process_holds() -> None:
    deadlock = Deadlock()
    with pytest.raises(RuntimeError, match="2 threads wait"):
        deadlock.simulator.run()
    with pytest.raises(RuntimeError, match="a simulated process holds the lock"), deadlock.locks[0]:
        pass


def test_processes_that_take_locks_in_one_order_end() -> None:
    simulator = Simulator(0)
    one, other = SimulatedLock(simulator), SimulatedLock(simulator)
    ended = []

    def work(actor: Actor) -> None:
        with one:
            actor.runtime.sleep(0.01)
            with other:
                ended.append(actor.name)

    for name in "pqr":
        simulator.add(name, work)
    simulator.run()
    assert sorted(ended) == ["p", "q", "r"]
