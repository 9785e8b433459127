"""Workloads that add and remove nodes: sets of children, subtrees, and a folder with few children."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hbasemk.testing.history.anomalies import Anomaly, Kind
from hbasemk.testing.history.recorder import Attempt
from hbasemk.testing.history.records import SERIALIZABLE, History
from hbasemk.testing.history.worker import Worker
from hbasemk.testing.history.workloads.workload import Workload, first_reads
from hbasemk.transaction import Isolation


class Children(Workload):
    """A set of children that transactions add and remove."""

    name = "children"
    names: Final = ("k0", "k1", "k2", "k3")

    def turn(self, worker: Worker) -> None:
        """Add, remove, both, or list."""
        chance = worker.chance
        if chance.random() < 0.3:
            worker.read(self.read_all, self.read_all)
            return
        one, other = chance.choice(self.names[:2]), chance.choice(self.names[2:])
        how = chance.choice(("add", "add", "remove", "add and remove", "list and add"))

        def change(attempt: Attempt) -> None:
            if how == "list and add":
                attempt.listed(self.folder, self.names)
            if "add" in how:
                attempt.add(f"{self.folder}/{one}")
            if "remove" in how:
                attempt.remove(f"{self.folder}/{other if 'add' in how else one}")

        worker.transact(change)

    def read_all(self, attempt: Attempt) -> None:
        """Read the list and each child."""
        attempt.listed(self.folder, self.names)


class Subtrees(Workload):
    """Subtrees that transactions remove while others add and change nodes in them."""

    name = "subtrees"
    tops: Final = ("s", "t")
    names: Final = ("k0", "k1")
    properties: Final = ("x",)

    def prepare(self, attempt: Attempt) -> None:
        """Create both subtrees with one child each."""
        super().prepare(attempt)
        for top in self.tops:
            for path, names in (
                (f"{self.folder}/{top}", self.properties),
                (f"{self.folder}/{top}/{self.names[0]}", ()),
            ):
                attempt.add(path, names)

    def turn(self, worker: Worker) -> None:
        """Add or remove a subtree, add or remove a child in it, change its root, or read it all."""
        chance = worker.chance
        if chance.random() < 0.25:
            worker.read(self.read_all, self.read_all)
            return
        top = f"{self.folder}/{chance.choice(self.tops)}"
        child = f"{top}/{chance.choice(self.names)}"
        how = chance.choice(("add", "remove", "remove", "add child", "add child", "add child", "remove child", "touch"))

        def change(attempt: Attempt) -> None:
            if how == "add":
                attempt.add(top, self.properties)
            elif how == "remove":
                attempt.remove(top, self.properties, [f"{top}/{name}" for name in self.names])
            elif how == "add child":
                attempt.add(child, parent=top)
            elif how == "remove child":
                attempt.remove(child)
            else:
                attempt.touch(top, self.properties[0])

        worker.transact(change)

    def read_all(self, attempt: Attempt) -> None:
        """Read every possible node with its property."""
        tops = [f"{self.folder}/{top}" for top in self.tops]
        attempt.nodes(tops, self.properties)
        attempt.nodes([f"{top}/{name}" for top in tops for name in self.names])

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Return the children without a parent."""
        for one in history:
            seen = first_reads(one)
            for path, value in seen.items():
                above = path.rpartition("/")[0]
                if path.startswith(f"{self.folder}/") and value is not None and seen.get(above, value) is None:
                    yield Anomaly(Kind.INVARIANT, f"{one.id} saw {path}, and not {above}", (one.id,))


class Phantoms(Workload):
    """A folder to which transactions add a child only if it has fewer than two."""

    name = "phantoms"
    names: Final = ("k0", "k1", "k2", "k3", "k4")
    most: Final = 2
    isolation: Final[Isolation] = SERIALIZABLE

    def turn(self, worker: Worker) -> None:
        """Add a child if there are fewer than two, else remove one."""
        name = worker.chance.choice(self.names)

        def change(attempt: Attempt) -> None:
            shown = attempt.listed(self.folder, self.names)
            if name in shown:
                attempt.remove(f"{self.folder}/{name}")
            elif len(shown) < self.most:
                attempt.add(f"{self.folder}/{name}")

        worker.transact(change, self.isolation)

    def read_all(self, attempt: Attempt) -> None:
        """Read the list."""
        attempt.listed(self.folder, self.names)

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Return the snapshots with more than two children."""
        keys = [f"{self.folder}/{name}" for name in self.names]
        for one in history:
            seen = first_reads(one)
            there = [key for key in keys if seen.get(key) is not None]
            if len(there) > self.most:
                yield Anomaly(Kind.INVARIANT, f"{one.id} saw {len(there)} children: {', '.join(there)}", (one.id,))
