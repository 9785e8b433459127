"""A run that looks at everything finds what the journal does not name; an estimate counts all kinds."""

from __future__ import annotations

import io
from typing import Any

import pytest

from hbasemk.check import IntegrityCheck
from hbasemk.check import blobs as check_blobs
from hbasemk.check import problem as kinds
from hbasemk.errors import NodeDeletedError, NodeNotFoundError
from hbasemk.format import paths, revisions, schema
from hbasemk.kernel import blobs as kernel_blobs
from hbasemk.kernel.collection import every_row, journal_rows
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.collection.progress import Progress
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import ALL_VERSIONS, NewCell, Put, Scan
from hbasemk.store.memory import MemoryStore
from tests.support.branches import commit_on_branch
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, commit
from tests.support.runtime import World, open_instance
from tests.support.simulation import collection_mutants
from tests.support.simulation.crashes.sites import tree


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kernel_blobs, check_blobs):
        monkeypatch.setattr(module, "CHUNK", 4)


def cells(store: MemoryStore) -> list[Any]:
    rows = store.scan(schema.NODES, Scan(None, None, 1000, versions=ALL_VERSIONS))
    return [(row.key, *cell[:3]) for row in rows for cell in row.cells]


def filled(store: MemoryStore, world: World) -> Instance:
    """A repository in which much can be collected, of nodes, deletions and an ended branch."""
    one = open_instance(store, world)
    commit(one, *(AddNode(f"/{n}", {"p": 0}) for n in range(7)), AddNode("/0/a", {}))
    at = commit_on_branch(one, one.begin_branch(one.head()), [SetProperty("/1", "p", 5)])
    for number in range(3):
        commit(one, *(SetProperty(f"/{n}", "p", number) for n in range(5)))
    commit(one, RemoveNode("/5"), RemoveNode("/0"))
    one.abandon_branch(at)
    world.advance(2 * HOUR)
    one.sweep_branches(None)
    commit(one, AddNode("/late", {}))
    world.advance(2 * HOUR)
    commit(one, AddNode("/later", {}))
    return one


@BOTH_ORDERS
def test_what_a_run_has_missed_is_found_by_a_full_one(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(every_row, "ROWS", 2)
    monkeypatch.setattr(every_row, "COLUMNS", 2)
    one = filled(store, world)
    done = Collector(one).estimate(RETENTION_MS).horizon
    # As if an earlier run had lost its deletes.
    for column, ids in ((schema.COLLECTED, Progress(done, done)), (schema.COLLECTED_ROWS, (done,))):
        put = Put(schema.SETTINGS_ROW, [NewCell(*column, revisions.to_bytes(ids))])
        store.write(schema.CLUSTER, [put])
    before = tree(one)
    stored = len(cells(store))
    assert not Collector(one).run(RETENTION_MS).cells.keys() - {journal_rows.KIND}
    left = {(found.kind, found.path, found.severity) for found in IntegrityCheck(one).run()}
    assert left == {
        (kinds.COLLECTABLE, path, kinds.LEFTOVER) for path in ("/", "/0", "/0/a", *map("/{}".format, range(1, 6)))
    }
    seen: list[tuple[str, int]] = []
    estimated = Collector(one).estimate(RETENTION_MS, full=True)
    report = Collector(one, progress=lambda *one: seen.append(one)).run(RETENTION_MS, full=True)
    assert report.cells == estimated.cells
    assert set(report.cells) == {
        "superseded versions",
        "cells of deleted nodes",
        "marks of deletions",
        "rows of ended branches",
    }
    assert ("nodes", 11) in seen
    assert len(cells(store)) < stored / 2
    fresh = open_instance(store, world, mac=9)
    assert tree(fresh) == before
    with pytest.raises(NodeNotFoundError) as raised:
        fresh.require(fresh.head(), "/5")
    assert not isinstance(raised.value, NodeDeletedError)
    assert not Collector(fresh).run(RETENTION_MS, full=True).cells


def test_an_estimate_counts_what_a_run_deletes(store: MemoryStore, world: World) -> None:
    one = filled(store, world)
    before = cells(store)
    estimated = Collector(one).estimate(RETENTION_MS, blobs=True)
    assert cells(store) == before
    assert estimated.cells["marks of deletions"] == 3
    assert Collector(one).run(RETENTION_MS, blobs=True).cells == estimated.cells


@BOTH_ORDERS
def test_a_full_run_after_an_ordinary_one_finds_nothing(store: MemoryStore, world: World) -> None:
    one = filled(store, world)
    assert Collector(one).run(RETENTION_MS).cells
    left = cells(store)
    # Without an order of writes, a run deletes the journal rows that an earlier run has used.
    again = Collector(one).run(RETENTION_MS, full=True).cells
    assert not again.keys() - ({journal_rows.KIND} if not store.supports_transactions else set())
    assert cells(store) == left
    assert not Collector(one).run(RETENTION_MS, full=True).cells


@BOTH_ORDERS
def test_private_cells_without_a_branch_are_deleted_and_those_of_open_branches_stay(
    store: MemoryStore, world: World
) -> None:
    one = filled(store, world)
    Collector(one).run(RETENTION_MS)
    horizon = one.journal.fence.horizon
    kept = commit_on_branch(one, one.begin_branch(one.head()), [SetProperty("/1", "p", 7)])
    lost = (horizon - (1 << 24)) | revisions.BRANCH_BIT
    store.write(schema.NODES, [Put(paths.key("/1"), [NewCell(schema.DATA, b"\x01p", b"\x01", lost)])])
    world.advance(2 * HOUR)
    commit(one, AddNode("/more", {}))
    assert Collector(one).run(RETENTION_MS, full=True).cells["cells of ended branches"] == 1
    assert lost not in {cell[3] for cell in cells(store)}
    fresh = open_instance(store, world, mac=9)
    assert fresh.require(fresh.branch(kept).view, "/1").properties == {"p": 7}
    assert not list(IntegrityCheck(fresh).run())


@BOTH_ORDERS
@pytest.mark.parametrize("retention_ms", [RETENTION_MS, 30 * 24 * RETENTION_MS], ids=["horizon", "no horizon"])
def test_chunks_of_unfinished_uploads_are_deleted_after_a_day(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch, retention_ms: int
) -> None:
    one = filled(store, world)
    one.blobs.write(io.BytesIO(b"all of it"))
    mark = one.blobs._mark

    def interrupted(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(one.blobs, "_mark", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.blobs.write(io.BytesIO(b"a part of it"))
    monkeypatch.setattr(one.blobs, "_mark", mark)
    world.advance(23 * HOUR)
    assert not Collector(one).run(retention_ms, full=True).cells["chunks of unfinished uploads"]
    world.advance(2 * HOUR)
    assert Collector(one).estimate(retention_ms, full=True).cells["chunks of unfinished uploads"] == 3
    report = Collector(one).run(retention_ms, full=True)
    assert report.cells["chunks of unfinished uploads"] == 3
    assert bool(report.horizon) is (retention_ms == RETENTION_MS)
    blob = one.blobs.write(io.BytesIO(b"a part of it"))
    assert one.blobs.read(blob) == b"a part of it"


@BOTH_ORDERS
def test_an_upload_that_continues_after_its_chunks_were_deleted_is_repeated(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = filled(store, world)
    other = open_instance(store, world, mac=2)
    Collector(one).run(RETENTION_MS)
    mark = one.blobs._mark

    def sleep_first(*arguments: Any, **options: Any) -> bool:
        monkeypatch.setattr(one.blobs, "_mark", mark)
        world.advance(26 * HOUR)
        assert Collector(other).run(RETENTION_MS, full=True).cells["chunks of unfinished uploads"] == 3
        return mark(*arguments, **options)

    monkeypatch.setattr(one.blobs, "_mark", sleep_first)
    blob = one.blobs.write(io.BytesIO(b"a part of it"))
    assert other.blobs.read(blob) == b"a part of it"


def reads_beside_a_full_run(world: World) -> bool:
    """Return whether a reader of an old snapshot, which knows no horizon yet, reads it as before."""
    store = MemoryStore(world.clock)
    one, reader = open_instance(store, world, mac=1), open_instance(store, world, mac=2)
    commit(one, AddNode("/a", {"p": 0}))
    reader.poll()
    view = reader.head()
    commit(one, SetProperty("/a", "p", 1))
    world.advance(2 * HOUR)
    commit(one, SetProperty("/a", "p", 2))
    reader.poll()
    # The run publishes a horizon, and does not wait until the reader knows it.
    Collector(one).run(RETENTION_MS, full=True, wait=False)
    assert one.journal.fence.horizon > view.revision
    return tree(reader, view) == {"/": {}, "/a": {"p": 0}}


def test_a_full_run_deletes_nothing_that_a_reader_may_still_read(world: World) -> None:
    assert reads_beside_a_full_run(world)


def test_a_full_run_up_to_a_horizon_that_readers_do_not_know_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection_mutants.all_rows_up_to_a_horizon_that_readers_do_not_know(monkeypatch)
    assert not reads_beside_a_full_run(world)
