"""The slots of adjusts: how a process finds free ones."""

from __future__ import annotations

import pytest

from hbasemk.format import revisions
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Adjust
from hbasemk.store.memory import MemoryStore
from tests.support.runtime import World, open_instance

COMMITS = 20
NAMES = [f"n{number}" for number in range(20)]
LEASE_SECONDS = 60


@pytest.mark.parametrize("transactions", [False, True], ids=["steps", "transactions"])
def test_a_process_finds_slots_that_an_earlier_one_on_its_machine_has_not_used_since_the_base(
    world: World, transactions: bool
) -> None:
    store = MemoryStore(world.clock, transactions=transactions)
    adjusts = OperationList([Adjust("/a", name, 1) for name in NAMES])
    earlier = open_instance(store, world, mac=1)
    added = OperationList([AddNode("/a", dict.fromkeys(NAMES, 0))])
    base = earlier.commit(lambda _: added, "", retry_timeout=5, max_poll_age=0)
    view = earlier.at(base)
    for _ in range(COMMITS):
        # As merges of branches on one base do, each one takes a slot of its own.
        earlier.commit_on(view, adjusts, "")
    machine = revisions.machine_of(earlier.head().revision)
    earlier.close()
    world.advance(LEASE_SECONDS)
    later = open_instance(store, world, mac=1)
    made = later.commit_on(later.at(base), adjusts, "")
    assert revisions.machine_of(made) == machine
    assert later.statistics.conflicts == 0
    state = later.require(later.head(), "/a")
    assert state.properties == dict.fromkeys(NAMES, COMMITS + 1)
    assert {len(state.property_of(name).totals) for name in NAMES} == {COMMITS + 1}
