"""The collector and the fence broken on purpose.

Random schedules with collectors must find those of :data:`MUTANTS` and :data:`UNORDERED`; interleavings, or tests of one
scenario, the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.format import revisions, schema
from hbasemk.format.trim_level import NOTHING_TRIMMED
from hbasemk.kernel.collection import deletions, every_row, raising, rule
from hbasemk.kernel.collection.collector import Collector, Report
from hbasemk.kernel.collection.node_cells import NodeCells
from hbasemk.kernel.commit.read_back import ReadBack
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence, log_poller
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.log_poller import Announced
from hbasemk.kernel.journal.news import News
from hbasemk.kernel.journal.polled_revisions import PolledRevisions
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import ALL_VERSIONS, CellVersion, CheckAndWrite, Column, Delete, Get, NewCell, Put, Row
from tests.support.collecting import set_grace

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: list[Mutant] = []
"""Schedules on a store that orders all writes find each of them."""
UNORDERED: list[Mutant] = []
"""Schedules on a store that does not order all writes find each of them."""
ALL_ROWS: list[Mutant] = []
"""Schedules in which collectors read all rows find each of them, on a store that does not order all writes."""


def mutant(function: Mutant) -> Mutant:
    """Register a mutant."""
    MUTANTS.append(function)
    return function


def unordered(function: Mutant) -> Mutant:
    """Register a mutant of what only a store without an order does, or does in another way."""
    UNORDERED.append(function)
    return function


def all_rows(function: Mutant) -> Mutant:
    """Register a mutant of a run that reads all rows."""
    ALL_ROWS.append(function)
    return function


def no_grace(patch: pytest.MonkeyPatch) -> None:
    set_grace(patch, 0.0)


@mutant
@unordered
def trust_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence, "TRUST", 1e9)


@mutant
@unordered
def reads_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "require_readable", lambda *_: None)


@unordered
def scans_without_the_horizon(patch: pytest.MonkeyPatch) -> None:
    original = log_poller._read_mark

    def read_mark(row: Any, found: Announced) -> None:
        original(row, found)
        found.horizon = 0

    patch.setattr(log_poller, "_read_mark", read_mark)


@unordered
def trim_levels_overlooked(patch: pytest.MonkeyPatch) -> None:
    original = log_poller._read_mark

    def read_mark(row: Any, found: Announced) -> None:
        original(row, found)
        found.trimmed = NOTHING_TRIMMED

    patch.setattr(log_poller, "_read_mark", read_mark)


def horizon_verified_without_a_scan(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PolledRevisions, "_add_missed", lambda *_: None)


@unordered
def missed_revisions_join_last(patch: pytest.MonkeyPatch) -> None:
    original = PolledRevisions._add_missed

    def add_missed(self: PolledRevisions, poller: Any, news: News, *arguments: Any) -> None:
        first = list(news.committed)
        original(self, poller, news, *arguments)
        news.committed = [*first, *(one for one in news.committed if one not in first)]

    patch.setattr(PolledRevisions, "_add_missed", add_missed)


def horizon_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    def replace(store: Any, found: Any, new: Any) -> bool:
        table, row, column = fence.place(store)
        store.write(table, [Put(row, [NewCell(*column, new.encode())])])
        return True

    patch.setattr(fence, "replace", replace)


@mutant
@unordered
def checkpoints_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(raising, "_checkpoints", lambda *_: iter(()))


@mutant
def ranges_beyond_what_is_collected(patch: pytest.MonkeyPatch) -> None:
    original = deletions.split

    def split(row: Any, gone: Any, families: Any = ()) -> Any:
        exact, ranges = original(row, gone, families)
        wider = [
            one._replace(cells=[cell._replace(timestamp=cell.timestamp + 256) for cell in one.cells]) for one in ranges
        ]
        return exact, wider

    patch.setattr(deletions, "split", split)


def family_ranges_that_contain_the_life(patch: pytest.MonkeyPatch) -> None:
    original = deletions.ended_families

    def ended_families(row: Any, gone: Any, life: int) -> list[tuple[bytes, int]]:
        return [(family, at + 1) for family, at in original(row, gone, life)]

    patch.setattr(deletions, "ended_families", ended_families)


@mutant
def polls_without_the_horizon(patch: pytest.MonkeyPatch) -> None:
    original = News.add

    def add(self: News, row: Any) -> None:
        original(self, row)
        self.horizon = 0

    patch.setattr(News, "add", add)


def read_back_not_checked(patch: pytest.MonkeyPatch) -> None:
    validate, precondition = ReadBack.validate, ReadBack.precondition

    class Unchecked:
        def __init__(self, journal: Journal) -> None:
            self._journal = journal

        def __getattr__(self, name: str) -> Any:
            return getattr(self._journal, name)

        def require_readable(self, _: object) -> None:
            return

        def is_surely_readable(self, _: object) -> bool:
            return True

    def unchecked(self: ReadBack) -> None:
        if not isinstance(self._journal, Unchecked):
            self._journal = Unchecked(self._journal)  # type: ignore[assignment]

    def run_validate(self: ReadBack, *arguments: Any, **named: Any) -> Any:
        unchecked(self)
        return validate(self, *arguments, **named)

    def run_precondition(self: ReadBack, *arguments: Any) -> Any:
        unchecked(self)
        return precondition(self, *arguments)

    patch.setattr(ReadBack, "validate", run_validate)
    patch.setattr(ReadBack, "precondition", run_precondition)


@mutant
@unordered
def branches_not_protected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fence, "protect", lambda *_, **__: True)


@mutant
@unordered
def branches_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(raising, "holds", lambda *_: [])


def the_horizon_is_read_before_the_branch_is_written(patch: pytest.MonkeyPatch) -> None:
    def read_first(self: RetryingStore, check: CheckAndWrite, table: str, get: Get) -> tuple[bool, Row]:
        (row,) = self.read(table, [get])
        return self.check_and_write(*check), row

    patch.setattr(RetryingStore, "check_and_write_then_read", read_first)


def branches_listed_before_the_announcement(patch: pytest.MonkeyPatch) -> None:
    replace, holds = fence.replace, raising.holds
    listed: list[Any] = []

    def announce(store: Any, found: Any, new: Any) -> bool:
        if new.announced > new.revision:
            _, instance = current[-1]
            listed[:] = holds(instance, found.revision)
        return replace(store, found, new)

    current: list[Any] = []
    original = raising.raise_horizon

    def raise_horizon(instance: Instance, retention_ms: int) -> Any:
        current.append((retention_ms, instance))
        return original(instance, retention_ms)

    patch.setattr(fence, "replace", announce)
    patch.setattr(raising, "raise_horizon", raise_horizon)
    patch.setattr(raising, "holds", lambda *_: list(listed))


def horizon_above_the_watermark(patch: pytest.MonkeyPatch) -> None:
    def oldest_needed(instance: Instance, retention_ms: int) -> int:
        ms = instance.runtime.now_ms() - instance.settings.epoch_ms - retention_ms
        return revisions.pack(ms, 0, 0) - 1

    patch.setattr(raising, "oldest_needed", oldest_needed)


@mutant
def only_touched_columns_of_removed_nodes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeCells, "_with_earlier_lives", lambda *_: set())


@mutant
def progress_saved_before_the_deletion(patch: pytest.MonkeyPatch) -> None:
    original = Collector._next

    def following(self: Collector, limits: Any) -> Any:
        window = original(self, limits)
        if window is not None:
            progress, data, end, _ = window
            low, _ = limits(progress)
            if low == progress.collected:
                self._save(progress._replace(collected=end), data)
        return window

    patch.setattr(Collector, "_next", following)


@mutant
def forgotten_before_it_was_collected(patch: pytest.MonkeyPatch) -> None:
    # The mark of a deletion goes in the pass that deletes older versions.
    original = rule._needed

    def needed(versions: rule.Versions, horizon: int) -> Iterator[tuple[Column, int]]:
        _, value = max((one for one in versions.get(schema.DELETED, ()) if one[0] <= horizon), default=(0, b""))
        for column, at in original(versions, horizon):
            if column != schema.DELETED or value == schema.ALIVE:
                yield column, at

    patch.setattr(rule, "_needed", needed)


def all_rows_up_to_a_horizon_that_readers_do_not_know(patch: pytest.MonkeyPatch) -> None:
    original = Collector._collect_everything

    def collect(self: Collector, report: Report) -> None:
        report.horizon = self._instance.journal.fence.refresh()
        original(self, report)

    patch.setattr(Collector, "_collect_everything", collect)


@all_rows
def all_rows_above_the_horizon(patch: pytest.MonkeyPatch) -> None:
    original = Collector._collect_everything

    def collect(self: Collector, report: Report) -> None:
        report.horizon = max(report.horizon, self._instance.journal.low_bound - 1)
        original(self, report)

    patch.setattr(Collector, "_collect_everything", collect)


@all_rows
def private_cells_of_open_branches(patch: pytest.MonkeyPatch) -> None:
    def private(run: Any, rows: Any) -> list[Delete]:
        keys = [row.key for row in rows]
        found = run.instance.store.read(schema.NODES, [Get(key, versions=ALL_VERSIONS) for key in keys])
        cells = [(row.key, cell) for row in found for cell in row.cells if revisions.is_branch(cell.timestamp)]
        return [Delete(key, [CellVersion(*cell[:3])]) for key, cell in cells]

    patch.setattr(every_row, "_private", private)
