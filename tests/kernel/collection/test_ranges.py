"""Ranges of versions that a collector deletes, and damaged checkpoints, which hold it back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from hbasemk.format import paths, schema
from hbasemk.format.checkpoint import list_column
from hbasemk.kernel import checkpoints
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import CellVersion, DeleteBelow, NewCell, Put
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import HOUR, RETENTION_MS, commit
from tests.support.runtime import World, open_instance


def collect(instance: Instance) -> Any:
    return Collector(instance).run(RETENTION_MS)


def test_many_versions_of_a_column_go_as_one_range(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    for number in range(1, 30):
        commit(one, SetProperty("/a", "p", number))
    world.advance(2 * HOUR)
    ranges: list[CellVersion] = []
    delete_below = one.store.delete_below

    def record(table: str, deletes: Iterable[DeleteBelow]) -> None:
        deletes = list(deletes)
        ranges.extend(cell for delete in deletes for cell in delete.cells if delete.row == paths.key("/a"))
        delete_below(table, deletes)

    monkeypatch.setattr(one.store, "delete_below", record)
    assert collect(one).cells["superseded versions"] >= 2 * 28
    assert len({cell[:2] for cell in ranges}) == len(ranges) == 2


@pytest.mark.damages("the list of a checkpoint")
def test_a_damaged_list_of_a_checkpoint_holds_the_horizon_back(store: MemoryStore, world: World) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": 0}))
    kept = checkpoints.keep_for(one, one.head(), 24 * RETENTION_MS)
    commit(one, SetProperty("/a", "p", 1))
    commit(one, SetProperty("/a", "p", 2))
    damaged = Put(schema.SETTINGS_ROW, [NewCell(*list_column(kept.revision), bytes(30))])
    store.write(schema.CLUSTER, [damaged])
    world.advance(2 * HOUR)
    report = collect(one)
    assert report.horizon <= kept.revision
