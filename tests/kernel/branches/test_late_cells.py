"""Cells of a commit to a branch that arrive after its roll-back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.errors import BranchError, StoreUnknownError
from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.store.abc import Put
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import FaultyStore
from tests.support.branches import commit_on_branch
from tests.support.runtime import World, open_instance
from tests.support.sole_writers import commit


class HeldWrite(FaultyStore):
    """The gateway holds the first write of nodes, and its client sends it again. ``between`` is called before a head moves."""

    held: Sequence[Put] = ()
    between: Callable[[], object] | None = None

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        if table == schema.NODES and not self.held:
            self.held = puts
            raise StoreUnknownError("no reply")
        super().write(table, puts, durable=durable)

    def check_and_write(
        self, table: str, column: tuple[bytes, bytes], expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        if column == schema.BRANCH_HEAD and self.between is not None:
            between, self.between = self.between, None
            between()
        return super().check_and_write(table, column, expected, put, durable=durable)


@pytest.mark.parametrize("reply", ["received", "lost"])
def test_a_commit_that_has_lost_a_reply_does_not_say_that_no_cells_can_arrive(world: World, reply: str) -> None:
    store = MemoryStore(world.clock)
    gateway = HeldWrite(store)
    rival = open_instance(store, world, mac=2)
    commit(rival, AddNode("/a", {"x": 0}))
    loser = open_instance(gateway, world, mac=1)
    root = rival.begin_branch(rival.head())
    gateway.held = [] if reply == "lost" else [Put(b"", [])]
    gateway.between = lambda: commit_on_branch(rival, root, [SetProperty("/a", "y", 2)])
    begun: list[int] = []
    with pytest.raises(BranchError, match="not the newest"):
        loser.branches.commit(root, OperationList([SetProperty("/a", "x", 1)]), "", begun=begun.append)
    if reply == "lost":
        store.write(schema.NODES, gateway.held)
    (row,) = journal_rows(rival.store, begun)
    assert row.swept == (schema.SWEPT_IN_DOUBT if reply == "lost" else schema.SWEPT_CLEAN)
    assert list(IntegrityCheck(rival).run()) == []
