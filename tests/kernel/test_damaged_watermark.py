"""A watermark that no instance can have written: nobody opens the repository, or claims ids after it."""

from __future__ import annotations

import pytest

from hbasemk import FormatError, Repository
from hbasemk.check import check_unopened
from hbasemk.check import problem as kinds
from hbasemk.format import revisions, schema
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get, NewCell, Put, Store
from hbasemk.store.memory import MemoryStore
from tests.support.older import commit
from tests.support.runtime import TestRuntime, World, open_instance


def put_watermark(store: Store, data: bytes) -> bytes:
    """Replace the watermark; return what it was."""
    (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK,))])
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.WATERMARK, data)])])
    return row.cells[0].value


@pytest.mark.parametrize("years", [0, 1, 10])
def test_a_watermark_above_that_of_the_claims_is_damage(world: World, years: int) -> None:
    store = MemoryStore(world.clock)
    one, two = open_instance(store, world, mac=0x11), open_instance(store, world, mac=0x22)
    above = revisions.later(commit(one, AddNode("/a", {})), years * 365 * 24 * 3600 * 1000 + 1)
    right = put_watermark(store, revisions.to_bytes((above,)))
    expected = rf"watermark is {revisions.to_text(above)}, and the watermark in the counter of claims"
    with pytest.raises(FormatError, match=expected):
        Instance.open(store, TestRuntime(world), create=False)
    with pytest.raises(FormatError, match=expected):
        commit(two, AddNode("/b", {}))
    put_watermark(store, right)
    assert commit(two, AddNode("/b", {})) < above


@pytest.mark.parametrize("transactions", [False, True])
def test_a_watermark_that_is_a_branch_revision_is_damage(world: World, transactions: bool) -> None:
    store = MemoryStore(world.clock, transactions=transactions)
    instance = open_instance(store, world)
    branch = instance.branches.begin(instance.head())
    right = put_watermark(store, revisions.to_bytes((branch,)))
    with pytest.raises(FormatError, match=r"the first one is a branch revision .*column d:b'watermark'"):
        Instance.open(store, TestRuntime(world), create=False)
    put_watermark(store, right)


@pytest.mark.parametrize("years", [0, 10])
def test_a_watermark_above_all_revisions_is_damage_where_all_writes_have_an_order(
    world: World, ordered_store: Store, years: int
) -> None:
    one = open_instance(ordered_store, world, mac=0x11)
    above = revisions.later(commit(one, AddNode("/a", {})), years * 365 * 24 * 3600 * 1000 + 1)
    right = put_watermark(ordered_store, revisions.to_bytes((above,)))
    expected = rf"watermark is {revisions.to_text(above)}, and all revisions are lower .*column d:b'watermark'"
    opened = Instance.open(ordered_store, TestRuntime(world), create=False)
    with pytest.raises(FormatError, match=expected) as caught:
        opened.require_revisions()
    with pytest.raises(FormatError, match=expected):
        Repository(ordered_store, create=False, poll_interval=0)
    assert kinds.WATERMARK in {found.kind for found in check_unopened(one.store, one.runtime, caught.value)}
    put_watermark(ordered_store, right)
    open_instance(ordered_store, world, mac=0x22).require_revisions()


@pytest.mark.parametrize("years", [0, 10])
def test_an_instance_that_is_open_makes_no_ids_above_a_watermark_that_is_above_all_revisions(
    world: World, years: int
) -> None:
    # A commit goes step by step.
    store = MemoryStore(world.clock, transactions=True, batch_rows=1)
    instance = open_instance(store, world)
    first = commit(instance, AddNode("/a", {}))
    right = put_watermark(store, revisions.to_bytes((revisions.later(first, years * 365 * 24 * 3600 * 1000 + 1),)))
    world.advance(1)
    with pytest.raises(FormatError, match="and all revisions are lower"):
        commit(instance, AddNode("/b", {}))
    put_watermark(store, right)
    assert revisions.ms_of(commit(instance, AddNode("/b", {}))) - revisions.ms_of(first) < 10_000
