"""The check reads the cells of a revision once, and a second time only if it did not find exactly those declared."""

from __future__ import annotations

import pytest

from hbasemk.check import found_cells
from hbasemk.check import problem as kinds
from hbasemk.check.found_cells import FoundCells, hash_of, hash_of_path, hashes_of, number_of
from hbasemk.format import paths, revisions, schema
from hbasemk.format.changes import ADDED, CHANGED, REMOVED, RowChange
from hbasemk.kernel.commit.operations import AddNode, RemoveNode
from hbasemk.store.abc import Column
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import CountingStore
from tests.support.runtime import World, open_instance
from tests.support.tables import Tables

NODES = 300


@pytest.fixture
def tables() -> Tables:
    world = World()
    store = MemoryStore(world.clock)
    return Tables(store, lambda mac: open_instance(store, world, mac=mac, seed=mac), world.advance, world.clock)


def rows_read(tables: Tables, mac: int) -> int:
    """Check an intact repository; return how many rows of the nodes this read."""
    store = CountingStore(tables.store)
    looking = open_instance(store, World(tables.now_ms()), mac=mac)
    store.traffic()
    assert tables.problems(looking) == []
    return store.traffic(schema.JOURNAL, schema.CLUSTER, schema.BLOBS).rows_read


def test_a_node_is_read_with_its_parent_and_not_again_for_the_journal(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.commit(*(AddNode(f"/{number}", {"p": number}) for number in range(NODES)))
    # Each node by itself, and as the child that its parent lists; some more for the parent.
    assert rows_read(tables, 70) <= 2 * NODES + 20
    monkeypatch.setattr(found_cells, "REMEMBERED", 0)
    assert rows_read(tables, 71) >= 3 * NODES


@pytest.mark.parametrize("remembered", [0, 1, 1000])
def test_a_missing_cell_is_found_however_few_revisions_are_remembered(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    monkeypatch.setattr(found_cells, "REMEMBERED", remembered)
    wanted = []
    for number in range(3):
        revision = tables.commit(AddNode(f"/{number}", {"p": 1, "q": 1}))
        tables.remove(schema.NODES, paths.key(f"/{number}"), schema.property_column("p"))
        wanted.append((kinds.MISSING, f"/{number}", revisions.to_text(revision)))
    assert tables.found() == wanted


def test_two_flags_that_changed_places_are_found(tables: Tables) -> None:
    tables.commit(AddNode("/a", {}), AddNode("/a/x", {}))
    revision = tables.commit(AddNode("/a/y", {}), RemoveNode("/a/x"))
    tables.node("/a", revision, (schema.child_column("x"), schema.PRESENT), (schema.child_column("y"), schema.GONE))
    undeclared = [one.detail for one in tables.problems() if (one.kind, one.path) == (kinds.UNDECLARED, "/a")]
    assert [detail.partition(" is ")[0] for detail in undeclared] == ["child 'y'", "child 'x'"]


DECLARED = [
    RowChange("/", CHANGED, (), ("a",), ("b", "c")),
    RowChange("/a", ADDED, ("p",)),
    RowChange("/b", REMOVED),
    RowChange("/c", REMOVED),
]


def cells() -> list[tuple[str, Column, bytes]]:
    """Return the cells that the declared changes write."""
    return [
        ("/", schema.LAST_REVISION, schema.TOUCHED),
        ("/", schema.child_column("a"), schema.PRESENT),
        ("/", schema.child_column("b"), schema.GONE),
        ("/", schema.child_column("c"), schema.GONE),
        ("/a", schema.DELETED, schema.ALIVE),
        ("/a", schema.LAST_REVISION, schema.TOUCHED),
        ("/a", schema.property_column("p"), b"\x01text"),
        ("/b", schema.DELETED, schema.DEAD),
        ("/b", schema.LAST_REVISION, schema.TOUCHED),
        ("/c", schema.DELETED, schema.DEAD),
        ("/c", schema.LAST_REVISION, schema.TOUCHED),
    ]


def are_declared(found: list[tuple[str, Column, bytes]]) -> bool:
    """Return whether found cells have the number of the declared ones."""
    hashes = [hashed for change in DECLARED for hashed in hashes_of(change)]
    added = FoundCells()
    for path, column, value in found:
        added.add({1: found_cells.with_flag(hash_of(hash_of_path(path), column), column, value)})
    return added.are(1, number_of(DECLARED, hashes))


def test_only_exactly_the_declared_cells_have_their_number() -> None:
    assert are_declared(cells())
    assert are_declared(cells()[::-1])
    for at, (path, column, value) in enumerate(cells()):
        rest = cells()[:at] + cells()[at + 1 :]
        assert not are_declared(rest), (path, column)
        assert not are_declared([*cells(), (path, column, value)]), (path, column)
        if value in (schema.YES, schema.NO) and column != schema.LAST_REVISION:
            other = schema.NO if value == schema.YES else schema.YES
            assert not are_declared([*rest, (path, column, other)]), (path, column)
    assert not FoundCells().are(1, None)


def test_each_run_finds_the_cells_by_itself(tables: Tables) -> None:
    revision = tables.commit(AddNode("/a", {"p": 1}))
    assert tables.found() == []
    tables.remove(schema.NODES, paths.key("/a"), schema.property_column("p"))
    assert tables.found() == [(kinds.MISSING, "/a", revisions.to_text(revision))]


@pytest.mark.parametrize("column", [schema.DELETED, schema.LAST_REVISION])
def test_a_node_of_which_one_cell_is_left_is_damaged(tables: Tables, column: Column) -> None:
    """The number of one cell is its hash, which the revision declares as well."""
    tables.commit(AddNode("/a", {}))
    tables.remove(schema.NODES, paths.key("/a"), column)
    intact = open_instance(tables.store, World(tables.now_ms()), mac=70)
    assert [one.kind for one in tables.problems(intact, path="/a")] == (
        [kinds.LIFE] if column == schema.DELETED else []
    )
    kind = kinds.MISSING if column == schema.DELETED else kinds.NO_LAST_REVISION
    assert kind in [one.kind for one in tables.problems()]


def test_many_dangling_children_cost_no_more_calls_than_one(tables: Tables) -> None:
    calls = {}
    for number, names in enumerate((["0"], [str(name) for name in range(1, 60)])):
        tables.commit(AddNode(f"/{number}", {}))
        tables.forge(RowChange(f"/{number}", CHANGED, (), names))
        store = CountingStore(tables.store)
        looking = open_instance(store, World(tables.now_ms()), mac=70 + number)
        store.take()
        found = tables.problems(looking, path=f"/{number}")
        assert [one.kind for one in found] == [kinds.DANGLING] * len(names)
        calls[len(names)] = sum(store.take().values())
    assert calls[59] == calls[1]
