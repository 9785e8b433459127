"""Damaged marks that polls read: an instance raises an error instead of taking undecided revisions for decided ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk import FormatError
from hbasemk.check import IntegrityCheck
from hbasemk.format import schema
from hbasemk.format.horizon import NONCE_BYTES, Horizon
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.store.abc import Cell, Column, Get, NewCell, Put, Store
from hbasemk.store.memory import MemoryStore
from tests.support.older import commit
from tests.support.runtime import World, open_instance

COPY = (schema.CLUSTER, schema.LOGS_HEAD, schema.WATERMARK)
HORIZON = (schema.CLUSTER, schema.LOGS_TAIL, schema.HORIZON)
NOTICE = (schema.JOURNAL, schema.revision_key(schema.NOTICE), schema.NOTICE_HORIZON)


def cells(store: Store, table: str, row: bytes, column: Column) -> list[Cell]:
    return list(store.read(table, [Get(row, columns=(column,))])[0].cells)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: bytes([data[0] ^ 0x10]) + data[1:],
        lambda data: data[:7] + bytes([data[7] ^ 1]),
        lambda data: b"\xff" * 8,
        lambda data: data[:7],
        lambda data: data + b"\0",
        lambda data: b"",
    ],
)
def test_a_copy_of_the_watermark_that_differs_from_its_timestamp_is_damage(
    world: World, damage: Callable[[bytes], bytes]
) -> None:
    store = MemoryStore(world.clock)
    one, two = open_instance(store, world, mac=0x11), open_instance(store, world, mac=0x22)
    commit(one, AddNode("/a", {"n": 0}))
    one.recovery.advance()
    (cell,) = cells(store, *COPY)
    store.write(schema.CLUSTER, [Put(COPY[1], [NewCell(*COPY[2], damage(cell.value), cell.timestamp)])])
    for instance in (one, two):
        with pytest.raises(FormatError, match=r"copy of the watermark .* row b'log', column d:b'watermark'"):
            instance.poll()
    store.write(schema.CLUSTER, [Put(COPY[1], [NewCell(*COPY[2], cell.value, cell.timestamp)])])
    commit(two, SetProperty("/a", "n", 1))


def published(horizon: int) -> bytes:
    return Horizon(horizon, horizon, bytes(NONCE_BYTES)).encode()


@pytest.mark.parametrize(
    ("place", "data"), [(HORIZON, published(2**63)), (HORIZON, published(2**64 - 1)), (NOTICE, b"\xff" * 8)]
)
def test_a_horizon_that_is_no_revision_id_is_damage(
    world: World, place: tuple[str, bytes, Column], data: bytes
) -> None:
    store = MemoryStore(world.clock, transactions=place == NOTICE)
    instance = open_instance(store, world)
    table, row, column = place
    store.write(table, [Put(row, [NewCell(*column, data)])])
    with pytest.raises(FormatError, match="must be .*revision id"):
        instance.poll()
    store.write(table, [Put(row, [NewCell(*column, bytes(8) if place == NOTICE else published(0))])])


def test_the_check_names_a_horizon_above_the_watermark(world: World) -> None:
    store = MemoryStore(world.clock)
    instance = open_instance(store, world)
    commit(instance, AddNode("/a", {}))
    above = instance.head().revision + 1
    store.write(schema.CLUSTER, [Put(HORIZON[1], [NewCell(*HORIZON[2], published(above))])])
    assert any("it is the horizon, and the watermark is" in str(one) for one in IntegrityCheck(instance).run())
    store.write(schema.CLUSTER, [Put(HORIZON[1], [NewCell(*HORIZON[2], published(0))])])
