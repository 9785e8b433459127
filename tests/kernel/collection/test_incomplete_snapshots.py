"""A snapshot that lacks a revision with a lower id, which became visible later, counts as older than its revision says."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.errors import RevisionCollectedError
from hbasemk.format import revisions, schema
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.collecting import HOUR, collect, commit
from tests.support.runtime import World, open_instance
from tests.support.uncached import without_cache


def test_the_error_for_such_a_snapshot_at_the_horizon_says_what_it_lacks(world: World) -> None:
    memory = MemoryStore(world.clock)
    slow = FaultyStore(memory)
    one, other = open_instance(memory, world, mac=1), open_instance(slow, world, mac=2)
    commit(one, AddNode("/a", {"p": "old"}))
    other.poll()
    taken: list[Any] = []

    def before(call: Call) -> None:
        # The other writer has an id, and is not decided yet.
        if (call.method, call.table) == ("write", schema.NODES) and not taken:
            world.advance(0.01)
            # In another node: a mark would let the other writer begin again with a higher id.
            commit(one, AddNode("/a/b", {}))
            taken.append(one.head())

    slow.before = before
    commit(other, AddNode("/c", {}))
    (view,) = taken
    one.poll()
    assert one.node(one.head(), "/c") is not None
    world.advance(2 * HOUR)
    collect(other)
    one.poll()
    assert one.journal.fence.horizon == view.revision
    name = revisions.to_text(view.revision)
    with (
        without_cache(one),
        pytest.raises(RevisionCollectedError, match=f"{name} does not have all revisions up to {name}"),
    ):
        one.node(view, "/a")
