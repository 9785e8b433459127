"""Workloads on single properties: registers and lists."""

from __future__ import annotations

from typing import Final

from hbasemk.testing.history.recorder import Attempt
from hbasemk.testing.history.worker import Worker
from hbasemk.testing.history.workloads.workload import Workload


class Registers(Workload):
    """A few properties of two nodes: read and written in any combination, blindly, twice, and with the same value."""

    name = "registers"
    places: Final = (("m", "x"), ("m", "y"), ("n", "x"), ("n", "y"))

    def prepare(self, attempt: Attempt) -> None:
        """Create two nodes; all properties but one have a first value."""
        super().prepare(attempt)
        for node in ("m", "n"):
            attempt.changes.add(f"{self.folder}/{node}")
        for node, name in self.places[:-1]:
            attempt.set(f"{self.folder}/{node}", name, attempt.tag())

    def turn(self, worker: Worker) -> None:
        """Change one or two properties, perhaps reading others; or read all."""
        chance = worker.chance
        if chance.random() < 0.3:
            worker.read(self._read_some, again=self.read_all)
            return
        actions = {chance.choice(self.places): chance.choice("rwbbtsu") for _ in range(chance.choice((1, 2, 3)))}

        def change(attempt: Attempt) -> None:
            for (node, name), how in actions.items():
                path = f"{self.folder}/{node}"
                if how in "su":
                    attempt.repeat(path, name, attempt.tag() if how == "u" else None)
                    continue
                if how in "rb":
                    attempt.get(path, name)
                if how != "r":
                    attempt.set(path, name, attempt.tag())
                if how == "t":
                    attempt.set(path, name, attempt.tag())

        worker.transact(change)

    def _read_some(self, attempt: Attempt) -> None:
        for node, name in self.places[1:3]:
            attempt.get(f"{self.folder}/{node}", name)

    def read_all(self, attempt: Attempt) -> None:
        """Read all properties."""
        for node, name in self.places:
            attempt.get(f"{self.folder}/{node}", name)


class Lists(Workload):
    """Arrays to which transactions append ids: they read, extend and write them."""

    name = "lists"
    count: Final = 2

    def turn(self, worker: Worker) -> None:
        """Append to one array or to both, or read them."""
        names = [f"g{worker.generation()}.{number}" for number in range(self.count)]
        if worker.chance.random() < 0.25:
            worker.read(lambda attempt: _get(attempt, self.folder, names), self.read_all)
            return
        chosen = worker.chance.choice((names[:1], names[1:], names))

        def change(attempt: Attempt) -> None:
            for name in chosen:
                before = attempt.get(self.folder, name)
                attempt.set(self.folder, name, (*(before if isinstance(before, tuple) else ()), attempt.tag()))

        worker.transact(change)

    def read_all(self, attempt: Attempt) -> None:
        """Read all arrays."""
        attempt.get_all(self.folder)


def _get(attempt: Attempt, path: str, names: list[str]) -> None:
    for name in names:
        attempt.get(path, name)
