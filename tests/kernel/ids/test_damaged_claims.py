"""A damaged counter of claims: no process repeats its claim forever, or claims without protection."""

from __future__ import annotations

import pytest

from hbasemk import FormatError
from hbasemk.check import IntegrityCheck
from hbasemk.check import problem as kinds
from hbasemk.format import schema
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Cell, Get, NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.older import commit
from tests.support.runtime import TestRuntime, World, open_instance


def claims(store: MemoryStore) -> Cell:
    (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.CLAIMS,))])
    (cell,) = row.cells
    return cell


@pytest.mark.parametrize("counter", [0, 1, 2**40])
def test_a_counter_that_differs_from_its_timestamp_is_damage(world: World, counter: int) -> None:
    store = MemoryStore(world.clock)
    commit(open_instance(store, world, mac=0x11), AddNode("/a", {}))
    commit(open_instance(store, world, mac=0x22), AddNode("/b", {}))
    reader = open_instance(store, world, mac=0x33)
    cell = claims(store)
    assert int.from_bytes(cell.value[:8], "big") == cell.timestamp > 1
    damaged = NewCell(*schema.CLAIMS, counter.to_bytes(8, "big") + cell.value[8:], cell.timestamp)
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [damaged])])
    expected = rf"counter of claims must be {cell.timestamp}, its timestamp, .*row b'settings', column d:b'claims'"
    with pytest.raises(FormatError, match=expected):
        commit(reader, AddNode("/c", {}))
    with pytest.raises(FormatError, match=expected):
        Instance.open(store, TestRuntime(world), create=False)
    assert claims(store).value == damaged.value
    problems = [one for one in IntegrityCheck(reader).run() if one.kind == kinds.SETTINGS]
    assert [schema.CLAIMS[1].decode() in one.detail for one in problems] == [True]
    store.write(schema.CLUSTER, [Put(schema.SETTINGS_ROW, [NewCell(*schema.CLAIMS, cell.value, cell.timestamp)])])
