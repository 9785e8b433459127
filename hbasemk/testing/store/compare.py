"""Tests of compare-and-set: it checks the newest value of one column, and exactly one of several racing calls wins."""

from __future__ import annotations

from functools import partial

from hbasemk.store.abc import ALL_VERSIONS, Cell, CellVersion, CheckAndWrite, Delete, Get, NewCell, Put, Store
from hbasemk.testing.store.base import FLAG, Base, C, D, Tables, put, read, together, values


class CompareAndSet(Base):
    """Tests of ``check_and_write``, alone and in races."""

    RACERS = 8
    """The number of threads in a race; they share the handles."""
    ROUNDS = 20

    def test_an_absent_column_is_set_once(self, store: Store, tables: Tables, row: bytes) -> None:
        for table in (tables.one, tables.many):
            assert store.check_and_write(table.name, FLAG, None, put(row, {b"flag": b"1"}))
            assert not store.check_and_write(table.name, FLAG, None, put(row, {b"flag": b"2"}))
            assert values(store, table, row) == {b"flag": b"1"}

    def test_an_absent_column_of_an_existing_row_is_set(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"other": b"x"})])
        assert store.check_and_write(tables.one.name, FLAG, None, put(row, {b"flag": b"1"}))
        assert values(store, tables.one, row) == {b"flag": b"1", b"other": b"x"}

    def test_a_row_is_read_after_it_whatever_its_answer(self, store: Store, tables: Tables, row: bytes) -> None:
        one, many = tables.one.name, tables.many.name
        check = CheckAndWrite(one, FLAG, None, put(row, {b"flag": b"1"}))
        is_applied, found = store.check_and_write_then_read(check, one, Get(row))
        assert (is_applied, [cell.value for cell in found.cells]) == (True, [b"1"])
        is_applied, found = store.check_and_write_then_read(check, one, Get(row, columns=[FLAG]))
        assert (is_applied, found.key, [cell.value for cell in found.cells]) == (False, row, [b"1"])
        store.write(many, [put(row, {b"other": b"x"}, 5)])
        again = check._replace(expected=b"1", put=put(row, {b"flag": b"2"}))
        assert store.check_and_write_then_read(again, many, Get(row)) == (True, (row, [Cell(D, b"other", 5, b"x")]))
        assert store.check_and_write_then_read(again, many, Get(row, columns=[])) == (False, (row, []))
        assert values(store, tables.one, row) == {b"flag": b"2"}

    def test_an_equal_value_is_replaced(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"old"})])
        assert store.check_and_write(tables.one.name, FLAG, b"old", put(row, {b"flag": b"new"}))
        assert values(store, tables.one, row) == {b"flag": b"new"}

    def test_an_unequal_value_stays_and_nothing_is_written(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.one.name, [put(row, {b"flag": b"old"})])
        for wrong in (b"ol", b"old\x00", b"OLD", b"\x00", None):
            assert not store.check_and_write(
                tables.one.name, FLAG, wrong, put(row, {b"flag": b"new", b"more": b"x"})
            ), wrong
        assert values(store, tables.one, row) == {b"flag": b"old"}

    def test_a_missing_row_has_no_value(self, store: Store, tables: Tables, row: bytes) -> None:
        assert not store.check_and_write(tables.one.name, FLAG, b"1", put(row, {b"flag": b"2"}))
        assert values(store, tables.one, row) == {}

    def test_the_newest_version_is_compared(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"flag": b"new"}, 9)])
        store.write(tables.many.name, [put(row, {b"flag": b"old"}, 3)])
        assert not store.check_and_write(tables.many.name, FLAG, b"old", put(row, {b"flag": b"x"}, 20))
        assert store.check_and_write(tables.many.name, FLAG, b"new", put(row, {b"flag": b"y"}, 10))
        found = read(store, tables.many, Get(row, versions=ALL_VERSIONS))
        assert [(cell.timestamp, cell.value) for cell in found] == [(10, b"y"), (9, b"new"), (3, b"old")]

    def test_a_deleted_value_is_absent(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"flag": b"1"}, 5)])
        store.delete(tables.many.name, [Delete(row, [CellVersion(D, b"flag", 5)])])
        assert store.check_and_write(tables.many.name, FLAG, None, put(row, {b"flag": b"2"}, 6))
        assert values(store, tables.many, row) == {b"flag": b"2"}

    def test_the_put_may_write_other_columns_of_any_family(self, store: Store, tables: Tables, row: bytes) -> None:
        cells = [NewCell(C, b"k", b"child", 7), NewCell(D, b"p", b"property", 8)]
        assert store.check_and_write(tables.many.name, FLAG, None, Put(row, cells))
        assert store.check_and_write(tables.many.name, FLAG, None, Put(row, cells))
        assert not store.check_and_write(tables.many.name, (C, b"k"), None, Put(row, [NewCell(D, b"p", b"no", 9)]))
        found = read(store, tables.many, Get(row, versions=ALL_VERSIONS))
        assert found == [Cell(C, b"k", 7, b"child"), Cell(D, b"p", 8, b"property")]

    def test_binary_values_are_compared_byte_by_byte(self, store: Store, tables: Tables, row: bytes) -> None:
        current: bytes | None = None
        for value in (b"\x00", b"\x00\x00", b"\xff\x00'\"", bytes(range(256)), b"\x80"):
            assert not store.check_and_write(tables.one.name, FLAG, value, put(row, {b"flag": b"no"}))
            assert store.check_and_write(tables.one.name, FLAG, current, put(row, {b"flag": value}))
            current = value
        assert values(store, tables.one, row) == {b"flag": b"\x80"}

    def test_each_of_several_immediate_sets_sees_the_previous_value(
        self, store: Store, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        current: bytes | None = None
        for number in range(50):
            handle = handles[number % len(handles)]
            following = b"%d" % number
            assert handle.check_and_write(tables.one.name, FLAG, current, put(row, {b"flag": following}))
            current = following
        assert values(store, tables.one, row) == {b"flag": b"49"}

    # --- races -----------------------------------------------------------------------------------------------

    def test_exactly_one_of_many_threads_sets_an_absent_column(
        self, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        keys = [row + b"%d" % number for number in range(self.ROUNDS)]

        def racer(number: int) -> list[bool]:
            handle = handles[number % len(handles)]
            return [
                handle.check_and_write(tables.one.name, FLAG, None, put(key, {b"flag": b"%d" % number, b"x": b"y"}))
                for key in keys
            ]

        won = together([partial(racer, number) for number in range(self.RACERS)])
        for number, key in enumerate(keys):
            winners = [racer for racer in range(self.RACERS) if won[racer][number]]
            assert len(winners) == 1
            assert values(handles[0], tables.one, key) == {b"flag": b"%d" % winners[0], b"x": b"y"}

    def test_exactly_one_of_many_threads_replaces_the_same_value(
        self, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        keys = [row + b"%d" % number for number in range(self.ROUNDS)]
        handles[0].write(tables.one.name, [put(key, {b"flag": b"start"}) for key in keys])

        def racer(number: int) -> list[bool]:
            handle = handles[number % len(handles)]
            value = b"won by %d" % number
            return [handle.check_and_write(tables.one.name, FLAG, b"start", put(key, {b"flag": value})) for key in keys]

        won = together([partial(racer, number) for number in range(self.RACERS)])
        for number, key in enumerate(keys):
            winners = [racer for racer in range(self.RACERS) if won[racer][number]]
            assert len(winners) == 1
            assert values(handles[0], tables.one, key) == {b"flag": b"won by %d" % winners[0]}

    def test_increments_by_compare_and_set_are_all_counted(
        self, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        handles[0].write(tables.one.name, [put(row, {b"flag": b"0"})])

        def add(number: int) -> int:
            handle = handles[number % len(handles)]
            done = 0
            while done < self.ROUNDS:
                found = values(handle, tables.one, row)[b"flag"]
                done += handle.check_and_write(
                    tables.one.name, FLAG, found, put(row, {b"flag": b"%d" % (int(found) + 1)})
                )
            return done

        together([partial(add, number) for number in range(self.RACERS // 2)])
        assert values(handles[0], tables.one, row) == {b"flag": b"%d" % (self.RACERS // 2 * self.ROUNDS)}

    def test_two_flags_that_exclude_each_other_are_never_both_set(
        self, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        keys = [row + b"%d" % number for number in range(self.ROUNDS)]
        flags = (b"committed", b"abort")
        handles[0].write(tables.one.name, [put(key, dict.fromkeys(flags, b"\x00")) for key in keys])

        def racer(number: int) -> list[bool]:
            handle = handles[number % len(handles)]
            mine, other = flags[number % 2], flags[1 - number % 2]
            return [
                handle.check_and_write(tables.one.name, (D, other), b"\x00", put(key, {mine: b"\x01"})) for key in keys
            ]

        won = together([partial(racer, number) for number in range(self.RACERS)])
        for number, key in enumerate(keys):
            found = values(handles[0], tables.one, key)
            assert sorted(found.values()) == [b"\x00", b"\x01"]
            winner = 0 if found[flags[0]] == b"\x01" else 1
            assert [won[racer][number] for racer in range(self.RACERS)] == [
                racer % 2 == winner for racer in range(self.RACERS)
            ]
