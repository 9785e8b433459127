"""The journal row by which polls learn the horizon and the trim level, if it is damaged."""

from __future__ import annotations

import pytest

from hbasemk.check import IntegrityCheck, check_unopened
from hbasemk.check import problem as kinds
from hbasemk.errors import FormatError
from hbasemk.format import schema
from hbasemk.format.trim_level import TrimLevel
from hbasemk.kernel import checkpoints
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.store.abc import Column, NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import HOUR, RETENTION_MS, cells, collect, commit
from tests.support.runtime import World, open_instance
from tests.support.simulation.crashes.sites import tree

KEY = schema.revision_key(schema.NOTICE)


@pytest.fixture
def one(store: MemoryStore, world: World) -> Instance:
    """An instance of a repository with a horizon and a trim level, below further revisions."""
    instance = open_instance(store, world)
    commit(instance, AddNode("/a", {"p": 0}))
    for number in range(3):
        world.advance(2 * HOUR)
        commit(instance, SetProperty("/a", "p", number + 1))
        collect(instance)
    world.advance(2 * HOUR)
    return instance


def damage(store: MemoryStore, column: Column, value: bytes) -> None:
    store.write(schema.JOURNAL, [Put(KEY, [NewCell(*column, value)])])


def restore(one: Instance) -> None:
    """Write again what the settings row has."""
    horizon, level = fence.read_horizon(one.store).revision, fence.read_trim_level(one.store)
    values = [(schema.NOTICE_HORIZON, horizon.to_bytes(8, "big")), (schema.NOTICE_TRIMMED, level.encode())]
    one.store.write(schema.JOURNAL, [Put(KEY, [NewCell(*column, value) for column, value in values])])


def problems(one: Instance) -> list[str]:
    return [found.kind for found in IntegrityCheck(one).run()]


@pytest.mark.parametrize("value", [b"short", b"longer than a revision"])
def test_polls_report_a_horizon_that_is_no_revision(one: Instance, store: MemoryStore, value: bytes) -> None:
    """A long one ended `hbasemk log` with OverflowError, and a short one counted as a low horizon."""
    damage(store, schema.NOTICE_HORIZON, value)
    with pytest.raises(FormatError, match="the horizon in the journal must be a revision id of 8 bytes") as raised:
        one.poll()
    assert [found.kind for found in check_unopened(store, one.runtime, raised.value)] == [kinds.JOURNAL_VALUE]
    restore(one)
    one.poll()


@pytest.mark.parametrize("difference", [1 << 40, -(1 << 40)])
def test_the_check_compares_the_horizon_that_polls_read(one: Instance, store: MemoryStore, difference: int) -> None:
    horizon = fence.read_horizon(one.store).revision
    damage(store, schema.NOTICE_HORIZON, (horizon + difference).to_bytes(8, "big"))
    assert problems(one) == [kinds.JOURNAL_VALUE]
    restore(one)
    assert problems(one) == []


def test_the_check_compares_the_trim_level_that_polls_read(one: Instance, store: MemoryStore) -> None:
    level = fence.read_trim_level(one.store)
    assert level.revision
    damage(store, schema.NOTICE_TRIMMED, TrimLevel(level.arrival + 1, level.revision).encode())
    assert problems(one) == [kinds.JOURNAL_VALUE]
    restore(one)
    assert problems(one) == []


def test_the_check_reports_a_missing_notice(one: Instance, store: MemoryStore) -> None:
    store.delete_rows(schema.JOURNAL, [KEY])
    assert problems(one) == [kinds.JOURNAL_VALUE]
    restore(one)


def test_nothing_is_deleted_for_a_horizon_that_only_the_notice_shows(
    one: Instance, store: MemoryStore, world: World
) -> None:
    """A collector deleted what a checkpoint keeps."""
    kept = one.head()
    checkpoints.keep(one, kept, world.clock() + 30 * 24 * 3_600_000, "kept")
    for number in range(3):
        commit(one, SetProperty("/a", "p", number + 10))
    collect(one)
    one.recovery.advance()
    before = cells(store, "/a")
    damage(store, schema.NOTICE_HORIZON, one.head().revision.to_bytes(8, "big"))
    fresh = open_instance(store, world, mac=2)
    with pytest.raises(FormatError, match="polls have read"):
        Collector(fresh).run(RETENTION_MS)
    assert cells(store, "/a") == before
    restore(one)
    assert tree(open_instance(store, world, mac=3), kept) == {"/": {}, "/a": {"p": 3}}
