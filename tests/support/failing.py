"""A repository with a small tree, an instance of it whose store can fail, and what later instances find."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import FaultyStore
from tests.support.runtime import World, open_instance

TREE: list[Operation] = [AddNode("/a", {"p": "old", "n": 0}), AddNode("/a/b", {}), AddNode("/a/b/c", {})]


class Died(BaseException):
    """The process has ended: nothing catches it."""


class FailingRepository:
    """``first`` made the tree; ``instance`` uses ``store``, which can fail, over ``inner``, which cannot."""

    def __init__(self, *, transactions: bool = False, parallel: bool = False, batch_rows: int = 1000) -> None:
        self.world = World()
        self._seeds = itertools.count(100)
        self.inner = MemoryStore(self.world.clock, transactions=transactions, parallel=parallel, batch_rows=batch_rows)
        self.first = self.open(1)
        self.first.commit(lambda _: OperationList(TREE), "", retry_timeout=1, max_poll_age=0)
        self.store = FaultyStore(self.inner)
        self.instance = open_instance(self.store, self.world, mac=2)

    def open(self, mac: int) -> Instance:
        """Return one more instance, on the store that cannot fail."""
        return open_instance(self.inner, self.world, mac=mac, seed=next(self._seeds))

    def heal(self) -> None:
        """End all failures of calls."""
        self.store.before = self.store.after = None

    def tree(self, instance: Instance) -> dict[str, dict[str, Any]]:
        """Return the properties of all nodes that an instance reads after a poll."""
        instance.poll()
        head = instance.head()
        found = {"/": dict(instance.reader.require(head, "/").properties)}
        for level in instance.reader.levels(head, "/"):
            found.update({state.path: dict(state.properties) for state in level})
        return found

    def check(self) -> dict[str, dict[str, Any]]:
        """Return what a new instance reads after all leases have ended; nothing may be damaged or pending then."""
        self.heal()
        self.world.advance(30)
        later = self.open(3)
        later.clock.next(0)
        later.announcements.renew(0)
        later.maintain()
        later.recovery.advance()
        found = self.tree(later)
        is_whole(later)
        return found

    def die_with_held_cells(self, commit: Callable[[], object]) -> Sequence[Put]:
        """Let the process die in a commit whose cells a gateway still holds; return the cells."""
        held: list[Sequence[Put]] = []

        def hold(table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
            held.append(puts)
            raise Died

        self.store.write = hold  # type: ignore[method-assign]
        with pytest.raises(Died):
            commit()
        return held[0]


def is_whole(instance: Instance) -> None:
    """Assert that an instance finds no damage and no pending revision."""
    assert [str(problem) for problem in IntegrityCheck(instance).run()] == []
    assert not instance.journal.pending
