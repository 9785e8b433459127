"""The record of what a revision touches."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbasemk import FormatError
from hbasemk.format import changes, paths, schema
from hbasemk.format.changes import ADDED, CHANGED, FOLDED, REMOVED, RowChange
from hbasemk.store.abc import Cell
from tests.support.repositories import Instances

NAMES = st.lists(st.text(st.characters(codec=None) | st.characters(categories=["Cs"]), min_size=1), max_size=4)
PATHS = st.text(min_size=1).map(lambda text: "/" + text).filter(paths.is_path)
SLOTS = st.lists(st.tuples(st.text(min_size=1), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)), max_size=3)
CHANGES = st.builds(RowChange, PATHS, st.sampled_from([ADDED, REMOVED, CHANGED, FOLDED]), NAMES, NAMES, NAMES, SLOTS)


def as_read(cells: list[changes.NewCell]) -> list[Cell]:
    return [Cell(cell.family, cell.qualifier, 1, cell.value) for cell in sorted(cells)]


@pytest.mark.no_cover
@given(st.lists(CHANGES))
def test_changes_round_trip(listed: list[RowChange]) -> None:
    read = changes.decode(as_read(changes.encode(listed)))
    assert [(c.path, c.kind, *map(list, c[2:])) for c in read] == [(c.path, c.kind, *map(list, c[2:])) for c in listed]


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_nodes_with_the_same_names_read_as_with_lists(count: int) -> None:
    names = tuple(f'p\u00e9"{number}' for number in range(count))
    listed = [
        RowChange(f"/a/{number}\\", kind, names, ("child",) * (number % 2))
        for number in range(8)
        for kind in (ADDED, CHANGED, REMOVED, FOLDED)
    ]
    in_lists = [change._replace(properties=list(change.properties)) for change in listed]
    assert changes.encode(listed) == changes.encode(in_lists)
    read = changes.decode(as_read(changes.encode(listed)))
    assert [(c.path, c.kind, tuple(c.properties), tuple(c.children_added)) for c in read] == [c[:4] for c in listed]


def test_surrogates_stay_separate_as_in_row_keys() -> None:
    split, joined = "\ud83d\ude00", "\U0001f600"
    assert len(split) == 2
    assert len(joined) == 1
    listed = [
        RowChange("/" + name, CHANGED, [name, name + "x"], [name], ["\udc80", "a\ud800"]) for name in (split, joined)
    ]
    assert changes.decode(as_read(changes.encode(listed))) == listed
    assert changes.decode(as_read(changes.encode(listed * 50))) == listed * 50


@pytest.mark.parametrize("deflated", [False, True])
def test_changes_that_were_written_with_escapes_are_read(deflated: bool) -> None:
    text = rb'[["/\u00e4\ud800","c",["\ud83d\ude00","\\ud83d"]]]'
    value = b"\x02" + zlib.compress(text) if deflated else b"\x01" + text
    read = changes.decode([Cell(b"d", b"changes", 1, value)])
    assert read == [RowChange("/\u00e4\ud800", CHANGED, ["\U0001f600", "\\ud83d"])]


def test_increments_below_a_name_of_two_surrogates_are_not_lost(opened: Instances) -> None:
    one, two = opened(), opened()
    path = "/\ud83d\ude00"
    one.run(lambda tx: tx.add(path, {"n": 0}))
    two.refresh()
    assert two.head[path]["n"] == 0
    one.run(lambda tx: tx.increment(path, "n"))
    two.refresh()
    two.run(lambda tx: tx.increment(path, "n"))
    assert one.refresh()[path]["n"] == two.head[path]["n"] == 2


def test_large_changes_are_divided_into_ordered_chunks() -> None:
    listed = [
        RowChange(f"/{number:x}{hash(str(number)):x}", ADDED, [f"{hash(number * 7.1):x}"]) for number in range(200_000)
    ]
    cells = changes.encode(listed)
    assert len(cells) > 1
    assert max(len(cell.value) for cell in cells) <= 1024 * 1024
    assert [c.path for c in changes.decode(as_read(cells))] == [c.path for c in listed]


def test_a_roll_back_names_every_column_exactly() -> None:
    change = RowChange("/a", ADDED, ["p"], ["x"], ["y"])
    (delete,) = changes.deletes([change], 7)
    assert delete.row == b"\x00\x01/a"
    assert set(delete.cells) == {
        (*schema.DELETED, 7),
        (*schema.LAST_REVISION, 7),
        (b"d", b"\x01p", 7),
        (b"c", b"x", 7),
        (b"c", b"y", 7),
    }
    assert schema.DELETED not in list(RowChange("/a", CHANGED).columns())


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"\x01{", b"\x02junk", b"\x01[[]]", b"\x01null", b"\x01[[\xff]]"),
        *(b"\x01{}", b'\x01""', b'\x01["/c"]', b'\x01{"/c":1}', b'\x01[{"/a":1,"c":2}]'),
        *(b'\x01[["/a/","c"]]', b'\x01[["/a//b","c"]]', b'\x01[["a","c"]]', b'\x01[[1,"c"]]', b'\x01[["/..","c"]]'),
        *(b'\x01[["/a","c",[],[],[],[["n",%b]]]]' % numbers for numbers in (b"1,2.0", b"0.5,1", b"true,1", b'1,"2"')),
        *(b'\x01[["/a","c",[],[],[],[["n",%b]]]]' % numbers for numbers in (b"65536,1", b"1,-1", b"1")),
    ],
)
def test_damaged_changes_raise_format_error(value: bytes) -> None:
    with pytest.raises(FormatError, match="damaged"):
        changes.decode([Cell(b"d", b"changes", 1, value)])
