"""The workloads of a history: small transactions that often conflict, on a few nodes for each workload.

Each workload has a folder of its own, so that any number of them can run in one repository at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hbasemk.testing.history.anomalies import Anomaly, Kind
from hbasemk.testing.history.compare_and_set import Versions
from hbasemk.testing.history.recorder import Attempt, Worker
from hbasemk.testing.history.records import SERIALIZABLE, History, Transaction, Value
from hbasemk.testing.history.workload import Workload, first_reads
from hbasemk.transaction import Isolation


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


class _Accounts(Workload):
    """Some nodes with a balance each, which is ``each`` at the beginning."""

    accounts: tuple[str, ...]
    each: int

    def prepare(self, attempt: Attempt) -> None:
        """Create the accounts, all with the same balance."""
        super().prepare(attempt)
        for account in self.accounts:
            attempt.changes.add(f"{self.folder}/{account}")
            attempt.set(f"{self.folder}/{account}", "balance", (self.each, attempt.tag()))

    def read_all(self, attempt: Attempt) -> None:
        """Read all accounts."""
        for account in self.accounts:
            attempt.get(f"{self.folder}/{account}", "balance")

    def seen(self, history: History) -> Iterator[tuple[Transaction, list[Value]]]:
        """Yield the transactions that read all accounts, with what they read."""
        keys = [f"{self.folder}/{account}#balance" for account in self.accounts]
        for one in history:
            seen = first_reads(one)
            if all(key in seen for key in keys):
                yield one, [seen[key] for key in keys]


class Bank(_Accounts):
    """Transfers between accounts: every snapshot has the same total."""

    name = "bank"
    accounts = ("a", "b", "c", "d")
    each = 100

    def turn(self, worker: Worker) -> None:
        """Transfer money, or read all accounts."""
        if worker.chance.random() < 0.3:
            worker.read(self.read_all, self.read_all)
            return
        source = worker.chance.choice(self.accounts)
        target = worker.chance.choice([account for account in self.accounts if account != source])
        amount = worker.chance.choice((1, 7, 30))

        def change(attempt: Attempt) -> None:
            for account, difference in ((source, -amount), (target, amount)):
                path = f"{self.folder}/{account}"
                attempt.set(path, "balance", (balance(attempt.get(path, "balance")) + difference, attempt.tag()))

        worker.transact(change)

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Return the snapshots with a changed total."""
        for one, values in self.seen(history):
            total = sum(map(balance, values))
            if total != self.each * len(self.accounts):
                yield Anomaly(Kind.INVARIANT, f"{one.id} saw a total of {total} in all accounts", (one.id,))


def balance(value: Value) -> int:
    """Return the amount in a register that also holds a tag."""
    assert isinstance(value, tuple)
    assert isinstance(value[0], int)
    return value[0]


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


class Skew(_Accounts):
    """Withdrawals from two accounts whose sum must not become negative."""

    name = "skew"
    accounts = ("a", "b")
    each = 60
    isolation: Final[Isolation] = SERIALIZABLE

    def turn(self, worker: Worker) -> None:
        """Withdraw an amount that the sum permits, or deposit; or read both accounts."""
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

    def violations(self, history: History) -> Iterator[Anomaly]:
        """Return the serializable transactions with a negative sum."""
        for one, values in self.seen(history):
            if sum(map(balance, values)) < 0:
                yield Anomaly(Kind.INVARIANT, f"{one.id} saw {values}", (one.id,))


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


ORDINARY: Final = (Registers(), Lists(), Bank(), Counters(), Children(), Subtrees(), Versions())
SERIAL: Final = (Skew(), Phantoms())
ADJUSTING: Final = (Adjusts(), Ledger())
WORKLOADS: Final[Mapping[str, Workload]] = {one.name: one for one in (*ORDINARY, *SERIAL, *ADJUSTING)}


def violations(history: History) -> list[Anomaly]:
    """Return the violations of the rules of all workloads."""
    return [anomaly for workload in WORKLOADS.values() for anomaly in workload.violations(history)]
