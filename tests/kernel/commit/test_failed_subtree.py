"""A read of a subtree that fails half-way does not let its transaction take the rest of the subtree for absent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from hbasemk import NodeExistsError, Repository, StoreError, StoreNotAppliedError, Transaction
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Checked


class Outage:
    """The store fails from some call on."""

    def __init__(self, store: FaultyStore) -> None:
        self.left: int | None = None
        store.before = self.count

    def count(self, _: Call) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise StoreNotAppliedError("no connection")

    def interrupts(self, tx: Transaction, calls: int) -> None:
        """Read ``/a`` and what is below it, while the store fails after some calls."""
        self.left = calls
        with contextlib.suppress(StoreError):
            tx.subtree("/a")
        self.left = None


@pytest.fixture
def broken(checked: Checked) -> tuple[Repository, Outage]:
    store = MemoryStore(transactions=True)
    checked(store)
    faulty = FaultyStore(store)
    repo = Repository(faulty, poll_interval=0, retry_timeout=0, cache_bytes=0)
    repo.run(lambda tx: [tx.add(path, {"v": 1}) for path in ("/a", "/a/b", "/a/b/c", "/a/b/c/d")] and None)
    return repo, Outage(faulty)


@pytest.mark.parametrize("calls", range(6))
def test_a_node_that_was_not_read_still_exists(broken: tuple[Repository, Outage], calls: int) -> None:
    repo, outage = broken

    def change(tx: Transaction) -> None:
        outage.interrupts(tx, calls)
        assert tx.exists("/a/b/c")
        tx.add("/a/b/c", {"v": 2})

    with pytest.raises(NodeExistsError):
        repo.run(change)
    repo.close()


@pytest.mark.parametrize("calls", range(6))
@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda tx: tx.remove("/a/b"), ["/", "/a"]),
        (lambda tx: tx.move("/a/b", "/x"), ["/", "/a", "/x", "/x/c", "/x/c/d"]),
    ],
    ids=["remove", "move"],
)
def test_a_change_includes_what_was_not_read(
    broken: tuple[Repository, Outage], calls: int, change: Callable[[Transaction], None], left: list[str]
) -> None:
    repo, outage = broken

    def run(tx: Transaction) -> None:
        outage.interrupts(tx, calls)
        change(tx)

    repo.run(run)
    assert sorted(repo.head) == left
    repo.close()
