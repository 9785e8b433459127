"""Journal rows that say "pending" although the horizon has passed them: nobody rolls back what may have committed."""

from __future__ import annotations

import pytest

from hbasemk.check import IntegrityCheck, Problem, Repair
from hbasemk.check import problem as kinds
from hbasemk.format import changes, revisions, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import BOTH_ORDERS, HOUR, collect, commit
from tests.support.marking_store import store_in_memory
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree
from tests.support.trimming import row_of, trim_up_to

ordered_only = pytest.mark.parametrize("ordered", [True], ids=["ordered"])
unordered_only = pytest.mark.parametrize("ordered", [False], ids=["unordered"])


@pytest.fixture
def store(world: World, ordered: bool) -> MemoryStore:
    return store_in_memory(world.clock, ordered=ordered)


def collected(store: MemoryStore, world: World) -> Instance:
    """Return an instance of a repository with a horizon; all leases are over."""
    one = open_instance(store, world)
    for number in range(4):
        commit(one, AddNode(f"/{number}", {"p": number}))
        world.advance(3 * HOUR)
        collect(one)
    one.close()
    two = open_instance(store, world, mac=2)
    assert fence.read_trim_level(two.store).revision < two.horizon
    return two


def decide(store: MemoryStore, revision: int, flag: bytes) -> None:
    """Write one flag of a journal row."""
    store.write(schema.JOURNAL, [Put(schema.revision_key(revision), [NewCell(*schema.COMMITTED, flag)])])


def unresolved(one: Instance) -> list[Problem]:
    return [found for found in IntegrityCheck(one).run() if found.kind == kinds.BELOW_WATERMARK]


@BOTH_ORDERS
def test_a_committed_revision_whose_flag_is_damaged_is_not_rolled_back(store: MemoryStore, world: World) -> None:
    """A repair, and the hourly search for late rows, aborted the revision and deleted its cells."""
    two = collected(store, world)
    before, horizon = tree(two), two.horizon
    decide(store, horizon, schema.NO)
    found = unresolved(two)
    assert (kinds.DAMAGE, "/3") in {(problem.severity, problem.path) for problem in found}
    assert not any(problem.repairable for problem in found)
    damaged = Problem(kinds.BELOW_WATERMARK, "", revisions.to_text(horizon), "", repairable=True)
    assert Repair(two).repair(damaged) is None
    world.advance(2 * HOUR)
    two.maintain()
    assert two.recovery.recover_late() == []
    three = open_instance(store, world, mac=3)
    three.maintain()
    assert three.recovery.recover_late() == []
    assert three.outcomes.of(horizon) is Outcome.PENDING
    assert tree(three) == before
    decide(store, horizon, schema.YES)
    assert list(IntegrityCheck(three).run()) == []


@ordered_only
def test_a_pending_row_is_damage_where_no_row_is_created_below_the_watermark(store: MemoryStore, world: World) -> None:
    two = collected(store, world)
    horizon = two.horizon
    decide(store, horizon, schema.NO)
    (of_row,) = (problem for problem in unresolved(two) if not problem.path)
    assert (of_row.severity, of_row.repairable) == (kinds.DAMAGE, False)
    decide(store, horizon, schema.YES)


@unordered_only
def test_a_row_that_is_created_late_stays_until_a_collector_deletes_it(store: MemoryStore, world: World) -> None:
    two = collected(store, world)
    # Its writer never announced it, so it has no cells. Its request comes only now.
    late = two.horizon - 0x100
    assert late > fence.read_trim_level(two.store).revision
    cells = [
        NewCell(*schema.COMMITTED, schema.NO),
        NewCell(*schema.ABORT, schema.NO),
        NewCell(*schema.NONCE, bytes(16)),
        NewCell(*schema.BASE, schema.revision_key(two.settings.root_revision)),
        NewCell(*schema.MESSAGE, b"\x00"),
        *changes.encode([RowChange("/late", changes.ADDED)]),
    ]
    store.write(schema.JOURNAL, [Put(schema.revision_key(late), cells)])
    world.advance(HOUR)
    two.poll()
    two.maintain()
    assert two.recovery.recover_late() == []
    assert [(one.path, one.severity, one.repairable) for one in unresolved(two)] == [("", kinds.LEFTOVER, False)]
    before = tree(two)
    commit(two, SetProperty("/0", "p", 9))
    trim_up_to(two, world)
    assert not row_of(store, late).cells
    assert list(IntegrityCheck(two).run()) == []
    assert tree(two)["/3"] == before["/3"]
