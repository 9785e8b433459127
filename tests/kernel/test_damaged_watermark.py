"""A watermark that no instance can have written: nobody opens the repository, or claims ids after it."""

from __future__ import annotations

import pytest

from hbasemk import FormatError
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
