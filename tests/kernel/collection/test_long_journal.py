"""Collection, hourly work and the list of branches go on when no call can read the whole journal, as on HBase."""

from __future__ import annotations

import pytest

from hbasemk.kernel.collection import retention
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.periodic_work import SWEEP_EVERY
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import commit
from tests.support.runtime import World, open_instance
from tests.support.slow_scans import SlowScans

KEPT_MS = retention.SHORTEST_MS
OLD, YOUNG = 200, 1600
SECONDS = 0.016
"""The time for one row: 1250 rows time out, and 125 are slow. A batch of 1000 rows that match does not time out."""


@pytest.fixture
def slow(world: World) -> SlowScans:
    return SlowScans(MemoryStore(world.clock), world, 0.0)


@pytest.fixture
def one(slow: SlowScans, world: World) -> Instance:
    """An instance with more revisions within the retention than one call can visit."""
    instance = open_instance(slow, world)
    commit(instance, AddNode("/a", {"n": 0}))
    for count, seconds in ((OLD, 120), (YOUNG, KEPT_MS / 1000 - 5)):
        for number in range(count):
            world.advance(seconds / count)
            commit(instance, SetProperty("/a", "n", number + 1))
            if number % 100 == 0:
                instance.maintain()
    instance.poll()
    instance.maintain()
    slow.seconds = SECONDS
    return instance


def test_the_horizon_rises(one: Instance, slow: SlowScans) -> None:
    Collector(one).publish(KEPT_MS)
    assert fence.read_horizon(one.store).revision > one.settings.root_revision
    assert None in slow.visited


def test_a_branch_holds_the_horizon_back(one: Instance, slow: SlowScans) -> None:
    slow.seconds = 0
    one.begin_branch(one.head())
    floor = one.journal.verified
    for number in range(10):
        one.runtime.sleep(10)
        commit(one, SetProperty("/a", "n", -number))
    slow.seconds = SECONDS
    Collector(one).publish(KEPT_MS)
    assert one.settings.root_revision < fence.read_horizon(one.store).revision <= floor


def test_the_hourly_work_goes_on(one: Instance, slow: SlowScans, world: World) -> None:
    world.advance(SWEEP_EVERY)
    one.maintain()
    slow.visited.clear()
    one.maintain()
    # It was done, so it is not due again.
    assert slow.visited == []


def test_the_hourly_work_goes_on_when_few_rows_are_new(one: Instance, slow: SlowScans, world: World) -> None:
    world.advance(SWEEP_EVERY)
    one.maintain()
    commit(one, SetProperty("/a", "n", 0))
    world.advance(SWEEP_EVERY)
    one.maintain()
    slow.visited.clear()
    one.maintain()
    assert sum(visited or 0 for visited in slow.visited) == 0


def test_branches_are_listed(one: Instance) -> None:
    begun = one.begin_branch(one.head())
    assert [branch.first for branch in one.open_branches()] == [begun]
