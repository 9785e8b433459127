"""All versions of columns are read in calls of a bounded size, however many versions there are and however large they are."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from hbasemk.format import paths, schema
from hbasemk.kernel.collection import all_versions, blob_references
from hbasemk.kernel.commit.operations import AddNode, RemoveNode, SetProperty
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import ALL_VERSIONS, Get, NewCell, Put, Row, Scan
from hbasemk.store.memory import MemoryStore
from tests.support.collecting import BOTH_ORDERS, HOUR, cells, collect, commit
from tests.support.runtime import TestRuntime, World, open_instance

pytestmark = BOTH_ORDERS

LARGE = 10_000
VALUE = LARGE // 10


@pytest.fixture
def answers(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of values in each answer to a read of nodes, or a scan of them."""
    monkeypatch.setattr(all_versions, "LARGE", LARGE)
    monkeypatch.setattr(all_versions, "FIRST", 4)
    monkeypatch.setattr(all_versions, "FIRST_ROWS", 2)
    found: list[int] = []
    read, scan = store.read, store.scan

    def counted(table: str, rows: list[Row]) -> list[Row]:
        if table == schema.NODES:
            found.append(sum(all_versions.size_of(row.cells) for row in rows))
        return rows

    def counted_read(table: str, gets: Sequence[Get]) -> list[Row]:
        return counted(table, read(table, gets))

    def counted_scan(table: str, scanned: Scan) -> list[Row]:
        return counted(table, scan(table, scanned))

    monkeypatch.setattr(store, "read", counted_read)
    monkeypatch.setattr(store, "scan", counted_scan)
    return found


@pytest.mark.parametrize("full", [False, True])
def test_a_node_with_many_large_versions_is_collected_in_small_answers(
    store: MemoryStore, world: World, answers: list[int], full: bool
) -> None:
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": "", "q": 0}))
    for number in range(100):
        commit(one, SetProperty("/a", "p", f"{number:>{VALUE}}"), SetProperty("/a", "q", number))
    world.advance(2 * HOUR)
    commit(one, SetProperty("/a", "p", "last"))
    world.advance(2 * HOUR)
    commit(one, AddNode("/b", {}))
    answers.clear()
    collect(one, full=full, blobs=full)
    assert sorted(qualifier for qualifier, _ in cells(store, "/a")) == sorted(
        [schema.DELETED[1], schema.LAST_REVISION[1], b"\x01p", b"\x01q"]
    )
    assert max(answers) <= 2 * LARGE


def test_an_answer_has_every_version_once_and_the_newest_first(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_versions, "FIRST", 2)
    monkeypatch.setattr(all_versions, "LARGE", 1000)
    store.create_tables(schema.TABLES)
    columns = [schema.property_column(name) for name in "pqr"]
    for number, column in enumerate(columns):
        for version in range(1, 60, number + 1):
            value = b"%d" % version * (version % 7 * 10 + 1)
            store.write(schema.NODES, [Put(paths.key("/a"), [NewCell(*column, value, version)])])
    gets = [Get(paths.key("/a"), before=50), Get(paths.key("/b")), Get(paths.key("/a"), columns[1:], before=30)]
    found = all_versions.VersionReader(RetryingStore(store, TestRuntime(world))).read(gets)
    expected = store.read(schema.NODES, [get._replace(versions=ALL_VERSIONS) for get in gets])
    for row, whole in zip(found, expected, strict=True):
        assert row.key == whole.key
        for column in columns:
            assert [(cell.timestamp, cell.value) for cell in row.cells if cell[:2] == column] == [
                (cell.timestamp, cell.value[: all_versions.KEPT]) for cell in whole.cells if cell[:2] == column
            ]


def test_references_in_many_large_versions_are_read_in_small_answers(
    store: MemoryStore, world: World, answers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_references, "VERSIONS", 4)
    one = open_instance(store, world)
    commit(one, AddNode("/a", {"p": ""}))
    world.advance(2 * HOUR)
    for number in range(100):
        commit(one, SetProperty("/a", "p", f"{number:>{VALUE}}"))
    answers.clear()
    collect(one, blobs=True)
    assert max(answers) <= 2 * LARGE


def test_many_nodes_with_large_values_are_read_in_small_answers(
    store: MemoryStore, world: World, answers: list[int]
) -> None:
    one = open_instance(store, world)
    one.blobs.write(io.BytesIO(b"content"))
    commit(one, *(AddNode(f"/{number:02}", {"p": "x" * VALUE}) for number in range(40)))
    world.advance(50 * HOUR)
    one.poll()
    answers.clear()
    collect(one, blobs=True)
    assert 0 < max(answers) <= 2 * LARGE


def test_columns_of_large_nodes_are_counted_in_small_answers(
    store: MemoryStore, world: World, answers: list[int]
) -> None:
    one = open_instance(store, world)
    commit(one, *(AddNode(f"/{number:02}", {"p": "x" * VALUE}) for number in range(40)))
    commit(one, *(RemoveNode(f"/{number:02}") for number in range(20)))
    world.advance(2 * HOUR)
    commit(one, AddNode("/last", {}))
    world.advance(2 * HOUR)
    answers.clear()
    collect(one, full=True)
    assert 0 < max(answers) <= 2 * LARGE
