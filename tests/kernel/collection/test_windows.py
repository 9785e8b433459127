"""Windows of the journal: small ones, but larger ones for a hot node in a store that steps over newer versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from hbasemk.format import paths, schema
from hbasemk.kernel.collection import collector
from hbasemk.kernel.collection.collector import Collector, Report
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import Get, Row
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import BOTH_ORDERS, HOUR, RETENTION_MS, cells, commit
from tests.support.runtime import World, open_instance

pytestmark = BOTH_ORDERS

WINDOW = 4
HOT_CHANGES = 20
REVISIONS = 40


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "WINDOW", WINDOW)
    monkeypatch.setattr(collector, "HOT_CHANGES", HOT_CHANGES)


@pytest.fixture
def reads(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """How often each row of ``nodes`` is read."""
    found: Counter[bytes] = Counter()
    read = store.read

    def counted(table: str, gets: Sequence[Get]) -> list[Row]:
        if table == schema.NODES:
            found.update({get.row for get in gets})
        return read(table, gets)

    monkeypatch.setattr(store, "read", counted)
    return found


def begun(store: MemoryStore, world: World, nodes: int) -> Instance:
    """Return an instance that has added so many nodes, and then changed one of them in each revision, by turns."""
    one = open_instance(store, world)
    commit(one, *(AddNode(f"/{number}", {"p": 0}) for number in range(nodes)))
    world.advance(1)
    for number in range(REVISIONS):
        commit(one, SetProperty(f"/{number % nodes}", "p", number))
    world.advance(2 * HOUR)
    Collector(one).publish(RETENTION_MS)
    world.advance(60)
    one.poll()
    return one


def test_a_hot_node_is_read_once_for_many_revisions_where_old_reads_step_over_newer_versions(
    store: MemoryStore, world: World, reads: Counter[bytes]
) -> None:
    one = begun(store, world, nodes=1)
    reads.clear()
    report = Report()
    assert Collector(one).collect(RETENTION_MS, report)
    assert report.revisions == REVISIONS + 1
    windows = REVISIONS / (WINDOW if store.supports_transactions else HOT_CHANGES)
    # The revision that added the node has a row more.
    assert windows <= reads[paths.key("/0")] <= windows + 2
    assert len([1 for qualifier, _ in cells(store, "/0") if qualifier == b"\x01p"]) == 1


def test_windows_of_many_nodes_stay_small(store: MemoryStore, world: World) -> None:
    one = begun(store, world, nodes=20)
    report = Report()
    assert not Collector(one).collect(RETENTION_MS, report, windows=1)
    assert report.revisions <= WINDOW + 1
    assert Collector(one).collect(RETENTION_MS, report)
    assert report.revisions == REVISIONS + 1


def test_a_window_of_a_hot_node_counts_as_several(store: MemoryStore, world: World) -> None:
    one = begun(store, world, nodes=1)
    report = Report()
    assert not Collector(one).collect(RETENTION_MS, report, windows=2)
    assert report.revisions <= max(2 * WINDOW, HOT_CHANGES + WINDOW)
