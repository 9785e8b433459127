"""What the workers of a history do: small transactions that meet often, on a few nodes for each workload.

Each workload has a folder of its own, so that any number of them can run in one repository at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hbasemk.testing.history.anomalies import Anomaly, Kind
from hbasemk.testing.history.recorder import Attempt, Worker
from hbasemk.testing.history.records import SERIALIZABLE, History, Read, Transaction, Value
from hbasemk.transaction import Isolation


class Workload:
    """A kind of transactions on the folder ``/<name>``."""

    name: str

    def __init__(self) -> None:
        self.folder = f"/{self.name}"

    def prepare(self, attempt: Attempt) -> None:
        """Make what the transactions need, once, before any of them."""
        attempt.changes.add(self.folder)

    def turn(self, worker: Worker) -> None:
        """One transaction."""
        raise NotImplementedError(f"{type(self).__name__} has no transactions")

    def read_all(self, attempt: Attempt) -> None:
        """Read everything, at the end."""
        raise NotImplementedError(f"{type(self).__name__} does not read")

    def violations(self, history: History) -> Iterator[Anomaly]:
        """What shows to be wrong without any graph."""
        del history
        return iter(())


def first_reads(one: Transaction) -> dict[str, Value]:
    """What a transaction saw in its snapshot."""
    found: dict[str, Value] = {}
    for operation in one.operations:
        if isinstance(operation, Read):
            found.setdefault(operation.key, operation.value)
    return found


class Registers(Workload):
    """A few properties of two nodes that are read and written in any combination, blindly, twice, and with what is there."""

    name = "registers"
    places: Final = (("m", "x"), ("m", "y"), ("n", "x"), ("n", "y"))

    def prepare(self, attempt: Attempt) -> None:
        """Two nodes, each property with a first value but for one."""
        super().prepare(attempt)
        for node in ("m", "n"):
            attempt.changes.add(f"{self.folder}/{node}")
        for node, name in self.places[:-1]:
            attempt.set(f"{self.folder}/{node}", name, attempt.tag())

    def turn(self, worker: Worker) -> None:
        """Change one or two, perhaps reading others; or read all."""
        chance = worker.chance
        if chance.random() < 0.3:
            worker.look(self._read_some, again=self.read_all)
            return
        wanted = {chance.choice(self.places): chance.choice("rwbbtsu") for _ in range(chance.choice((1, 2, 3)))}

        def change(attempt: Attempt) -> None:
            for (node, name), how in wanted.items():
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
        """All properties."""
        for node, name in self.places:
            attempt.get(f"{self.folder}/{node}", name)


class Lists(Workload):
    """Arrays to which ids are appended: read, made longer, written."""

    name = "lists"
    count: Final = 2

    def turn(self, worker: Worker) -> None:
        """Append to one or to both, or read them."""
        names = [f"g{worker.generation()}.{number}" for number in range(self.count)]
        if worker.chance.random() < 0.25:
            worker.look(lambda attempt: _get(attempt, self.folder, names), self.read_all)
            return
        wanted = worker.chance.choice((names[:1], names[1:], names))

        def change(attempt: Attempt) -> None:
            for name in wanted:
                before = attempt.get(self.folder, name)
                attempt.set(self.folder, name, (*(before if isinstance(before, tuple) else ()), attempt.tag()))

        worker.transact(change)

    def read_all(self, attempt: Attempt) -> None:
        """All that there are."""
        attempt.get_all(self.folder)


def _get(attempt: Attempt, path: str, names: list[str]) -> None:
    for name in names:
        attempt.get(path, name)


class Bank(Workload):
    """Money goes from one account to another: every snapshot has the same total."""

    name = "bank"
    accounts: Final = ("a", "b", "c", "d")
    each: Final = 100

    def prepare(self, attempt: Attempt) -> None:
        """Four accounts with the same balance."""
        super().prepare(attempt)
        for account in self.accounts:
            attempt.changes.add(f"{self.folder}/{account}")
            attempt.set(f"{self.folder}/{account}", "balance", (self.each, attempt.tag()))

    def turn(self, worker: Worker) -> None:
        """A transfer, or a look at all accounts."""
        if worker.chance.random() < 0.3:
            worker.look(self.read_all, self.read_all)
            return
        source = worker.chance.choice(self.accounts)
        target = worker.chance.choice([account for account in self.accounts if account != source])
        amount = worker.chance.choice((1, 7, 30))

        def change(attempt: Attempt) -> None:
            for account, difference in ((source, -amount), (target, amount)):
                path = f"{self.folder}/{account}"
                attempt.set(path, "balance", (balance(attempt.get(path, "balance")) + difference, attempt.tag()))

        worker.transact(change)

    def read_all(self, attempt: Attempt) -> None:
        """All accounts."""
        for account in self.accounts:
            attempt.get(f"{self.folder}/{account}", "balance")

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Totals that are not what they were at first."""
        keys = [f"{self.folder}/{account}#balance" for account in self.accounts]
        for one in history:
            seen = first_reads(one)
            if all(key in seen for key in keys):
                total = sum(balance(seen[key]) for key in keys)
                if total != self.each * len(keys):
                    yield Anomaly(Kind.INVARIANT, f"{one.id} saw a total of {total} in all accounts", (one.id,))


def balance(value: Value) -> int:
    """The amount in a register that also holds a tag."""
    assert isinstance(value, tuple)
    assert isinstance(value[0], int)
    return value[0]


class Counters(Workload):
    """Numbers that are incremented without being read."""

    name = "counters"
    count: Final = 2

    def turn(self, worker: Worker) -> None:
        """Count one or both up, or read them."""
        generation = worker.generation()
        names = [f"g{generation}.{number}" for number in range(self.count)]

        def read(attempt: Attempt) -> None:
            for name in names:
                attempt.counted(self.folder, name)

        if worker.chance.random() < 0.25:
            worker.look(read, read)
            return
        wanted = worker.chance.choice((names[:1], names[1:], names))

        def change(attempt: Attempt) -> None:
            for name in wanted:
                attempt.count(self.folder, name, worker.bit(generation))

        worker.transact(change)

    def read_all(self, attempt: Attempt) -> None:
        """All that there are."""
        for name in attempt.changes.properties(self.folder):
            attempt.counted(self.folder, name)


class Children(Workload):
    """A set of children to which is added and from which is removed."""

    name = "children"
    names: Final = ("k0", "k1", "k2", "k3")

    def turn(self, worker: Worker) -> None:
        """Add, remove, both, or list."""
        chance = worker.chance
        if chance.random() < 0.3:
            worker.look(self.read_all, self.read_all)
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
        """The list, and each child."""
        attempt.listed(self.folder, self.names)


class Subtrees(Workload):
    """Nodes that are removed with everything below them, while others add below them and change them."""

    name = "subtrees"
    tops: Final = ("s", "t")
    names: Final = ("k0", "k1")
    properties: Final = ("x",)

    def prepare(self, attempt: Attempt) -> None:
        """Both subtrees, with a child each."""
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
            worker.look(self.read_all, self.read_all)
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
        """Every node that can be there, with its property."""
        tops = [f"{self.folder}/{top}" for top in self.tops]
        attempt.nodes(tops, self.properties)
        attempt.nodes([f"{top}/{name}" for top in tops for name in self.names])

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Children without a parent."""
        for one in history:
            seen = first_reads(one)
            for path, value in seen.items():
                above = path.rpartition("/")[0]
                if path.startswith(f"{self.folder}/") and value is not None and seen.get(above, value) is None:
                    yield Anomaly(Kind.INVARIANT, f"{one.id} saw {path}, and not {above}", (one.id,))


class Skew(Workload):
    """Withdrawals from either of two accounts, as long as the sum does not become negative."""

    name = "skew"
    accounts: Final = ("a", "b")
    isolation: Final[Isolation] = SERIALIZABLE

    def prepare(self, attempt: Attempt) -> None:
        """Two accounts with 60 each."""
        super().prepare(attempt)
        for account in self.accounts:
            attempt.changes.add(f"{self.folder}/{account}")
            attempt.set(f"{self.folder}/{account}", "balance", (60, attempt.tag()))

    def turn(self, worker: Worker) -> None:
        """Withdraw what the sum permits, or pay in; or read both."""
        chance = worker.chance
        if chance.random() < 0.2:
            worker.transact(self.read_all, self.isolation)
            return
        account, amount = f"{self.folder}/{chance.choice(self.accounts)}", chance.choice((40, 60))

        def change(attempt: Attempt) -> None:
            held = {one: balance(attempt.get(one, "balance")) for one in (f"{self.folder}/a", f"{self.folder}/b")}
            difference = -amount if sum(held.values()) >= amount else 100
            attempt.set(account, "balance", (held[account] + difference, attempt.tag()))

        worker.transact(change, self.isolation)

    def read_all(self, attempt: Attempt) -> None:
        """Both accounts."""
        for account in self.accounts:
            attempt.get(f"{self.folder}/{account}", "balance")

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Sums below nothing, in transactions that are serializable."""
        keys = [f"{self.folder}/{account}#balance" for account in self.accounts]
        for one in history:
            seen = first_reads(one)
            if all(key in seen for key in keys) and sum(balance(seen[key]) for key in keys) < 0:
                yield Anomaly(Kind.INVARIANT, f"{one.id} saw {[seen[key] for key in keys]}", (one.id,))


class Phantoms(Workload):
    """A child is added only where there are fewer than two."""

    name = "phantoms"
    names: Final = ("k0", "k1", "k2", "k3", "k4")
    most: Final = 2
    isolation: Final[Isolation] = SERIALIZABLE

    def turn(self, worker: Worker) -> None:
        """Add if there is room, else remove one."""
        name = worker.chance.choice(self.names)

        def change(attempt: Attempt) -> None:
            shown = attempt.listed(self.folder, self.names)
            if name in shown:
                attempt.remove(f"{self.folder}/{name}")
            elif len(shown) < self.most:
                attempt.add(f"{self.folder}/{name}")

        worker.transact(change, self.isolation)

    def read_all(self, attempt: Attempt) -> None:
        """The list."""
        attempt.listed(self.folder, self.names)

    def violations(self, history: History) -> Iterator[Anomaly]:
        """More than two."""
        keys = [f"{self.folder}/{name}" for name in self.names]
        for one in history:
            seen = first_reads(one)
            there = [key for key in keys if seen.get(key) is not None]
            if len(there) > self.most:
                yield Anomaly(Kind.INVARIANT, f"{one.id} saw {len(there)} children: {', '.join(there)}", (one.id,))


ORDINARY: Final = (Registers(), Lists(), Bank(), Counters(), Children(), Subtrees())
SERIAL: Final = (Skew(), Phantoms())
WORKLOADS: Final[Mapping[str, Workload]] = {one.name: one for one in (*ORDINARY, *SERIAL)}


def violations(history: History) -> list[Anomaly]:
    """What breaks the rules of any workload."""
    return [anomaly for workload in WORKLOADS.values() for anomaly in workload.violations(history)]
