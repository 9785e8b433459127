"""How far a collector raises the horizon, and when it deletes."""

from __future__ import annotations

import pytest

from hbasemk.format import schema
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.journal import fence
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.collecting import BOTH_ORDERS, HOUR, commit
from tests.support.marking_store import store_in_memory
from tests.support.runtime import World, open_instance
from tests.support.simulation import collection_mutants

pytestmark = BOTH_ORDERS


class StepByStep(FaultyStore):
    """A store that lets commits of several rows go step by step."""

    batch_rows = 1


def horizon_beside_a_pending_revision(store: MemoryStore, world: World) -> tuple[int, int]:
    """Let a collector run beside a commit that is older than the retention; return the horizon, and the commit's revision."""
    faulty = StepByStep(store)
    slow, quick = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    commit(slow, *(AddNode(path, {"p": 0}) for path in ("/a", "/b", "/c")))
    world.advance(HOUR)
    horizons: list[int] = []

    def before(_: Call) -> None:
        quick.poll()
        if quick.journal.pending:
            faulty.before = None
            commit(quick, SetProperty("/c", "p", 1))
            world.advance(2)
            Collector(quick).publish(1000)
            horizons.append(fence.read_horizon(quick.store).revision)

    faulty.before = before
    revision = commit(slow, SetProperty("/a", "p", 1), SetProperty("/b", "p", 1))
    assert revision < quick.head().revision
    (horizon,) = horizons
    return horizon, revision


def test_the_horizon_stays_below_a_pending_revision(store: MemoryStore, world: World) -> None:
    horizon, revision = horizon_beside_a_pending_revision(store, world)
    assert 0 < horizon < revision


def test_a_horizon_above_the_watermark_is_found(ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Random schedules found it in one of a thousand.
    collection_mutants.horizon_above_the_watermark(monkeypatch)
    # A world of its own: no instance opens what is left in a store that orders all writes.
    world = World()
    horizon, revision = horizon_beside_a_pending_revision(store_in_memory(world.clock, ordered=ordered), world)
    assert horizon > revision


def seconds_before_the_first_deletion(store: MemoryStore, world: World) -> float:
    """Let a collector run; return how long after its begin, and so after the publication of its horizon, it deletes."""
    faulty = FaultyStore(store)
    one = open_instance(faulty, world)
    commit(one, AddNode("/a", {"p": 0}))
    commit(one, SetProperty("/a", "p", 1))
    world.advance(HOUR)
    commit(one, SetProperty("/a", "p", 2))
    began = one.runtime.monotonic()
    deleted: list[float] = []

    def before(call: Call) -> None:
        if (call.method, call.table) == ("delete_below", schema.NODES):
            deleted.append(one.runtime.monotonic() - began)

    faulty.before = before
    Collector(one).run(1000)
    return deleted[0]


def test_deletion_begins_when_no_reader_trusts_an_older_horizon(
    store: MemoryStore, world: World, ordered: bool
) -> None:
    grace = fence.GRACE if ordered else fence.GRACE_APART
    assert seconds_before_the_first_deletion(store, world) >= grace >= 2 * fence.TRUST


def test_a_collector_that_does_not_wait_is_found(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Random schedules found it in one of some hundreds.
    collection_mutants.no_grace(monkeypatch)
    assert seconds_before_the_first_deletion(store, world) < fence.TRUST
