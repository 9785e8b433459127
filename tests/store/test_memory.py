"""Tests of the memory store and the SQLite store beyond the conformance suite: clocks and bounds of versions."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hbasemk.errors import ClosedError, StoreUnusableError
from hbasemk.store.abc import (
    ALL_VERSIONS,
    CellVersion,
    Decision,
    Delete,
    DeleteBelow,
    Get,
    NewCell,
    Put,
    Row,
    Scan,
    Store,
    Table,
)
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.interrupting import interrupted_at, place, points_of

FLAG = (b"d", b"flag")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, now: list[int]):
    clock = lambda: now[0]  # noqa: E731
    store = MemoryStore(clock) if request.param == "memory" else SqliteStore(str(tmp_path / "x.db"), clock=clock)
    yield store
    store.close()


@pytest.fixture
def now() -> list[int]:
    return [1000]


def test_the_given_clock_stamps_cells(store: Store, now: list[int]) -> None:
    store.create_tables([Table("t", (b"d",), ALL_VERSIONS)])
    store.write("t", [Put(b"r", [NewCell(*FLAG, b"1")])])
    now[0] = 2000
    assert store.check_and_write("t", FLAG, b"1", Put(b"r", [NewCell(*FLAG, b"2")]))
    now[0] = 500
    assert store.check_and_write("t", FLAG, b"2", Put(b"r", [NewCell(*FLAG, b"3"), NewCell(b"d", b"p", b"x")]))
    store.write("t", [Put(b"r", [NewCell(b"d", b"q", b"old")])])
    found = store.read("t", [Get(b"r", versions=ALL_VERSIONS)])[0].cells
    assert [(cell.qualifier, cell.timestamp, cell.value) for cell in found] == [
        (b"flag", 2000, b"3"),
        (b"flag", 1000, b"1"),
        (b"p", 2000, b"x"),
        (b"q", 500, b"old"),
    ]


def test_a_plain_put_with_an_earlier_time_stays_hidden_as_in_hbase(now: list[int]) -> None:
    store = MemoryStore(lambda: now[0])
    store.create_tables([Table("t", (b"d",), 1)])
    store.write("t", [Put(b"r", [NewCell(*FLAG, b"from the future")])])
    now[0] = 900
    store.write("t", [Put(b"r", [NewCell(*FLAG, b"now")])])
    assert store.read("t", [Get(b"r")])[0].cells[0].value == b"from the future"


OTHER = (b"d", b"other")


def plainly(store: Store, put: Put) -> None:
    store.write("t", [put])


def by_comparison(store: Store, put: Put) -> None:
    assert store.check_and_write("t", OTHER, None, put)


def beside_a_decision(store: Store, put: Put) -> None:
    decision = Decision("t", FLAG, None, Put(b"decided", [NewCell(*FLAG, b"x")]))
    assert store.write_if("t", [put], (), lambda _: True, decision)


def as_part_of_a_decision(store: Store, put: Put) -> None:
    decision = Decision("t", FLAG, None, Put(b"decided", [NewCell(*FLAG, b"x")]), with_puts=[put])
    assert store.write_if("t", [], (), lambda _: True, decision)


def as_a_decision(store: Store, put: Put) -> None:
    store.write("t", [Put(put.row, [NewCell(*OTHER, b"x")])])
    assert store.write_if("t", [], (), lambda _: True, Decision("t", OTHER, b"x", put))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(
    "write",
    [plainly, by_comparison, beside_a_decision, as_part_of_a_decision, as_a_decision],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("versions", [1, ALL_VERSIONS])
def test_in_a_store_with_transactions_a_cell_replaces_one_from_the_future(
    kind: str, write: Callable[[Store, Put], None], versions: int, now: list[int], tmp_path: Path
) -> None:
    clock = lambda: now[0]  # noqa: E731
    store = (
        MemoryStore(clock, transactions=True) if kind == "memory" else SqliteStore(str(tmp_path / "x.db"), clock=clock)
    )
    store.create_tables([Table("t", (b"d",), versions)])
    store.write("t", [Put(b"r", [NewCell(*FLAG, b"from the future"), NewCell(b"d", b"later", b"x", 9_000)])])
    now[0] = 900
    write(store, Put(b"r", [NewCell(*FLAG, b"now")]))
    (cell,) = store.read("t", [Get(b"r", columns=[FLAG])])[0].cells
    assert (cell.value, cell.timestamp) == (b"now", 1000)
    store.close()


@pytest.mark.parametrize("bound", [2, 3, 10])
def test_a_table_keeps_its_number_of_versions(store: Store, bound: int) -> None:
    store.create_tables([Table("t", (b"d",), bound)])
    stamps = list(range(1, 31))
    random.Random(bound).shuffle(stamps)
    for number, at in enumerate(stamps, 1):
        store.write("t", [Put(b"r", [NewCell(b"d", name, b"%d" % at, at) for name in (b"p", b"q")])])
        found = store.read("t", [Get(b"r", versions=ALL_VERSIONS)])[0].cells
        newest = sorted(stamps[:number], reverse=True)[:bound]
        assert [cell.timestamp for cell in found] == newest * 2
        assert [cell.value for cell in found] == [b"%d" % at for at in newest] * 2


@pytest.mark.parametrize("table", [Table("t", (b"d",), 1), Table("t", (b"d",), 4), Table("t", (b"c", b"d"), 3)])
def test_tables_with_other_settings_are_rejected(store: Store, table: Table) -> None:
    store.create_tables([Table("t", (b"d",), 3)])
    for check in (store.verify, store.create_tables):
        with pytest.raises(StoreUnusableError, match=r"'t'.*(versions|families|family)"):
            check([table])


def test_an_empty_value_counts_as_absent_in_a_compare_and_set(store: Store) -> None:
    store.create_tables([Table("t", (b"d",), ALL_VERSIONS)])
    store.write("t", [Put(b"r", [NewCell(*FLAG, b"", 5)])])
    assert store.check_and_write("t", FLAG, None, Put(b"r", [NewCell(*FLAG, b"1", 6)]))
    assert store.read("t", [Get(b"r")])[0].cells[0].value == b"1"


def test_closing_a_memory_store_removes_its_contents() -> None:
    store = MemoryStore()
    store.create_tables([Table("t", (b"d",), 1)])
    store.close()
    with pytest.raises(ClosedError):
        store.verify([])


TWO = [Table(name, (b"d",), ALL_VERSIONS, arrivals=True) for name in ("t", "u")]


def _columns(*names: str) -> list[NewCell]:
    return [NewCell(b"d", name.encode(), b"2", 2) for name in names]


def _made() -> MemoryStore:
    store = MemoryStore(transactions=True)
    store.create_tables(TWO[:1])
    store.write("t", [Put(row, [NewCell(b"d", name, b"1", 1) for name in (b"b", b"x")]) for row in (b"1", b"2")])
    return store


def _shown(store: MemoryStore) -> tuple[list[Row], list[Row], list[bytes]]:
    """Return the cells by whole rows and by columns, and the rows in the order of their writes."""
    names = [(b"d", name) for name in (b"a", b"b", b"x")]
    whole = store.scan("t", Scan(None, None, 100, versions=ALL_VERSIONS))
    single = store.scan("t", Scan(None, None, 100, columns=names, versions=ALL_VERSIONS))
    _, written, _ = store.arrivals("t", 0, 100, names)
    return whole, single, [row.key for row in written]


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda store: store.write("t", [Put(b"1", _columns("a", "b")), Put(b"3", _columns("b"))]), id="write"
        ),
        pytest.param(
            lambda store: store.check_and_write("t", (b"d", b"b"), b"1", Put(b"1", _columns("a", "b"))),
            id="check_and_write",
        ),
        pytest.param(
            lambda store: store.delete(
                "t", [Delete(row, [CellVersion(b"d", b"b", 1), CellVersion(b"d", b"x", 1)]) for row in (b"1", b"2")]
            ),
            id="delete",
        ),
        pytest.param(
            lambda store: store.delete_below(
                "t", [DeleteBelow(b"1", [CellVersion(b"d", b"b", 2)]), DeleteBelow(b"2", (), [(b"d", 2)])]
            ),
            id="delete_below",
        ),
        pytest.param(lambda store: store.delete_rows("t", [b"1", b"2"]), id="delete_rows"),
        pytest.param(lambda store: store.create_tables(TWO), id="create_tables"),
    ],
)
def test_an_interrupt_leaves_a_call_in_memory_whole_or_not_made(change: Callable[[MemoryStore], object]) -> None:
    before, after = _made(), _made()
    change(after)
    for point in points_of(lambda: change(_made())):
        store = _made()
        interrupted_at(point, lambda store=store: change(store))  # type: ignore[misc]
        assert _shown(store) in (_shown(before), _shown(after)), place(point)
        assert all(row.order == sorted(row.versions) for row in store._tables["t"].rows.values()), place(point)
        store.create_tables(TWO)
        assert store.arrivals("u", 0, 100, ()).complete, place(point)
