"""Tests of rows with the same columns: a store may write them in another way, but reads show no difference."""

from __future__ import annotations

import pytest

from hbasemk.errors import LimitError, StoreUnusableError
from hbasemk.store.abc import ALL_VERSIONS, Decision, Get, NewCell, Put, Store
from hbasemk.store.alike import AlikeCells, Columns
from hbasemk.testing.store.base import Base, C, D, Tables, plain, put, read, values

TWO = Columns(D, [b"a", b"\xffb"])
ONE = Columns(C, [b""])
WIDE = Columns(D, [b"%d" % number for number in range(60)])


def alike(columns: Columns, row: bytes, number: int) -> AlikeCells:
    """Return cells whose values show the row, the column, and a number; every seventh value is empty."""
    kept = range(len(columns.qualifiers))
    return AlikeCells(
        columns, tuple(b"" if (number + one) % 7 == 0 else b"%d %d " % (number, one) + row for one in kept)
    )


class AlikeRows(Base):
    """Tests of puts with :class:`AlikeCells`."""

    def _mixed(self, row: bytes, at: int | None, count: int) -> list[Put]:
        """Return puts of rows of each kind, which are not in the order of their keys."""
        puts = []
        for number in range(count):
            puts += [
                Put(row + b"two %03d" % (-number % 1000), alike(TWO, row, number), at),
                Put(row + b"one %03d" % number, alike(ONE, row, number), at),
                Put(row + b"two of another revision %03d" % number, alike(TWO, row, number), 1000),
            ]
            if number % 3 == 0:
                puts.append(Put(row + b"plain %03d" % number, [NewCell(C, b"q", b"%d" % number)], at))
            if number % 20 == 0:
                puts.append(Put(row + b"wide %03d" % number, alike(WIDE, row, number), at))
        return puts

    @pytest.mark.parametrize("count", [1, 6, 15, 16, 17, 40, 100])
    def test_they_read_like_other_rows(self, store: Store, tables: Tables, row: bytes, count: int) -> None:
        for first, at in enumerate((5, 5, 7)):
            puts = self._mixed(row, at, count)
            if first == 1:
                # The same versions again, with other values: they replace the first ones.
                puts = [one._replace(cells=[(*cell[:2], b"new", *cell[3:]) for cell in one.cells]) for one in puts]
                store.write(tables.many.name, self._mixed(row, at, count))
            apart = [Put(b"plain/" + one.row, [NewCell(*cell) for cell in one.cells], one.timestamp) for one in puts]
            for written in (puts, apart):
                store.write(tables.many.name, written)
            gets = [Get(one.row, versions=ALL_VERSIONS) for one in puts]
            found = plain(store.read(tables.many.name, gets))
            expected = plain(store.read(tables.many.name, [get._replace(row=b"plain/" + get.row) for get in gets]))
            assert [(b"plain/" + key, cells) for key, cells in found] == expected
            assert all(cells for _, cells in found)

    @pytest.mark.parametrize("count", [3, 40])
    def test_the_server_stamps_them(self, store: Store, tables: Tables, row: bytes, count: int) -> None:
        puts = [Put(row + b"%03d" % number, alike(TWO, row, number)) for number in range(count)]
        store.write(tables.one.name, puts)
        store.write(tables.one.name, [Put(one.row, [NewCell(D, b"a", b"newer")]) for one in puts])
        for number, one in enumerate(puts):
            assert values(store, tables.one, one.row) == {b"a": b"newer", b"\xffb": alike(TWO, row, number).values[1]}

    @pytest.mark.parametrize("count", [1, 40])
    def test_a_limit_is_checked_before_anything_is_written(
        self, store: Store, tables: Tables, row: bytes, count: int
    ) -> None:
        most, accepted = store.limits.cell, store.limits.surely
        good = [Put(row + b"%03d" % number, alike(TWO, row, number), 5) for number in range(count)]
        columns = Columns(D, [b"a", bytes(store.limits.row_key + 1)])
        for cells, problem in (
            (AlikeCells(TWO, (b"x", bytes(most + 1))), f"a value of {most + 1} bytes"),
            (AlikeCells(columns, (b"x", b"y")), "a qualifier"),
        ):
            with pytest.raises(LimitError, match=problem):
                store.write(tables.many.name, [*good, Put(row + b"bad", cells, 5)])
        with pytest.raises(LimitError, match="timestamp"):
            store.write(tables.many.name, [*good, Put(row + b"bad", alike(TWO, row, 1), -1)])
        for key in (row + b"000", row + b"bad"):
            assert read(store, tables.many, Get(key)) == []
        # Together they are longer than one value may be, but each is allowed.
        large = AlikeCells(TWO, (bytes(accepted), bytes(accepted // 2)))
        store.write(tables.many.name, [*good, Put(row + b"large", large, 5)])
        assert values(store, tables.many, row + b"large") == {b"a": bytes(accepted), b"\xffb": bytes(accepted // 2)}

    @pytest.mark.parametrize("count", [1, 40])
    def test_an_unknown_family_of_them_is_rejected(self, store: Store, tables: Tables, row: bytes, count: int) -> None:
        good = [Put(row + b"%03d" % number, alike(TWO, row, number), 5) for number in range(count)]
        bad = [Put(row + b"x%03d" % number, AlikeCells(Columns(b"x", [b"q"]), (b"v",)), 5) for number in range(count)]
        with pytest.raises(StoreUnusableError):
            store.write(tables.many.name, [*good, *bad])
        if store.supports_transactions:
            assert read(store, tables.many, Get(row + b"000")) == []

    @pytest.mark.parametrize("count", [1, 17, 40])
    def test_a_transaction_writes_them(self, store: Store, tables: Tables, row: bytes, count: int) -> None:
        if not store.supports_transactions:
            pytest.skip("this store does not support transactions")
        decision = Decision(tables.one.name, (D, b"flag"), None, put(row, {b"flag": b"yes"}))
        puts = self._mixed(row, 5, count)
        assert store.write_if(tables.many.name, puts, [], lambda _: False, decision) is None
        assert read(store, tables.many, Get(puts[0].row)) == []
        assert store.write_if(tables.many.name, puts, [], lambda _: True, decision)
        for one in puts:
            expected = sorted((cell[0], cell[1], one.timestamp, cell[2]) for cell in one.cells)
            assert [tuple(cell) for cell in read(store, tables.many, Get(one.row))] == expected

    def test_their_cells_are_a_sequence_of_plain_fields(self) -> None:
        cells = alike(TWO, b"r", 1)
        expected = ((D, b"a", b"1 0 r", None), (D, b"\xffb", b"1 1 r", None))
        assert tuple(cells) == expected
        assert (len(cells), cells[1], cells[:1]) == (2, expected[1], expected[:1])
        assert repr(cells) == repr(expected)
        again = alike(Columns(D, [b"a", b"\xffb"]), b"r", 1)
        assert cells == again
        assert hash(cells) == hash(again)
        assert cells != alike(TWO, b"r", 2)
        assert cells != alike(Columns(C, [b"a", b"\xffb"]), b"r", 1)
        assert cells != expected
        assert cells.size == sum(len(name) + len(value) for _, name, value, _ in expected)
