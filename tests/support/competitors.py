"""Processes that compete over a property of one node (decision 64)."""

from __future__ import annotations

from collections.abc import Callable

from hbasemk.check import IntegrityCheck
from hbasemk.format import schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.hot_columns import AT_ONCE
from hbasemk.kernel.commit.operations import AddNode, Increment, Operation
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore
from tests.support.runtime import World, open_instance
from tests.support.sole_writers import Gateway, Request, commit, let_compete


class Competitors:
    """Three instances that compete over ``n`` of /a; the calls of the first one are counted, and pass a gateway."""

    def __init__(self, world: World, store: MemoryStore | None = None) -> None:
        self.world = world
        self.store = store or MemoryStore(world.clock)
        self.gateway = Gateway(self.store, schema.NODES)
        self.counted = CountingStore(self.gateway)
        self.one = open_instance(self.counted, world, mac=1)
        self.other = open_instance(self.store, world, mac=2)
        self.third = open_instance(self.store, world, mac=3)
        commit(self.one, AddNode("/a", {"n": 0, "p": 0}))
        self.third.poll()

    def increment(
        self, instance: Instance, *operations: Operation, timeout: float = 9, begun: list[int] | None = None
    ) -> int:
        """Increment the number on the head, as a process that has lost a conflict over it; add all ids to ``begun``."""
        let_compete(instance, "/a", "n")
        self.world.advance(AT_ONCE * 1.5)
        return instance.commit(
            lambda _: OperationList(operations or [Increment("/a", "n", 1)]),
            "",
            retry_timeout=timeout,
            max_poll_age=1000,
            begun=None if begun is None else begun.append,
        )

    def let_overtake(self, then: Callable[[], object] = lambda: None) -> None:
        """Let ``other`` increment the number before the next compare-and-set of a node by ``one``; call ``then`` after it."""

        def decide(request: Request) -> bool:
            self.increment(self.other)
            answer = request()
            then()
            return answer

        self.gateway.decide = decide

    def before_its_cells(self, act: Callable[[], object]) -> None:
        """Call ``act`` before the next write of cells by ``one`` that is no compare-and-set."""

        def before(call: Call) -> None:
            if (call.method, call.table) == ("write", schema.NODES):
                self.gateway.before = lambda _: None
                act()

        self.gateway.before = before

    def row(self, revision: int) -> JournalRow:
        return JournalRow(self.store.read(schema.JOURNAL, [Get(schema.revision_key(revision))])[0])

    def check(self, count: int) -> None:
        """Make sure that all instances read this number, and that the tables are whole."""
        for instance in (self.one, self.other, self.third):
            instance.poll()
            assert instance.require(instance.head(), "/a").properties["n"] == count
            assert list(IntegrityCheck(instance).run()) == []
