"""A commit writes its rows in the order of their keys, in which a store on a B-tree inserts them fastest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hbasemk import Repository, Transaction
from hbasemk.format import paths, schema
from hbasemk.store.abc import Put, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.repositories import Checked

NODES = 400


class Written(CountingStore):
    """A store that records the rows of the nodes that it writes."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.rows: list[bytes] = []
        self.children: list[bytes] = []

    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        if table == schema.NODES:
            self.rows += (put.row for put in puts)
            self.children += (cell[1] for put in puts for cell in put.cells if cell[0] == schema.CHILDREN)
        super().write(table, puts, durable=durable)


@pytest.mark.parametrize("parent", ["/old", "/new"])
def test_children_are_written_in_the_order_of_their_keys(checked: Checked, parent: str) -> None:
    store = Written(checked(MemoryStore()))
    with Repository(store, create=True) as repository:
        repository.run(lambda tx: tx.add("/old"))
        store.rows.clear()
        with repository.transaction() as tx:
            if parent == "/new":
                tx.add(parent)
            for number in range(NODES):
                tx.add(f"{parent}/{number:04}", {"number": number})

    children = [row for row in store.rows if row.startswith(paths.key(f"{parent}/")[:2])]
    assert len(children) >= NODES
    assert children == sorted(children)


def test_a_merge_writes_the_children_of_a_node_in_the_order_of_its_branch(checked: Checked) -> None:
    store = Written(checked(MemoryStore()))
    with Repository(store, create=True) as repository:
        repository.run(lambda tx: tx.add("/old"))
        with repository.branch() as branch:

            def add(tx: Transaction) -> None:
                for number in range(NODES):
                    tx.add(f"/old/{number:04}")

            branch.run(add)
            store.children.clear()

    assert store.children == [f"{number:04}".encode() for number in range(NODES)]
