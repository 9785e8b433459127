"""The log of a subtree after a collection: the same entries as the whole log, and no more of the journal than before."""

from __future__ import annotations

import pytest

from hbasemk.format import changes, revisions
from hbasemk.kernel import log
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import CountingStore
from tests.support.collecting import HOUR, collect, commit, set_grace
from tests.support.runtime import World, open_instance
from tests.support.trimming import recorded, trim


@pytest.fixture(autouse=True)
def _from_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the search through the journal win, as if the subtree had many rows."""
    set_grace(monkeypatch, 10.0, 5.0)
    monkeypatch.setattr(log, "HEAD_START", 1)


def test_the_log_of_a_young_path_reads_no_row_of_the_journal_below_it(store: Store, world: World) -> None:
    counted = CountingStore(store)
    instance = open_instance(counted, world)
    for path in ("/a", "/b"):
        commit(instance, AddNode(path, {}))
        world.advance(2 * HOUR)
    assert collect(instance).horizon
    for number in range(100):
        commit(instance, AddNode(f"/old{number}", {}))
    expected = [commit(instance, AddNode("/young", {}), AddNode("/young/child", {}))]
    expected += [commit(instance, SetProperty("/young", "p", number)) for number in range(3)]
    instance.poll()
    counted.traffic()
    assert [entry.revision for entry in log.log(instance, "/young")] == list(map(revisions.to_text, reversed(expected)))
    assert counted.traffic("nodes", "cluster").rows_read < 20


def test_the_log_of_a_path_ends_with_its_removal_at_the_horizon(store: Store, world: World) -> None:
    instance = open_instance(store, world)
    commit(instance, AddNode("/a", {}))
    removed = commit(instance, RemoveNode("/a"))
    world.advance(2 * HOUR)
    commit(instance, AddNode("/b", {}))
    assert collect(instance).horizon == removed
    # The row of the node has lost the version of its removal.
    added = commit(instance, AddNode("/a", {}), AddNode("/a/child", {}))
    expected = [revisions.to_text(one) for one in (added, removed)]
    assert [entry.revision for entry in log.log(instance) if entry.touches("/a")] == expected
    assert [entry.revision for entry in log.log(instance, "/a")] == expected


@pytest.mark.parametrize("path", ["/", "/a"])
@pytest.mark.parametrize("head_start", [1, 4])
def test_a_log_that_is_read_slowly_ends_where_a_collector_has_deleted_large_rows(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, path: str, head_start: int
) -> None:
    monkeypatch.setattr(changes, "FIRST_CHUNK", 10)
    monkeypatch.setattr(log, "HEAD_START", head_start)
    instance = open_instance(store, world)
    commit(instance, AddNode("/a", {}), AddNode("/a/child", {}))
    expected = [commit(instance, SetProperty("/a", "p", number)) for number in range(3)]
    entries = log.log(instance, path)
    found = [next(entries)]
    trim(open_instance(store, world, mac=2), world)
    assert not {*expected} & {*recorded(store)}
    found += entries
    assert [entry.revision for entry in found] == [revisions.to_text(expected[-1])]
