"""Folds: totals of slots that are no longer used become one value."""

from __future__ import annotations

import pytest

from hbasemk import Repository
from hbasemk.check import IntegrityCheck
from hbasemk.errors import FormatError, StoreNotAppliedError
from hbasemk.format import paths, schema
from hbasemk.kernel.commit import folds, slots
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import Adjust
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.collecting import RETENTION_MS, collect, set_grace
from tests.support.repositories import problems
from tests.support.runtime import World, open_instance


def adjust(instance: Instance, by: int) -> int:
    return instance.commit(lambda _: OperationList([Adjust("/a", "n", by)]), "", retry_timeout=9, max_poll_age=0)


def crowd(world: World, store: MemoryStore, machines: int) -> None:
    """Adjust a property by processes with different machine ids, which end."""
    for mac in range(machines):
        one = open_instance(store, world, mac=0x100 + mac)
        adjust(one, 1)
        one.close()


def after_a_crowd(world: World, store: MemoryStore, machines: int, number: int) -> Instance:
    """Return an instance that has adjusted a number once, an hour after the last of many processes that have ended."""
    with Repository(store, owns_store=False, poll_interval=0) as made:
        made.run(lambda tx: tx.add("/a", {"n": number}))
    crowd(world, store, machines)
    last = open_instance(store, world, mac=1)
    world.advance(3700)
    adjust(last, 1)
    return last


def test_slots_of_ended_leases_are_folded_after_an_hour(
    world: World, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "MANY", 6)
    last = open_instance(store, world, mac=1)
    last.commit(lambda _: OperationList([]), "", retry_timeout=9, max_poll_age=0)
    with Repository(store, owns_store=False, poll_interval=0) as made:
        made.run(lambda tx: tx.add("/a", {"n": 100}))
    crowd(world, store, 8)
    last.poll()
    old = last.head()

    def totals() -> int:
        last.poll()
        return len(last.require(last.head(), "/a").property_of("n").totals)

    adjust(last, 1)
    last.maintain()
    assert totals() == 9, "they were folded within an hour of their last use"
    world.advance(3700)
    last.maintain()
    adjust(last, 1)
    last.maintain()
    assert totals() == 1
    assert last.require(last.head(), "/a").properties["n"] == 110
    assert last.require(old, "/a").properties["n"] == 108
    adjust(last, 1)
    (row,) = store.read(schema.NODES, [Get(paths.key("/a"), columns=[schema.property_column("n")])])
    assert row.cells[0].value[:1] == b"\x0b"
    with Repository(store, owns_store=False, poll_interval=0) as other:
        assert other.head["/a"]["n"] == 111
        assert [entry for entry in other.log() if entry.message == folds.MESSAGE] == []
        assert [entry for entry in other.log("/a") if entry.message == folds.MESSAGE] == []
        with other.watch(since=other.at(f"{old.revision:016x}"), timeout=0.01) as watch:
            assert [entry.message for entry in watch] == ["", "", ""]
        # The value of a set that has seen the folded totals stays, and its kind too.
        other.run(lambda tx: tx.set("/a", "n", 5.0))
        assert other.head["/a"]["n"] == 5.0
        assert problems(other) == []
    last.close()


def test_a_collector_deletes_the_slots_that_a_fold_has_emptied(
    world: World, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "MANY", 6)
    set_grace(monkeypatch, 0)
    last = after_a_crowd(world, store, 8, 100)
    before = last.require(last.head(), "/a").version
    last.maintain()
    last.poll()
    folded = last.require(last.head(), "/a").version
    assert folded != before

    def slots_read() -> int:
        (row,) = store.read(schema.NODES, [Get(paths.key("/a"))])
        return sum(1 for cell in row.cells if schema.is_slot((cell.family, cell.qualifier)))

    assert slots_read() == 9
    world.advance(RETENTION_MS / 1000 + 60)
    adjust(last, 0)
    for _ in range(3):
        collect(last)
        world.advance(60)
        last.poll()
        last.maintain()
    assert slots_read() == 1
    fresh = open_instance(store, world, mac=2)
    for one in (last, fresh):
        state = one.require(one.head(), "/a")
        assert (state.version, state.properties["n"]) == (folded, 109)
    adjust(fresh, 1)
    assert fresh.require(fresh.head(), "/a").properties["n"] == 110
    assert [str(problem) for problem in IntegrityCheck(fresh).run()] == []


def test_a_fold_that_loses_is_dropped(world: World, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MANY", 2)
    last = after_a_crowd(world, store, 4, 0)
    view = last.head()
    with Repository(store, owns_store=False, poll_interval=0) as made:
        made.run(lambda tx: tx.set("/a", "n", 7))
    last.periodic_work._folds._fold(view, ("/a", "n"))
    last.poll()
    assert last.require(last.head(), "/a").properties["n"] == 7
    last.close()


@pytest.mark.parametrize("is_damage", [False, True])
def test_a_fold_that_fails_stops_no_other(
    world: World, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, is_damage: bool
) -> None:
    monkeypatch.setattr(slots, "MANY", 6)
    names = ["m", "n"]
    with Repository(store, owns_store=False, poll_interval=0) as made:
        made.run(lambda tx: tx.add("/a", dict.fromkeys(names, 0)))
    both = OperationList([Adjust("/a", name, 1) for name in names])
    for mac in range(8):
        one = open_instance(store, world, mac=0x100 + mac)
        one.commit(lambda _: both, "", retry_timeout=9, max_poll_age=0)
        one.close()
    faulty = FaultyStore(store)
    last = open_instance(faulty, world, mac=1)
    world.advance(3700)
    last.commit(lambda _: both, "", retry_timeout=9, max_poll_age=0)
    failed: list[Call] = []

    def fail(call: Call) -> None:
        if call.table == schema.NODES and not (is_damage and failed):
            failed.append(call)
            raise FormatError("a cell is damaged") if is_damage else StoreNotAppliedError("the disk is full")

    def totals() -> list[int]:
        last.poll()
        return sorted(len(last.require(last.head(), "/a").property_of(name).totals) for name in names)

    faulty.before = fail
    with pytest.raises(FormatError if is_damage else StoreNotAppliedError):
        last.maintain()
    faulty.before = None
    last.maintain()
    # Only what is damaged is not tried again soon.
    assert totals() == [1, 9] if is_damage else [1, 1]
    last.close()
