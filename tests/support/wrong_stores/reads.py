"""Stores whose reads, scans or deletes are wrong."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence

from hbasemk.store.abc import (
    MAX_TIMESTAMP,
    CellVersion,
    Delete,
    DeleteBelow,
    Get,
    Row,
    Scan,
)
from hbasemk.store.sizes import size_of_rows
from tests.support.wrong_stores.finding import Right, found_by


@found_by("only_the_bytes_of_values_may_end_a_batch_early", families=None)
class CountsKeysAsBytesOfValues(Right):
    def scan(self, table: str, scan: Scan) -> list[Row]:
        rows = super().scan(table, scan)
        left = MAX_TIMESTAMP if scan.most_bytes is None or scan.reverse else scan.most_bytes
        for number, one in enumerate(rows):
            if left <= 0:
                return rows[:number]
            left -= len(one.key) + sum(len(cell.qualifier) + len(cell.value) for cell in one.cells)
        return rows


@found_by("a_reverse_scan_does_not_end_early")
class EndsReverseScansEarly(Right):
    def scan(self, table: str, scan: Scan) -> list[Row]:
        rows = super().scan(table, scan)
        return rows[:1] if scan.reverse and scan.most_bytes is not None else rows


@found_by("the_first_rows_of_a_read_are_its_beginning")
class ReturnsNoRowThatIsTooLarge(Right):
    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        rows = super().read_first(table, gets, most_bytes)
        return rows if size_of_rows(rows) <= most_bytes else rows[:-1]


@found_by("the_first_rows_of_a_read_are_its_beginning")
class SkipsRowsThatAreTooLarge(Right):
    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        return [row for row in self.read(table, gets) if size_of_rows([row]) <= most_bytes] or self.read(table, gets)


@found_by("the_first_rows_of_a_read_are_all_rows_if_their_values_are_small")
class CountsKeysOfGetsAsBytesOfValues(Right):
    def read_first(self, table: str, gets: Sequence[Get], most_bytes: int) -> list[Row]:
        rows = super().read_first(table, gets, most_bytes)
        sizes = list(itertools.accumulate(len(row.key) + size_of_rows([row]) for row in rows))
        return rows[: max(bisect_right(sizes, most_bytes), 1)]


@found_by("no_columns_and_no_families_select_nothing")
class NoColumnsAreAll(Right):
    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        return super().read(table, [get._replace(columns=get.columns or None) for get in gets])


@found_by("no_columns_and_no_families_select_nothing")
class NoFamiliesAreAll(Right):
    def scan(self, table: str, scan: Scan) -> list[Row]:
        return super().scan(table, scan._replace(families=scan.families or None))


@found_by("pages_respect_a_time_range")
class PagesHaveNoLowerBound(Right):
    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        return super().read(table, [get._replace(since=0) if get.page else get for get in gets])


@found_by("a_time_range_includes_its_start_and_not_its_end_in_a_table_of_one_version")
class HasNoUpperBoundInATableOfOneVersion(Right):
    def read(self, table: str, gets: Sequence[Get]) -> list[Row]:
        one = self._table(table).versions == 1
        return super().read(table, [get._replace(before=MAX_TIMESTAMP) if one else get for get in gets])


@found_by("a_time_range_includes_its_start_and_not_its_end_in_a_table_of_one_version")
class ScansBackWithoutTheStartInATableOfOneVersion(Right):
    def scan(self, table: str, scan: Scan) -> list[Row]:
        rows = super().scan(table, scan)
        exclusive = scan.reverse and self._table(table).versions == 1
        return [row for row in rows if not exclusive or row.key != scan.start]


@found_by("a_delete_of_another_version_spares_the_only_one")
class DeletesWhateverVersion(Right):
    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        below = [DeleteBelow(row, [CellVersion(*cell[:2], MAX_TIMESTAMP) for cell in cells]) for row, cells in deletes]
        super().delete_below(table, below)


@found_by("the_only_version_can_be_deleted")
class KeepsTheOnlyVersion(Right):
    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        super().delete(table, [] if self._table(table).versions == 1 else deletes)


@found_by("the_only_version_can_be_deleted")
class KeepsTheOnlyVersionInARange(Right):
    def delete_below(self, table: str, deletes: Sequence[DeleteBelow]) -> None:
        super().delete_below(table, [] if self._table(table).versions == 1 else deletes)


@found_by("a_call_with_an_unknown_family_is_rejected")
class DeletesFromUnknownFamilies(Right):
    def delete(self, table: str, deletes: Sequence[Delete]) -> None:
        known = self._table(table).families
        super().delete(table, [one._replace(cells=[cell for cell in one.cells if cell[0] in known]) for one in deletes])
