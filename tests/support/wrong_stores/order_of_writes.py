"""Stores whose arrivals or change counters are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hbasemk.store.abc import (
    Arrivals,
    Delete,
    Get,
    Table,
)
from tests.support.wrong_stores.finding import Right, found_by


@found_by("arrivals_list_rows_in_the_order_of_their_writes")
class ArrivalsOfAllColumns(Right):
    def arrivals(self, table: str, after: int, limit: int, columns: Any) -> Arrivals:
        found = super().arrivals(table, after, limit, columns)
        return found._replace(rows=self.read(table, [Get(one.key) for one in found.rows]))


@found_by("arrivals_list_rows_in_the_order_of_their_writes")
class ArrivalsAreNeverComplete(Right):
    def arrivals(self, *arguments: Any) -> Arrivals:
        return super().arrivals(*arguments)._replace(complete=False)


@found_by("arrivals_that_are_forgotten_keep_their_numbers")
class ForgetsTheLastArrival(Right):
    def forget_arrivals(self, table: str, upto: int) -> None:
        found = self._table(table)
        assert found.written is not None
        count = min(upto, found.last_number) - found.forgotten
        del found.written[:count]
        found.forgotten += count


@found_by("arrivals_of_a_table_that_keeps_none_raise_an_error")
class ArrivalsOfATableThatKeepsNone(Right):
    def arrivals(self, table: str, *others: Any) -> Arrivals:
        return (
            Arrivals(0, [], complete=True) if self._table(table).written is None else super().arrivals(table, *others)
        )


@found_by("arrivals_keep_rows_whose_cells_are_deleted")
class NumbersDeletes(Right):
    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        super().delete(table, deletes)
        if (written := self._table(table).written) is not None:
            written += [one.row for one in deletes]


@found_by("arrivals_keep_rows_whose_cells_are_deleted")
class ArrivalsLackDeletedRows(Right):
    def arrivals(self, *arguments: Any) -> Arrivals:
        found = super().arrivals(*arguments)
        return found._replace(rows=[one for one in found.rows if one.cells])


class Counting(Right):
    """A store that makes some calls without counting them."""

    def uncounted(self, call: Callable[[], Any]) -> Any:
        before = self._changes.count
        answer = call()
        self._changes.count = before
        return answer


@found_by("the_change_counter_shows_each_change_of_every_handle", change="write and read", writer=0)
class DoesNotCountWritesWithReads(Counting):
    def write_and_read(self, *arguments: Any, **more: Any) -> Any:
        return self.uncounted(lambda: super(Counting, self).write_and_read(*arguments, **more))


@found_by("the_change_counter_shows_each_change_of_every_handle", change="compare-and-set and read", writer=1)
class DoesNotCountSetsWithReads(Counting):
    def check_and_write_then_read(self, *arguments: Any) -> Any:
        return self.uncounted(lambda: super(Counting, self).check_and_write_then_read(*arguments))


@found_by("the_change_counter_shows_each_change_of_every_handle", change="forgotten arrival", writer=0)
class DoesNotCountForgottenArrivals(Counting):
    def forget_arrivals(self, table: str, upto: int) -> None:
        self.uncounted(lambda: super(Counting, self).forget_arrivals(table, upto))


@found_by("the_change_counter_shows_that_a_table_was_dropped")
class DoesNotCountDroppedTables(Counting):
    def drop_tables(self, tables: Sequence[Table]) -> None:
        self.uncounted(lambda: super(Counting, self).drop_tables(tables))
