"""Workloads on numbers that transactions increment and adjust without reading them."""

from __future__ import annotations

from typing import Final

from hbasemk.testing.history.recorder import Attempt
from hbasemk.testing.history.records import SERIALIZABLE
from hbasemk.testing.history.worker import Worker
from hbasemk.testing.history.workloads.workload import Workload
from hbasemk.transaction import Isolation


class Counters(Workload):
    """Numbers that transactions increment without reading them."""

    name = "counters"
    count: Final = 2

    def see(self, attempt: Attempt, name: str) -> None:
        """Read a number."""
        attempt.counted(self.folder, name)

    def add(self, attempt: Attempt, name: str, bit: int) -> None:
        """Add a bit to a number."""
        attempt.count(self.folder, name, bit)

    def reads_before(self, worker: Worker) -> bool:  # noqa: ARG002 - for adjusts
        """Return whether the worker reads the numbers in the transaction that adds to them."""
        return False

    def turn(self, worker: Worker) -> None:
        """Add to one number or both, perhaps read them before; or read them."""
        generation = worker.generation()
        names = [f"g{generation}.{number}" for number in range(self.count)]

        def read(attempt: Attempt) -> None:
            for name in names:
                self.see(attempt, name)

        if worker.chance.random() < 0.25:
            worker.read(read, read)
            return
        chosen = worker.chance.choice((names[:1], names[1:], names))
        reads = self.reads_before(worker)

        def change(attempt: Attempt) -> None:
            for name in chosen:
                if reads:
                    self.see(attempt, name)
                self.add(attempt, name, worker.bit(generation))

        worker.transact(change)

    def read_all(self, attempt: Attempt) -> None:
        """Read all numbers."""
        for name in attempt.changes.properties(self.folder):
            self.see(attempt, name)


class Adjusts(Counters):
    """Numbers that transactions adjust: no adjust conflicts, and each snapshot shows exactly which ones it includes."""

    name = "adjusts"

    def see(self, attempt: Attempt, name: str) -> None:
        """Read a number."""
        attempt.adjusted(self.folder, name)

    def add(self, attempt: Attempt, name: str, bit: int) -> None:
        """Adjust a number by a bit."""
        attempt.adjust(self.folder, name, bit)

    def reads_before(self, worker: Worker) -> bool:
        """Return whether the worker reads the numbers in the transaction that adjusts them."""
        return worker.chance.random() < 0.3


class Ledger(Workload):
    """Numbers that serializable transactions adjust, reset and read beside a register."""

    name = "ledger"
    registers: Final = ("q", "r", "s", "t")
    isolation: Final[Isolation] = SERIALIZABLE

    def turn(self, worker: Worker) -> None:
        """Adjust, and read or set a register; set or read one, and reset or unset; or read the number and set one."""
        generation = worker.generation()
        number, register = f"g{generation}", f"r{generation}"
        how = worker.chance.choice(("adjust", "adjust", "adjust and set", "reset", "read", "unset"))

        def change(attempt: Attempt) -> None:
            if how.startswith("adjust"):
                if how == "adjust":
                    attempt.get(f"{self.folder}/r", register)
                else:
                    attempt.set(f"{self.folder}/q", register, attempt.tag())
                attempt.adjust(self.folder, number, worker.bit(generation))
            elif how == "reset":
                attempt.set(f"{self.folder}/r", register, attempt.tag())
                attempt.reset(self.folder, number, worker.bit(generation))
            elif how == "unset":
                attempt.get(f"{self.folder}/q", register)
                attempt.set(f"{self.folder}/t", register, attempt.tag())
                attempt.reset(self.folder, number)
            else:
                attempt.adjusted(self.folder, number)
                attempt.set(f"{self.folder}/s", register, attempt.tag())

        worker.transact(change, self.isolation)

    def prepare(self, attempt: Attempt) -> None:
        """Create the nodes of the registers, so that they conflict with nothing else."""
        super().prepare(attempt)
        for name in self.registers:
            attempt.changes.add(f"{self.folder}/{name}")

    def read_all(self, attempt: Attempt) -> None:
        """Read all numbers and registers."""
        for name in attempt.changes.properties(self.folder):
            attempt.adjusted(self.folder, name)
        for name in self.registers:
            attempt.get_all(f"{self.folder}/{name}")
