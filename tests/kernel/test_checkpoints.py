"""Checkpoints: of concurrent ones the latest expiry wins; expired ones are removed."""

from __future__ import annotations

import pytest

from hbasemk.format import schema
from hbasemk.kernel import checkpoints
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore, lost_reply
from tests.support.runtime import START_MS, World, open_instance

HOUR = 3_600_000


def test_concurrent_checkpoints_keep_the_later_expiry(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    mine, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    head = mine.head().revision

    def before(call: Call) -> None:
        if call.method in ("write", "check_and_write") and call.table == schema.CLUSTER:
            faulty.before = None
            checkpoints.keep(other, head, START_MS + 5 * HOUR)

    faulty.before = before
    checkpoints.keep(mine, head, START_MS + HOUR)
    assert checkpoints.all_of(other) == {head: START_MS + 5 * HOUR}
    checkpoints.keep(mine, head, START_MS + 6 * HOUR)
    checkpoints.keep(mine, head, START_MS + 2 * HOUR)
    assert checkpoints.all_of(other) == {head: START_MS + 6 * HOUR}


def test_a_checkpoint_whose_reply_is_lost_is_created_once(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    instance = open_instance(faulty, world)
    head = instance.head().revision

    def after(call: Call) -> None:
        if call.method == "check_and_write":
            faulty.after = None
            raise lost_reply(call)

    faulty.after = after
    checkpoints.keep(instance, head, START_MS + HOUR)
    assert faulty.after is None
    assert checkpoints.all_of(instance) == {head: START_MS + HOUR}


@pytest.mark.parametrize("skew", [0, 20 * HOUR, -20 * HOUR])
def test_expired_checkpoints_are_removed_by_the_stores_clock(store: MemoryStore, world: World, skew: int) -> None:
    instance = open_instance(store, world, skew_ms=skew)
    instance.lease.measure()
    for revision, hours in ((1, 1), (2, 9), (3, 2)):
        checkpoints.keep(instance, revision, START_MS + hours * HOUR)
    assert checkpoints.all_of(instance).keys() == {1, 2, 3}
    world.advance(4 * 3600)
    checkpoints.keep(instance, 4, START_MS + 9 * HOUR)
    assert checkpoints.all_of(instance).keys() == {2, 4}
    # An expired checkpoint can be created again.
    checkpoints.keep(instance, 1, START_MS + 9 * HOUR)
    assert checkpoints.all_of(instance).keys() == {1, 2, 4}
