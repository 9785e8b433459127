"""Branches and checkpoints hold the horizon back, and are refused below it."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.errors import (
    RevisionCollectedError,
)
from hbasemk.format import revisions
from hbasemk.kernel import checkpoints
from hbasemk.kernel.collection import retention
from hbasemk.kernel.collection.status import collection_status
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.view import View
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, cells, collect, commit
from tests.support.runtime import World, open_instance

pytestmark = BOTH_ORDERS
Superseded = tuple[Instance, Instance, View]


@pytest.fixture
def superseded(store: MemoryStore, world: World) -> Superseded:
    """Two instances, and the first one's snapshot of a state that the second has changed."""
    one, other = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    base = one.head()
    commit(other, SetProperty("/a", "p", 1))
    commit(other, SetProperty("/a", "p", 2))
    return one, other, base


def test_a_branch_keeps_its_snapshot_until_it_is_swept(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": "old"}))
    branch = one.begin_branch(one.head())
    commit(one, SetProperty("/a", "p", "new"))
    world.advance(2 * HOUR)
    collect(one)
    fresh = open_instance(store, world, mac=7)
    assert fresh.node(fresh.branch(branch).view, "/a").properties == {"p": "old"}  # type: ignore[union-attr]
    one.abandon_branch(branch)
    world.advance(2 * HOUR)
    one.sweep_branches(None)
    collect(one)
    assert len([at for qualifier, at in cells(store, "/a") if qualifier == b"\x01p"]) == 1


def test_a_checkpoint_holds_the_horizon_back(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": "old"}))
    kept = one.head()
    checkpoints.keep_for(one, kept, 24 * RETENTION_MS)
    commit(one, SetProperty("/a", "p", "new"))
    world.advance(2 * HOUR)
    collect(one)
    retention.write(one, RETENTION_MS)
    fresh = open_instance(store, world, mac=7)
    assert fresh.node(fresh.at(kept.revision), "/a").properties == {"p": "old"}  # type: ignore[union-attr]
    assert str(collection_status(fresh).hold) == f"checkpoint {revisions.to_text(kept.revision)}"
    world.advance(30 * HOUR)
    one.checkpoint_cells.remove_expired()
    collect(one)
    with pytest.raises(RevisionCollectedError):
        fresh.at(kept.revision)


def test_a_checkpoint_that_the_horizon_passes_while_it_is_made_is_removed_and_refused(
    superseded: Superseded, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, base = superseded
    change = one.checkpoint_cells.change

    def collected_first(*arguments: Any) -> None:
        if not one.journal.fence.horizon and not other.journal.fence.horizon:
            world.advance(2 * HOUR)
            collect(other)
        change(*arguments)

    monkeypatch.setattr(one.checkpoint_cells, "change", collected_first)
    with pytest.raises(RevisionCollectedError):
        checkpoints.keep_for(one, base, RETENTION_MS)
    assert not checkpoints.all_of(other)


def test_a_branch_that_the_horizon_passes_while_it_begins_is_ended_and_refused(
    superseded: Superseded, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, base = superseded
    make_id = one.clock.next

    def collected_first(*arguments: Any, **options: Any) -> int:
        world.advance(2 * HOUR)
        collect(other)
        return make_id(*arguments, **options)

    monkeypatch.setattr(one.clock, "next", collected_first)
    with pytest.raises(RevisionCollectedError):
        one.begin_branch(base)
    world.advance(2 * HOUR)
    assert len(other.sweep_branches(None)) == 1


def test_an_announced_horizon_is_withdrawn_for_a_branch_that_it_would_pass(superseded: Superseded) -> None:
    one, other, base = superseded
    last = other.head().revision
    found = fence.read_horizon(other.store)
    announced = found._replace(announced=last, nonce=fence.new_nonce(other.runtime))
    assert fence.replace(other.store, found, announced)
    branch = one.begin_branch(base)
    assert fence.read_horizon(other.store).announced == 0
    assert not fence.replace(other.store, announced, announced._replace(revision=last))
    assert one.node(one.branch(branch).view, "/a").properties == {"p": 0}  # type: ignore[union-attr]


def test_a_reader_forgets_horizons_that_it_has_known_for_long(store: MemoryStore, world: World) -> None:
    one, reader = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    for number in range(20):
        commit(one, SetProperty("/a", "p", number + 1))
        world.advance(2 * HOUR)
        collect(one)
        reader.poll()
    assert reader.journal.fence.horizon == one.journal.fence.horizon
    assert len(reader.journal.fence._horizon._times) <= 2
