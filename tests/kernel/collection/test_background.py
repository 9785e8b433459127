"""Background collection: a process that cannot collect leaves it to others, and damage or a failure ends no more than a run."""

from __future__ import annotations

import pytest

from hbasemk.errors import ClockSkewError, FormatError, StoreNotAppliedError
from hbasemk.format import schema
from hbasemk.kernel.collection import background, journal_rows, passed_rows, retention
from hbasemk.kernel.collection.background import BackgroundCollection
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore
from tests.support.runtime import World, open_instance
from tests.support.straggler import add

SECONDS = background.EVERY


def claim(store: MemoryStore) -> bytes | None:
    (row,) = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=(schema.COLLECTING,))])
    return row.cells[0].value if row.cells else None


def until_due(instance: Instance, world: World) -> BackgroundCollection:
    """Return a background collection whose first run is due."""
    collection = BackgroundCollection(instance.runtime)
    instance.lease.claim()
    world.advance(SECONDS)
    instance.maintain()
    return collection


def test_a_process_with_a_wrong_clock_claims_no_run(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    collection = until_due(one, world)
    one.runtime.skew_ms = 20_000  # type: ignore[attr-defined]
    with pytest.raises(ClockSkewError):
        collection.step(one)
    assert claim(store) is None


def test_a_run_that_the_store_prevents_is_repeated_soon_by_the_same_process(store: MemoryStore, world: World) -> None:
    faulty = FaultyStore(store)
    one, other = open_instance(faulty, world, mac=1), open_instance(store, world, mac=2)
    collection = until_due(one, world)

    def fail(call: Call) -> None:
        # After the claim.
        if call.table == schema.JOURNAL:
            raise StoreNotAppliedError("the disk is full")

    faulty.before = fail
    with pytest.raises(StoreNotAppliedError):
        collection.step(one)
    faulty.before = None
    assert claim(store) is not None
    other.lease.claim()
    assert not BackgroundCollection(other.runtime)._claim(other)
    world.advance(background.AGAIN + 1)
    one.maintain()
    collection.step(one)
    assert collection._running


def test_a_run_that_meets_damage_ends_until_the_next_one(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_instance(store, world)
    collection = until_due(one, world)
    collection.step(one)
    calls: list[None] = []

    def collect(*_: object) -> bool:
        calls.append(None)
        raise FormatError("a row is damaged")

    monkeypatch.setattr(Collector, "collect", collect)
    world.advance(Collector(one).grace + 1)
    one.maintain()
    with pytest.raises(FormatError):
        collection.step(one)
    for _ in range(10):
        world.advance(1)
        one.maintain()
        collection.step(one)
    assert len(calls) == 1
    monkeypatch.undo()
    world.advance(SECONDS)
    one.maintain()
    collection.step(one)
    assert collection._running


def test_no_step_makes_many_calls(store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (journal_rows, passed_rows):
        monkeypatch.setattr(module, "BATCH", 10)
    counting = CountingStore(store)
    one = open_instance(counting, world)
    retention.write(one, 60_000)
    add(one, "/a")
    for number in range(300):
        world.advance(0.1)
        one.commit(lambda _, number=number: OperationList([SetProperty("/a", "n", number)]), "")  # type: ignore[misc]
    collection = until_due(one, world)
    made = []
    for _ in range(500):
        world.advance(1 if collection._running else SECONDS + 70)
        one.poll()
        one.maintain()
        add(one, f"/{len(made)}")
        counting.take()
        collection.step(one)
        made.append(sum(counting.take().values()))
        if collection.report.cells[journal_rows.KIND] and not collection._running:
            break
    assert collection.report.cells[journal_rows.KIND] > 200
    # Without the limit, one step deletes all of these rows, in more than 100 calls.
    assert max(made) < 60, made
