"""Stores whose transactions are wrong."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from hbasemk.store.abc import (
    LAST_ROW,
    Get,
    Put,
    Row,
)
from hbasemk.store.memory_tables import MemoryTable
from hbasemk.testing.store.base import TIMEOUT
from tests.support.wrong_stores.finding import Right, found_by


@found_by("a_transaction_also_passes_rows_of_other_tables_to_judge")
class IgnoresAlso(Right):
    def write_if(self, table: Any, puts: Any, gets: Any, judge: Any, decision: Any, also: Any = (), **more: Any) -> Any:
        return super().write_if(table, puts, gets, judge, decision, (), **more)


@found_by("a_transaction_also_passes_rows_of_other_tables_to_judge")
class ReadsAlsoFromItsOwnTable(Right):
    def write_if(self, table: Any, puts: Any, gets: Any, judge: Any, decision: Any, also: Any = (), **more: Any) -> Any:
        return super().write_if(table, puts, gets, judge, decision, [(table, get) for _, get in also], **more)


@found_by("a_transaction_also_passes_the_last_row_of_a_table_to_judge")
class HasNoLastRow(Right):
    def _read_also(self, found: MemoryTable, get: Get) -> list[Row]:
        return self._read(found, (get,))


@found_by("a_transaction_also_passes_the_last_row_of_a_table_to_judge")
class PassesTheFirstRow(Right):
    def _read_also(self, found: MemoryTable, get: Get) -> list[Row]:
        if get.row == LAST_ROW and found.rows:
            get = get._replace(row=found.rows.peekitem(0)[0])
        return self._read(found, (get,))


@found_by("concurrent_transactions_lose_no_update", read="gets")
@found_by("concurrent_transactions_lose_no_update", read="also")
class ReadsBeforeTheTransaction(Right):
    """The first transaction that is accepted waits until another one is accepted, by the same state."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[int] = []
        self.both = threading.Event()

    def write_if(self, table: Any, puts: Any, gets: Any, judge: Any, decision: Any, also: Any = (), **more: Any) -> Any:
        rows = [*self.read(table, list(gets)), *(row for name, get in also for row in self.read(name, [get]))]
        if not judge(rows):
            return None
        self.accepted.append(1)
        if len(self.accepted) > 1:
            self.both.set()
        assert self.both.wait(TIMEOUT)
        return super().write_if(table, puts, (), lambda _: True, decision)


@found_by("a_transaction_is_visible_as_a_whole")
class ShowsTheDecisionFirst(Right):
    """The first transaction waits with its puts until somebody has read their rows."""

    def __init__(self) -> None:
        super().__init__()
        self.was_read = threading.Event()

    def write_if(self, table: Any, puts: Any, *others: Any, **more: Any) -> Any:
        number = super().write_if(table, (), *others, **more)
        if number:
            assert self.was_read.wait(TIMEOUT)
            self.write(table, puts)
        return number

    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        found = super().read(table, gets)
        if table == "many":
            self.was_read.set()
        return found


@found_by("a_transaction_compares_the_arrivals_of_the_named_table")
class ComparesTheArrivalsOfTheDecision(Right):
    def write_if(self, table: Any, puts: Any, gets: Any, judge: Any, decision: Any, also: Any = (), **more: Any) -> Any:
        if more.get("unchanged_since"):
            more["unchanged_since"] = (decision.table, more["unchanged_since"][1])
        return super().write_if(table, puts, gets, judge, decision, also, **more)


@found_by("a_transaction_compares_the_arrivals_of_the_named_table")
class DecidesWhateverHasChanged(Right):
    def write_if(self, table: Any, puts: Any, gets: Any, judge: Any, decision: Any, *also: Any, **more: Any) -> Any:
        return super().write_if(table, puts, gets, judge, decision._replace(unchanged=None), *also, **more)


@found_by("a_transaction_returns_1_if_its_table_keeps_no_arrivals")
class Returns0ForATableWithoutArrivals(Right):
    def write_if(self, *arguments: Any, **more: Any) -> Any:
        number = super().write_if(*arguments, **more)
        return 0 if number and self._table(arguments[4].table).written is None else number


@found_by("a_transaction_names_a_missing_table_and_writes_nothing", place="decision")
@found_by("a_call_on_a_missing_table_raises_an_error_that_names_it")
class RaisesKeyErrorForAMissingTable(Right):
    def write_if(self, table: Any, puts: Any, gets: Any, judge: Any, decision: Any, also: Any = (), **more: Any) -> Any:
        assert self._tables[decision.table]
        return super().write_if(table, puts, gets, judge, decision, also, **more)


@found_by("a_closed_store_rejects_every_call")
class CommitsNothingOnceClosed(Right):
    def write_if(self, *arguments: Any, **more: Any) -> Any:
        return None if self._closed else super().write_if(*arguments, **more)


@found_by("in_a_store_with_transactions_a_put_is_never_older_than_what_it_replaces", how="write")
class WritesBehindWhatItReplaces(Right):
    def write(self, table: str, puts: Sequence[Put], *, durable: bool = True) -> None:
        stamped = [one._replace(timestamp=one.timestamp or self._clock()) for one in puts]
        super().write(table, stamped, durable=durable)


@found_by("in_a_store_with_transactions_a_put_is_never_older_than_what_it_replaces", how="write_if")
class CommitsBehindWhatItReplaces(Right):
    def write_if(self, table: Any, puts: Any, *others: Any, **more: Any) -> Any:
        stamped = [one._replace(timestamp=one.timestamp or self._clock()) for one in puts]
        return super().write_if(table, stamped, *others, **more)
