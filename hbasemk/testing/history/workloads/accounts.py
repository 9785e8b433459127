"""Workloads on accounts: transfers that keep the total, and withdrawals that keep the sum positive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hbasemk.testing.history.anomalies import Anomaly, Kind
from hbasemk.testing.history.recorder import Attempt
from hbasemk.testing.history.records import SERIALIZABLE, History, Transaction, Value
from hbasemk.testing.history.worker import Worker
from hbasemk.testing.history.workloads.workload import Workload, first_reads
from hbasemk.transaction import Isolation


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


def balance(value: Value) -> int:
    """Return the amount in a register that also holds a tag."""
    assert isinstance(value, tuple)
    assert isinstance(value[0], int)
    return value[0]
