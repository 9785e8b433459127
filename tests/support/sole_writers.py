"""Processes that alone write a row (decision 62), and what they know of it."""

from __future__ import annotations

from hbasemk.format import paths, schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation, SetProperty
from hbasemk.kernel.commit.read_back import Conflict
from hbasemk.kernel.commit.sole_rows import Known
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.runtime import World, open_instance

STAGES = 2
"""So many commits precede the first one that is written alone."""


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
