"""The collector: deletes the cells that no readable view needs, window by window up the journal.

The cost of a run follows what has changed since the last one. Each step may be repeated: what no readable view needs is
never needed again, so a collector that was killed, paused, or runs beside others does no harm. See ``docs/protocol.md``,
section 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hbasemk.format import changes, journal_row, paths, revisions, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel import settings
from hbasemk.kernel.batches import batched, by_size
from hbasemk.kernel.collection import (
    deletions,
    every_row,
    lost_uploads,
    other_cells,
    raising,
    retention,
    rule,
    unused_blobs,
)
from hbasemk.kernel.collection.progress import Progress, read_progress
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.fence import GRACE, GRACE_APART
from hbasemk.kernel.journal.rows import WHOLE, whole_rows
from hbasemk.store.abc import ALL_VERSIONS, CellVersion, Column, Delete, DeleteBelow, Get, NewCell, Page, Put, Row, Scan

WINDOW: Final = 200
"""The number of journal rows in one window. A column has at most so many versions to collect, and one."""
ROWS: Final = 100
"""The number of rows of nodes that one call reads, and another deletes from."""
FEW_ROWS: Final = 25
"""As :data:`ROWS`, in a store where all other writers wait while one writes."""
COLUMNS: Final = 1000
"""The number of columns of one row that one call reads."""

SUPERSEDED: Final = "superseded versions"
ENDED: Final = "cells of deleted nodes"
FORGOTTEN: Final = "marks of deletions"


@dataclass(slots=True)
class Report:
    """What a run has done: the horizon, the number of revisions, and the cells deleted, by kind."""

    horizon: int = 0
    revisions: int = 0
    cells: Counter[str] = field(default_factory=Counter)
    blobs_done: bool = True
    """False if the horizon rose all the time, so that no blob could be deleted."""


class Collector:
    """Collects for one instance, from at most ``rows_per_second`` rows each second (None: there is no limit).

    ``progress`` is called with a word and the number of those that are done.
    """

    def __init__(
        self,
        instance: Instance,
        rows_per_second: int | None = None,
        progress: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        self._instance = instance
        self._store = instance.store
        self._rows = FEW_ROWS if self._store.supports_transactions else ROWS
        self._rows_per_second = rows_per_second
        self._hidden: frozenset[int] = frozenset()
        self._writes = True
        self._progress = progress

    # --- runs --------------------------------------------------------------------------------------------

    def run(self, retention_ms: int, *, wait: bool = True, blobs: bool = False, full: bool = False) -> Report:
        """Raise the horizon, and delete what is older; with ``blobs`` also blobs that nothing refers to.

        With ``full``, read all rows, and not only what has changed since the last run.
        With ``wait``, wait until all readers know the new horizon. Otherwise delete up to one that they know by now, so that
        a later run deletes the rest. Raises ClockSkewError and StoreError; what has been done stays done.
        """
        if full or blobs:
            retention.require_order(self._instance)
        self.publish(retention_ms)
        if wait:
            self._wait_for_readers()
        report = Report()
        self.collect(retention_ms, report)
        if full:
            self._collect_everything(retention_ms, report)
        if blobs:
            report.blobs_done = unused_blobs.collect(self._run(report), retention_ms, self._wait_for_readers)
        while self._store.give_back_space():
            self._pause(ROWS)
        return report

    def _wait_for_readers(self) -> int:
        """Wait until all readers know the present horizon; return it."""
        runtime, fence = self._instance.runtime, self._instance.journal.fence
        fence.refresh()
        while fence.known_for(self._grace) < fence.horizon:
            runtime.sleep(self._grace / 4)
        return fence.horizon

    @property
    def _grace(self) -> float:
        """Seconds between the publication of a horizon and the first deletion."""
        return GRACE if self._store.supports_transactions else GRACE_APART

    def publish(self, retention_ms: int) -> None:
        """Raise the horizon as far as the retention, branches and checkpoints allow."""
        instance = self._instance
        instance.poll()
        instance.recovery.advance()
        raising.raise_horizon(instance, retention_ms)
        instance.journal.fence.refresh()

    def collect(self, remembered_ms: int, report: Report, windows: int | None = None) -> bool:
        """Delete what no view needs up to the horizon that all readers know; return whether all of it is done.

        ``windows``: do at most so many windows. Marks of deletions go when the horizon has passed them by ``remembered_ms``.
        """
        horizon = report.horizon = self._instance.journal.fence.known_for(self._grace)
        if not horizon:
            return True
        _, watermark = settings.read(self._store)
        # Read after the horizon was published: every id up to it is decided, and hidden if it must be.
        self._hidden = frozenset() if watermark is None else watermark.hidden
        forget = _forgotten_at(horizon, remembered_ms)
        done = 0
        while windows is None or done < windows:
            done += 1
            if (window := self._next(lambda progress: (progress.collected, horizon))) is not None:
                progress, data, end, rows = window
                self._collect_window(rows, end, report)
                # If this fails, another collector has done the same.
                if self._save(progress._replace(collected=end), data):
                    report.revisions += len(rows)
                    self._progress("revisions", report.revisions)
            elif (
                window := self._next(lambda progress: (progress.forgotten, min(forget, progress.collected)))
            ) is not None:
                progress, data, end, rows = window
                self._forget_window(rows, end, report)
                self._save(progress._replace(forgotten=end), data)
            else:
                self._collect_others(report)
                return True
        return False

    def estimate(self, retention_ms: int, *, blobs: bool = False, full: bool = False) -> Report:
        """Count what a run would delete, by kind. Writes nothing."""
        instance = self._instance
        if full or blobs:
            retention.require_order(instance)
        instance.poll()
        current = self._instance.journal.fence.refresh()
        horizon = raising.target(instance, retention_ms, current) or current
        report = Report(horizon)
        _, watermark = settings.read(self._store)
        self._hidden = frozenset() if watermark is None else watermark.hidden
        self._writes = False
        if full:
            self._collect_everything(retention_ms, report)
        else:
            self._estimate_windows(_forgotten_at(horizon, retention_ms), report)
            self._collect_others(report)
        if blobs:
            report.blobs_done = unused_blobs.collect(self._run(report), retention_ms, lambda: horizon)
        return report

    def _estimate_windows(self, forget: int, report: Report) -> None:
        counted: set[int] = set()
        low, forgotten = read_progress(self._store)[0]
        while (window := self._window(low, report.horizon)) is not None:
            low, rows = window
            report.revisions += len(rows)
            self._progress("revisions", report.revisions)
            for path in dict.fromkeys(change.path for row in rows for change in row.changes):
                # Each row once: what a window does not delete would be counted again.
                if hash(path) not in counted:
                    counted.add(hash(path))
                    self._collect_wide(paths.key(path), report.horizon, report)
        counted.clear()
        while (window := self._window(forgotten, forget)) is not None:
            forgotten, rows = window
            removed = [path for path in _removed(rows) if hash(path) not in counted]
            counted.update(map(hash, removed))
            self._forget([paths.key(path) for path in removed], forget, report)

    def _collect_everything(self, remembered_ms: int, report: Report) -> None:
        """Do what a run does for all rows, as far as readers know the horizon."""
        if not report.horizon:
            return
        run = self._run(report, full=True)
        forget = _forgotten_at(report.horizon, remembered_ms)
        actions = every_row.Actions(
            lambda rows: self._delete(rows, report.horizon, report, whole=True),
            lambda key: self._collect_wide(key, report.horizon, report),
            lambda keys: self._forget(keys, forget, report),
        )
        every_row.collect(run, actions)
        other_cells.collect(run)
        lost_uploads.collect(run)

    def _window(self, low: int, high: int) -> tuple[int, list[JournalRow]] | None:
        """Return the last id of the next window above ``low``, and its committed revisions; None if there is none."""
        if low >= high:
            return None
        scan = Scan(schema.revision_key(low + 1), schema.revision_key(high + 1), WINDOW, columns=WHOLE)
        rows = self._store.scan(schema.JOURNAL, scan)
        end = high if len(rows) < WINDOW else int.from_bytes(rows[-1].key[:8], "big")
        committed = [row for row in journal_row.decode(rows) if row.committed and not row.is_branch]
        return min(end, high), list(whole_rows(self._store, committed))

    def _next(
        self, limits: Callable[[Progress], tuple[int, int]]
    ) -> tuple[Progress, bytes | None, int, list[JournalRow]] | None:
        """Return the next window: the progress that it extends, its last id, and its committed revisions."""
        progress, data = read_progress(self._store)
        window = self._window(*limits(progress))
        return None if window is None else (progress, data, *window)

    def _save(self, progress: Progress, data: bytes | None) -> bool:
        put = Put(schema.SETTINGS_ROW, [NewCell(*schema.COLLECTED, progress.encode())])
        return (
            self._store.check_and_write(schema.CLUSTER, schema.COLLECTED, data, put, durable=False)
            or read_progress(self._store)[0] == progress
        )

    # --- one window --------------------------------------------------------------------------------------

    def _collect_window(self, rows: Sequence[JournalRow], end: int, report: Report) -> None:
        """Delete what the view at ``end`` does not need of the rows that these revisions touched."""
        touched: dict[str, dict[Column, None]] = {}
        lives: set[str] = set()
        for row in rows:
            for change in row.changes:
                touched.setdefault(change.path, {}).update(dict.fromkeys(change.columns()))
                if change.lives:
                    lives.add(change.path)
        whole = self._with_earlier_lives([path for path in touched if path in lives], end)
        narrow = [path for path in touched if path not in whole and len(touched[path]) <= COLUMNS]
        for part in batched(narrow, self._rows):
            gets = [
                Get(
                    paths.key(path),
                    columns=list({**touched[path], schema.DELETED: None}),
                    before=end + 1,
                    versions=ALL_VERSIONS,
                )
                for path in part
            ]
            self._delete(self._store.read(schema.NODES, gets), end, report)
        self._collect_whole([paths.key(path) for path in touched if path in whole], end, report)
        for path in touched:
            if path not in whole and len(touched[path]) > COLUMNS:
                self._collect_wide(paths.key(path), end, report)

    def _with_earlier_lives(self, candidates: Sequence[str], end: int) -> set[str]:
        """Return the nodes that had a life up to ``end`` which is over. Nobody lists the columns of such a life."""
        found = set()
        for part in batched(candidates, ROWS):
            gets = [
                Get(paths.key(path), columns=(schema.DELETED,), before=end + 1, versions=ALL_VERSIONS) for path in part
            ]
            for path, row in zip(part, self._store.read(schema.NODES, gets), strict=True):
                if [cell.value for cell in row.cells] != [schema.ALIVE]:
                    found.add(path)
        return found

    def _collect_whole(self, keys: Sequence[bytes], end: int, report: Report) -> None:
        """Delete what the view at ``end`` does not need of whole rows."""
        for part in batched(keys, self._rows):
            pages = [
                Get(key, page=Page(family, None, COLUMNS), before=end + 1)
                for key in part
                for family in (schema.DATA, schema.CHILDREN)
            ]
            columns = [len(row.cells) for row in self._store.read(schema.NODES, pages)]
            sizes = dict(zip(part, zip(columns[::2], columns[1::2], strict=True), strict=True))
            small = [key for key in part if max(sizes[key]) < COLUMNS]
            for group in by_size(small, lambda key: sum(sizes[key]), self._rows, 4 * COLUMNS):  # noqa: B023 - used at once
                gets = [Get(key, before=end + 1, versions=ALL_VERSIONS) for key in group]
                self._delete(self._store.read(schema.NODES, gets), end, report, whole=True)
            for key in part:
                if max(sizes[key]) >= COLUMNS:
                    self._collect_wide(key, end, report)

    def _collect_wide(self, key: bytes, end: int, report: Report) -> None:
        """Delete what the view at ``end`` does not need of one row, in pages of columns."""
        if self._writes:
            self._collect_children(key, end, report)
        for family in (schema.DATA, schema.CHILDREN):
            for row, with_lives in self._pages(key, family, end):
                self._delete([row], end, report, with_lives=with_lives)

    def _collect_children(self, key: bytes, end: int, report: Report) -> None:
        """Delete the child columns of ended lives as one range, if it contains nothing else."""
        ended = life = 0
        kind = SUPERSEDED
        for row, _ in self._pages(key, schema.CHILDREN, end):
            versions = self._versions_of(row)
            if schema.DELETED not in versions:
                return
            life, value = max(versions[schema.DELETED])
            kind = SUPERSEDED if value == schema.ALIVE else ENDED
            gone = set(rule.collectable(versions, end))
            below = [cell for cell in row.cells if cell.family == schema.CHILDREN and cell.timestamp < life]
            if not gone.issuperset(CellVersion(*cell[:3]) for cell in below):
                return
            ended += len(below)
        if ended:
            report.cells[kind] += ended
            self._send([], [DeleteBelow(key, (), [(schema.CHILDREN, life)])])

    def _pages(self, key: bytes, family: bytes, end: int) -> Iterator[tuple[Row, bool]]:
        """Yield all versions up to ``end`` of the columns of a family, in pages, each together with ``deleted``.

        Also says whether ``deleted`` is a column of this page.
        """
        after: bytes | None = None
        more = True
        while more:
            page = Get(key, page=Page(family, after, COLUMNS), before=end + 1)
            (row,) = self._store.read(schema.NODES, [page])
            more = len(row.cells) == COLUMNS
            if not row.cells:
                return
            after = row.cells[-1].qualifier
            columns = {(cell.family, cell.qualifier): None for cell in row.cells}
            get = Get(key, columns=list({**columns, schema.DELETED: None}), before=end + 1, versions=ALL_VERSIONS)
            yield self._store.read(schema.NODES, [get])[0], schema.DELETED in columns

    def _delete(
        self, rows: Iterable[Row], end: int, report: Report, *, whole: bool = False, with_lives: bool = True
    ) -> None:
        """Delete the versions of these columns that the view at ``end`` does not need; ``deleted`` is among the columns.

        ``whole``: the rows contain all columns. Unless ``with_lives``, the versions of ``deleted`` stay: another page of the row
        contains them.
        """
        deletes: list[Delete] = []
        ranges: list[DeleteBelow] = []
        for row in rows:
            versions = self._versions_of(row)
            lives = versions.get(schema.DELETED)
            if lives is None:
                # Without a life nothing says what the cells mean: another collector has forgotten the node, or it is damage.
                continue
            gone = set(rule.collectable(versions, end))
            if not with_lives:
                gone = {cell for cell in gone if cell[:2] != schema.DELETED}
            if gone:
                life, value = max(lives)
                families = deletions.ended_families(row, gone, life) if whole else []
                exact, below = deletions.split(row, gone, families)
                deletes += exact
                ranges += below
                report.cells[SUPERSEDED if value == schema.ALIVE else ENDED] += len(gone)
        self._send(deletes, ranges)

    def _versions_of(self, row: Row) -> dict[Column, list[tuple[int, bytes]]]:
        """Return the versions of trunk by column, without those of aborted revisions."""
        versions: dict[Column, list[tuple[int, bytes]]] = {}
        for family, qualifier, version, value in row.cells:
            if not revisions.is_branch(version) and version not in self._hidden:
                versions.setdefault((family, qualifier), []).append((version, value))
        return versions

    def _collect_others(self, report: Report) -> None:
        """Delete what nothing needs besides the cells that the windows name."""
        other_cells.collect(self._run(report))

    def _run(self, report: Report, *, full: bool = False) -> Run:
        return Run(self._instance, report.horizon, report.cells, self._writes, self._pause, full, self._progress)

    def _send(self, deletes: Sequence[Delete], ranges: Sequence[DeleteBelow]) -> None:
        if deletes and self._writes:
            self._store.delete(schema.NODES, deletes)
        if ranges and self._writes:
            self._store.delete_below(schema.NODES, ranges)
        self._pause(max(len(deletes), len(ranges)))

    def _pause(self, rows: int) -> None:
        if self._rows_per_second is not None and rows:
            self._instance.runtime.sleep(rows / self._rows_per_second)

    def _forget_window(self, rows: Sequence[JournalRow], end: int, report: Report) -> None:
        """Delete the marks of nodes that these revisions deleted, if nothing has revived them up to ``end``."""
        self._forget([paths.key(path) for path in _removed(rows)], end, report)

    def _forget(self, keys: Sequence[bytes], end: int, report: Report) -> None:
        """Delete the marks of deleted nodes that were deleted up to ``end``, and that nothing revived up to there."""
        for part in batched(keys, self._rows):
            gets = [Get(key, columns=(schema.DELETED,), before=end + 1, versions=ALL_VERSIONS) for key in part]
            ranges = []
            for row in self._store.read(schema.NODES, gets):
                lives = self._versions_of(row).get(schema.DELETED)
                if lives is not None and max(lives)[1] != schema.ALIVE:
                    gone = {CellVersion(*schema.DELETED, version) for version, _ in lives}
                    exact, below = deletions.split(row, gone)
                    self._send(exact, [])
                    ranges += below
                    # An estimate has counted the others already.
                    report.cells[FORGOTTEN] += len(gone) if self._writes else 1
            self._send([], ranges)


def _forgotten_at(horizon: int, remembered_ms: int) -> int:
    """Return the id up to which marks of deletions go: the horizon has passed them by ``remembered_ms``."""
    old = max(0, revisions.ms_of(horizon) - remembered_ms)
    return min(revisions.pack(old, 0, 0) - 1 if old else 0, horizon)


def _removed(rows: Sequence[JournalRow]) -> list[str]:
    """Return the paths of the nodes that some revisions removed, each once."""
    return list(dict.fromkeys(one.path for row in rows for one in row.changes if one.kind == changes.REMOVED))
