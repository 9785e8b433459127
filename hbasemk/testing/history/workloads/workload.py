"""The interface of a workload of a history."""

from __future__ import annotations

from collections.abc import Iterator

from hbasemk.testing.history.anomalies import Anomaly
from hbasemk.testing.history.recorder import Attempt
from hbasemk.testing.history.records import History, Read, Transaction, Value
from hbasemk.testing.history.worker import Worker


class Workload:
    """A kind of transaction on the folder ``/<name>``."""

    name: str

    def __init__(self) -> None:
        self.folder = f"/{self.name}"

    def prepare(self, attempt: Attempt) -> None:
        """Create the nodes that the transactions need, once, before the first transaction."""
        attempt.changes.add(self.folder)

    def turn(self, worker: Worker) -> None:
        """Run one transaction."""
        raise NotImplementedError(f"{type(self).__name__} has no transactions")

    def read_all(self, attempt: Attempt) -> None:
        """Read all data at the end."""
        raise NotImplementedError(f"{type(self).__name__} does not read")

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Return the violations of the workload's own rules, which need no graph."""
        del history
        return iter(())


def first_reads(one: Transaction) -> dict[str, Value]:
    """Return the transaction's reads from its snapshot."""
    found: dict[str, Value] = {}
    for operation in one.operations:
        if isinstance(operation, Read):
            found.setdefault(operation.key, operation.value)
    return found
