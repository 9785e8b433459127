"""Damaged marks that polls read: an instance raises an error instead of taking undecided revisions for decided ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk import FormatError
from hbasemk.check import IntegrityCheck
from hbasemk.format import revisions, schema
from hbasemk.format.horizon import NONCE_BYTES, Horizon
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.store.abc import Cell, Column, Get, NewCell, Put, Store
from hbasemk.store.memory import MemoryStore
from tests.support.older import commit
from tests.support.runtime import World, open_instance

COPY = (schema.CLUSTER, schema.LOGS_HEAD, schema.WATERMARK)
HORIZON = (schema.CLUSTER, schema.LOGS_TAIL, schema.HORIZON)
ARRIVAL = (schema.CLUSTER, schema.SETTINGS_ROW, schema.ARRIVAL)
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


def test_a_horizon_above_all_revisions_is_damage_where_all_writes_have_an_order(
    world: World, ordered_store: Store
) -> None:
    instance = open_instance(ordered_store, world)
    commit(instance, AddNode("/a", {}))
    for horizon in (instance.head().revision + 1, revisions.MAX_REVISION):
        data = horizon.to_bytes(8, "big")
        ordered_store.write(schema.JOURNAL, [Put(NOTICE[1], [NewCell(*NOTICE[2], data)])])
        with pytest.raises(
            FormatError, match=r"horizon in the journal .*table 'journal', row .*, column d:b'committed'"
        ):
            instance.poll()
    ordered_store.write(schema.JOURNAL, [Put(NOTICE[1], [NewCell(*NOTICE[2], bytes(8))])])


@pytest.mark.parametrize("above", [1, 2**40])
def test_an_arrival_number_above_the_last_one_is_damage(world: World, ordered_store: Store, above: int) -> None:
    instance = open_instance(ordered_store, world)
    commit(instance, AddNode("/a", {"n": 0}))
    instance.recovery.advance()
    commit(instance, SetProperty("/a", "n", 1))
    (cell,) = cells(ordered_store, *ARRIVAL)
    last = ordered_store.arrivals(schema.JOURNAL, 0, 1000, ()).last
    for number, is_damaged in ((last + above, True), (last, False)):
        put = Put(ARRIVAL[1], [NewCell(*ARRIVAL[2], number.to_bytes(8, "big"))])
        ordered_store.write(schema.CLUSTER, [put])
        found = [str(one) for one in IntegrityCheck(instance).run()]
        assert any(f"the arrival number {number} is above the last one" in one for one in found) is is_damaged
        if is_damaged:
            with pytest.raises(FormatError, match=r"arrival number .* row b'settings', column d:b'arrival'"):
                open_instance(ordered_store, world, mac=0x22)
    ordered_store.write(schema.CLUSTER, [Put(ARRIVAL[1], [NewCell(*ARRIVAL[2], cell.value)])])
    other = open_instance(ordered_store, world, mac=0x33)
    assert other.reader.require(other.head(), "/a").properties["n"] == 1


def test_the_check_names_a_horizon_above_the_watermark(world: World) -> None:
    store = MemoryStore(world.clock)
    instance = open_instance(store, world)
    commit(instance, AddNode("/a", {}))
    above = instance.head().revision + 1
    store.write(schema.CLUSTER, [Put(HORIZON[1], [NewCell(*HORIZON[2], published(above))])])
    assert any("it is the horizon, and the watermark is" in str(one) for one in IntegrityCheck(instance).run())
    store.write(schema.CLUSTER, [Put(HORIZON[1], [NewCell(*HORIZON[2], published(0))])])
