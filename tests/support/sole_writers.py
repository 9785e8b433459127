"""Processes that alone write a row (decision 62), and what they know of it."""

from __future__ import annotations

from collections.abc import Callable

from hbasemk.format import paths, schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation, SetProperty
from hbasemk.kernel.commit.read_back import Conflict
from hbasemk.kernel.commit.sole_rows import Known
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Column, Get, Put, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore, FaultyStore
from tests.support.runtime import World, open_instance

Request = Callable[[], bool]
STAGES = 2
"""So many commits precede the first one that is written alone."""


class Gateway(FaultyStore):
    """A store whose next compare-and-set in a table goes to ``decide``, with the request as a function."""

    def __init__(self, inner: MemoryStore, table: str) -> None:
        super().__init__(inner)
        self.table = table
        self.decide: Callable[[Request], bool] | None = None

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        decide = self.decide
        if decide is None or table != self.table:
            return super().check_and_write(table, column, expected, put, durable=durable)
        self.decide = None
        return decide(lambda: self.inner.check_and_write(table, column, expected, put, durable=durable))


def commit(instance: Instance, *operations: Operation) -> int:
    return instance.commit(lambda _: OperationList(operations), "", retry_timeout=9, max_poll_age=1000)


def become_sole_writer(instance: Instance, path: str = "/a", name: str = "x") -> None:
    for number in range(STAGES):
        commit(instance, SetProperty(path, name, -1 - number))


def opened(
    world: World, store: Store | None = None, *, transactions: bool = False
) -> tuple[Instance, CountingStore, MemoryStore]:
    """Return an instance with two nodes, its counted store, and the store below it."""
    shared = MemoryStore(world.clock, transactions=transactions)
    counted = CountingStore(shared if store is None else store)
    instance = open_instance(counted, world, mac=1)
    commit(instance, AddNode("/a", {"x": 0}), AddNode("/b", {"x": 0}))
    counted.take()
    return instance, counted, shared


def last_value(store: Store, path: str = "/a") -> bytes:
    return store.read(schema.NODES, [Get(paths.key(path), columns=(schema.LAST_REVISION,))])[0].cells[0].value


def known_rows(instance: Instance) -> dict[bytes, Known]:
    """Return the entries of an instance, by row key; a test may change them."""
    return instance._committer.attempts._sole_rows._rows


def let_compete(instance: Instance, path: str, name: str) -> None:
    """Let an instance have lost a conflict over a property lately."""
    instance._committer._hot.record(Conflict(path, schema.property_column(name), 0, pending=False))


def let_know(instance: Instance, path: str, revision: int, stage: Stage) -> None:
    """Let an instance know that this revision was its last one to a node, and the stage of the next one."""
    known_rows(instance)[paths.key(path)] = Known(revision, stage)
