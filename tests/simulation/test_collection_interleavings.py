"""A collector beside one other process: all interleavings with at most two switches, and crashes at each store call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.errors import HbasemkError
from hbasemk.format import schema
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import ALL_VERSIONS, Scan
from hbasemk.store.memory import MemoryStore
from tests.support import proof
from tests.support.runtime import World, open_instance
from tests.support.simulation import beside_collector, collection_mutants
from tests.support.simulation.beside_collector import KINDS, RETENTION_MS, Explored, Prepared
from tests.support.simulation.crashes.sites import WAYS, Died, Steps
from tests.support.simulation.trees import check_tables, tree

SAMPLE = ("reader of an old snapshot", "begin branch", "merge on an old view", "poll of a sleeper")
"""What always runs beside a collector on a store without an order of writes."""


@pytest.fixture(autouse=True)
def without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    beside_collector.without_time(monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("name", "every", "ordered", "full"),
    [
        *(pytest.param(name, 31, True, False, id=f"{name}, ordered, a sample") for name in KINDS),
        *(pytest.param(name, 1, True, False, id=f"{name}, ordered", marks=proof.PROOF) for name in KINDS),
        *(pytest.param(name, 61, False, False, id=f"{name}, unordered, a sample") for name in SAMPLE),
        *(pytest.param(name, 7, False, False, id=f"{name}, unordered", marks=proof.PROOF) for name in KINDS),
        *(pytest.param(name, 97, False, True, id=f"{name}, all rows, unordered, a sample") for name in SAMPLE[:2]),
        *(pytest.param(name, 13, False, True, id=f"{name}, all rows, unordered", marks=proof.PROOF) for name in KINDS),
    ],
)
def test_a_collector_beside(name: str, every: int, ordered: bool, full: bool) -> None:
    explored = Explored(name, ordered, full=full)
    found = explored.find(every)
    assert found is None, found
    print(
        f"{name}: {explored.represented} interleavings, of which {explored.runs} differ and ran, {explored.refused} refused, "
        f"{explored.deleted} cells deleted"
    )
    assert explored.deleted


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("mutant", "name", "ordered"),
    [
        (collection_mutants.branches_listed_before_the_announcement, "begin branch", True),
        (collection_mutants.branches_listed_before_the_announcement, "begin branch", False),
        (collection_mutants.the_horizon_is_read_before_the_branch_is_written, "begin branch", False),
        # With an order, another transaction publishes the horizon.
        (collection_mutants.horizon_without_compare_and_set, "begin branch", False),
        (collection_mutants.read_back_not_checked, "commit on an old base", True),
        (collection_mutants.read_back_not_checked, "commit on an old base", False),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_interleavings_find(
    mutant: Callable[[pytest.MonkeyPatch], None], name: str, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    explored = Explored(name, ordered)
    mutant(monkeypatch)
    # Random schedules find these in one of a thousand, or more rarely.
    found = explored.find(1)
    assert found is not None
    print(found.splitlines()[0])


def test_a_collector_that_another_one_has_passed_reads_the_tree_after_a_poll() -> None:
    # Its own head is then below the horizon, and it may not read it any more.
    explored = Explored("another collector", False)
    run = beside_collector.Run(explored.prepared, explored.kind)
    run.go((0, 3, 7))
    run.check(explored.final)


def cells(store: MemoryStore) -> dict[tuple[str, bytes], list[Any]]:
    """Return the cells of nodes and of the journal, whose timestamps are the time of the write and do not count."""
    return {
        (table, row.key): [(*cell[:2], cell.value if table == schema.JOURNAL else cell.timestamp) for cell in row.cells]
        for table in (schema.NODES, schema.JOURNAL)
        for row in store.scan(table, Scan(None, None, 10_000, versions=ALL_VERSIONS))
    }


def collect_all(one: Instance) -> None:
    """Collect until nothing is left. Without an order of writes, a run deletes the journal rows that an earlier one has used."""
    for _ in range(1 if one.store.supports_transactions else 2):
        Collector(one).run(RETENTION_MS)


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
@pytest.mark.parametrize("way", proof.sampled(WAYS, lambda position, _: position in (1, 3)))
def test_a_collector_that_fails_at_any_store_call_is_continued_by_another(way: str, ordered: bool) -> None:
    prepared = Prepared(ordered)

    def site() -> tuple[MemoryStore, World, Steps, Instance]:
        world = World(int(prepared.ms))
        store = prepared.store.clone(world.clock)
        steps = Steps(store)
        return store, world, steps, open_instance(steps, world, mac=2)

    store, _, steps, one = site()
    steps.fail(-1, "")
    before = tree(one, one.head())
    steps.steps = 0
    collect_all(one)
    assert cells(store) != cells(prepared.store)
    undisturbed, calls = cells(store), steps.steps
    trimmed = sum(table == schema.JOURNAL for table, _ in cells(prepared.store).keys() - undisturbed.keys())
    assert trimmed > 3
    assert calls > 20
    for at in range(calls):
        store, world, steps, one = site()
        steps.fail(at, way)
        with contextlib.suppress(Died, HbasemkError):
            collect_all(one)
        steps.heal()
        other = open_instance(store, world, mac=3)
        assert tree(other, other.head()) == before, f"{way} at {at}"
        collect_all(other)
        assert cells(store) == undisturbed, f"{way} at {at}"
        assert tree(other, other.head()) == before
        check_tables(other)
