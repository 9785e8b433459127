"""The workload of commits that expect versions: registers that are compared and set, judged linearizable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hbasemk.testing.history.anomalies import Anomaly, Kind
from hbasemk.testing.history.recorder import Attempt
from hbasemk.testing.history.records import SNAPSHOT, History, Transaction, Value, Write
from hbasemk.testing.history.worker import Worker
from hbasemk.testing.history.workloads.workload import Workload, first_reads


class Versions(Workload):
    """Registers that transactions compare and set by the node's version, and others that are guarded by another node."""

    name = "versions"
    nodes: Final = ("m", "n")
    register: Final = "register"
    guarded: Final = "guarded"
    child: Final = "child"

    def prepare(self, attempt: Attempt) -> None:
        """Create two nodes with both properties."""
        super().prepare(attempt)
        for node in self.nodes:
            attempt.changes.add(f"{self.folder}/{node}")
            for name in (self.register, self.guarded):
                attempt.set(f"{self.folder}/{node}", name, attempt.tag())

    def turn(self, worker: Worker) -> None:
        """Compare a node and set its register; or expect a node, or its absence, and change the other one; or read all."""
        chance = worker.chance
        if chance.random() < 0.2:
            worker.read(self.read_all, self.read_all)
            return
        node, other = chance.choice((self.nodes, self.nodes[::-1]))
        path = f"{self.folder}/{node}"
        how = chance.choice(("compare and set", "compare and set", "guard", "guard", "add", "absent", "remove"))

        def change(attempt: Attempt) -> None:
            child = f"{self.folder}/{self.nodes[0]}/{self.child}"
            if how == "absent":
                if attempt.expect_none(child):
                    attempt.set(f"{self.folder}/{self.nodes[1]}", self.guarded, attempt.tag())
            elif how == "add":
                attempt.expect(f"{self.folder}/{self.nodes[1]}", (self.register, self.guarded))
                attempt.add(child)
            elif how == "remove":
                attempt.remove(child)
            else:
                attempt.expect(path, (self.register, self.guarded))
                if how == "guard":
                    attempt.set(f"{self.folder}/{other}", self.guarded, attempt.tag())
                else:
                    attempt.set(path, self.register, attempt.tag())

        worker.transact(change, SNAPSHOT)

    def read_all(self, attempt: Attempt) -> None:
        """Read all properties and the child."""
        for node in self.nodes:
            for name in (self.register, self.guarded):
                attempt.get(f"{self.folder}/{node}", name)
        attempt.nodes([f"{self.folder}/{self.nodes[0]}/{self.child}"])

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Return what keeps each register, with all its compare-and-sets, from being linearizable.

        Each committed compare-and-set replaces the value that it expected. So their order is known: it must be a chain, and
        none may end before the commit of an earlier one has begun.
        """
        for node in self.nodes:
            key = f"{self.folder}/{node}#{self.register}"
            after: dict[Value, Transaction] = {}
            for one in history:
                if one.outcome == "committed" and any(op.key == key and isinstance(op, Write) for op in one.operations):
                    expected = first_reads(one).get(key)
                    if expected in after:
                        both = f"{after[expected].id} and {one.id}"
                        yield Anomaly(Kind.INVARIANT, f"{both} both replaced {expected!r} in {key}", (one.id,))
                    after[expected] = one
            yield from self._out_of_order(key, after)

    def _out_of_order(self, key: str, after: Mapping[Value, Transaction]) -> Iterator[Anomaly]:
        written = {
            expected: next(op.value for op in one.operations if isinstance(op, Write) and op.key == key)
            for expected, one in after.items()
        }
        value = next((value for value in after if value not in written.values()), None)
        latest: Transaction | None = None
        while value in after:
            one = after[value]
            if latest is not None and one.ended is not None and one.ended < (latest.committing or latest.begun):
                text = f"{one.id} set {key} after {latest.id}, and ended before the commit of that began"
                yield Anomaly(Kind.INVARIANT, text, (latest.id, one.id))
            if latest is None or (one.committing or one.begun) > (latest.committing or latest.begun):
                latest = one
            value = written[value]
