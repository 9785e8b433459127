"""The check reports no problem because collectors delete rows that it is about to read."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.check import blobs as check_blobs
from hbasemk.errors import RevisionCollectedError
from hbasemk.format import revisions, schema
from hbasemk.kernel import blobs as kernel_blobs
from hbasemk.kernel.blobs import chunk_key
from hbasemk.kernel.checkpoints import keep_head, release
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.fence import read_horizon
from hbasemk.kernel.settings import read_watermark
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.branches import commit_on_branch
from tests.support.collecting import BOTH_ORDERS, HOUR, collect, commit
from tests.support.marking_store import store_in_memory
from tests.support.runtime import World, open_instance
from tests.support.trimming import row_of

CHUNKS = 6
"""The chunks of a blob: more than the check reads in one call."""
CONTENT = bytes(range(4 * CHUNKS))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kernel_blobs, check_blobs):
        monkeypatch.setattr(module, "CHUNK", 4)


@pytest.fixture
def store(world: World, ordered: bool) -> MemoryStore:
    """An empty store; without an order of writes, deletes leave markers, as in HBase."""
    return store_in_memory(world.clock, ordered=ordered)


@pytest.fixture
def one(store: MemoryStore, world: World) -> Instance:
    """An instance of a repository with one node."""
    one = open_instance(store, world, mac=1)
    commit(one, AddNode("/a", {"p": 0}))
    return one


def nothing() -> None:
    """Let the check go on."""


def found_beside(store: MemoryStore, world: World, *steps: tuple[str, Callable[[], Any]]) -> list[str]:
    """Return the problems that a new instance finds; each step is called after the next scan of its table."""
    faulty = FaultyStore(store)
    checking = open_instance(faulty, world, mac=2)
    left = list(steps)

    def after(call: Call) -> None:
        if left and call == Call("scan", left[0][0], 1):
            left.pop(0)[1]()

    faulty.after = after
    found = [str(problem) for problem in IntegrityCheck(checking, live=True).run()]
    assert not left
    return found


# --- blobs -----------------------------------------------------------------------------------------------


@BOTH_ORDERS
@pytest.mark.parametrize("is_stored_again", [False, True], ids=["deleted", "stored again"])
def test_a_blob_that_is_deleted_after_its_head_was_read_is_no_damage(
    one: Instance, store: MemoryStore, world: World, is_stored_again: bool
) -> None:
    one.blobs.write(io.BytesIO(CONTENT))
    for path in ("/b", "/c", "/d"):
        world.advance(3 * HOUR)
        commit(one, AddNode(path, {}))

    def delete() -> None:
        assert collect(one, blobs=True).cells["unused blobs"] == 1

    # The second call finds no more chunks.
    then = partial(one.blobs.write, io.BytesIO(CONTENT)) if is_stored_again else nothing
    assert found_beside(store, world, (schema.BLOBS, delete), (schema.BLOBS, then)) == []


@pytest.mark.damages("a chunk is missing")
@BOTH_ORDERS
def test_damage_of_a_blob_that_a_writer_uses_meanwhile_is_found(
    one: Instance, store: MemoryStore, world: World
) -> None:
    blob = one.blobs.write(io.BytesIO(CONTENT))
    key = bytes.fromhex(blob)
    store.delete_rows(schema.BLOBS, [chunk_key(key, CHUNKS - 1)])
    world.advance(3 * HOUR)
    used = one.blobs.head(key).used
    (found,) = found_beside(store, world, (schema.BLOBS, partial(one.blobs.keep, blob)))
    assert found.startswith(f"missing chunk of a blob: {blob} : chunk {CHUNKS - 1} is missing")
    assert one.blobs.head(key).used != used


# --- the watermark ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [True])
def test_the_row_of_a_watermark_that_is_trimmed_during_the_check_is_no_damage(
    one: Instance, store: MemoryStore, world: World
) -> None:
    """A dead writer held the watermark back for longer than two retentions. Without an order of writes, the view ends with it."""
    one.recovery.advance()
    mark = read_watermark(one.store).revision
    for number in range(6):
        world.advance(HOUR)
        commit(one, SetProperty("/a", "p", number))
    assert read_watermark(one.store).revision == mark

    def trim() -> None:
        collect(one)
        assert not row_of(store, mark).cells

    # The check has read the watermark, and no row of the journal.
    assert found_beside(store, world, (schema.CLUSTER, trim)) == []


# --- branches --------------------------------------------------------------------------------------------


@BOTH_ORDERS
def test_an_open_branch_that_is_swept_and_collected_during_the_check_is_no_damage(
    one: Instance, store: MemoryStore, world: World
) -> None:
    newest = commit_on_branch(one, one.begin_branch(one.head()), [SetProperty("/a", "p", 1)])
    for number in range(3):
        world.advance(3 * HOUR)
        commit(one, SetProperty("/a", "t", number))
        one.maintain()

    def sweep() -> None:
        one.sweep_branches(0)
        for _ in range(2):
            collect(one)
        assert not row_of(store, newest).cells

    # Polls read the journal, too, before the check of the nodes.
    assert found_beside(store, world, (schema.NODES, nothing), (schema.JOURNAL, sweep)) == []


# --- the checked snapshot --------------------------------------------------------------------------------


def outlast_the_retention(one: Instance, world: World) -> None:
    """Let collectors delete what the snapshot of the beginning needs, unless something keeps it."""
    for number in range(3):
        world.advance(HOUR)
        commit(one, SetProperty("/a", "p", number))
        one.recovery.advance()
    for _ in range(2):
        collect(one)


@BOTH_ORDERS
def test_a_check_that_takes_longer_than_the_retention_advises_to_make_a_checkpoint(
    one: Instance, store: MemoryStore, world: World
) -> None:
    checked = one.head().revision
    with pytest.raises(RevisionCollectedError, match="Make a checkpoint before the check") as raised:
        found_beside(store, world, (schema.NODES, partial(outlast_the_retention, one, world)))
    horizon = read_horizon(one.store).revision
    assert (raised.value.revision, raised.value.oldest) == (revisions.to_text(checked), revisions.to_text(horizon))
    assert "Use a newer one" not in str(raised.value)


@BOTH_ORDERS
def test_a_checkpoint_keeps_the_snapshot_of_a_check(one: Instance, store: MemoryStore, world: World) -> None:
    made = keep_head(one, int(24 * HOUR * 1000))
    world.advance(HOUR)
    commit(one, SetProperty("/a", "p", "after the checkpoint"))
    assert found_beside(store, world, (schema.NODES, partial(outlast_the_retention, one, world))) == []
    release(one, made.revision, made.number)
    outlast_the_retention(one, world)
    assert read_horizon(one.store).revision > made.revision
