"""The collector: deletes the cells that no readable view needs, window by window up the journal.

The cost of a run follows what has changed since the last one. Each step may be repeated: what no readable view needs is
never needed again, so a collector that was killed, paused, or runs beside others does no harm. See ``docs/protocol.md``,
section 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hbasemk.errors import RevisionCollectedError
from hbasemk.format import journal_row, paths, revisions, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel import settings, time_travel
from hbasemk.kernel.collection import (
    every_row,
    journal_rows,
    lost_uploads,
    other_cells,
    raising,
    unused_blobs,
)
from hbasemk.kernel.collection.node_cells import ROWS, NodeCells, removed
from hbasemk.kernel.collection.progress import Progress, read_progress
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.rows import WHOLE, whole_rows
from hbasemk.store.abc import NewCell, Put, Scan

WINDOW: Final = 200
"""The number of journal rows that one call reads, and that most windows have."""
HOT_CHANGES: Final = 4000
"""The changes of nodes above which a window of a hot node ends. A column has at most so many versions to collect, and one."""
SEARCHED_MS: Final = time_travel.WINDOW_MS
"""The id time below the horizon of which journal rows stay, because the search by time reads them."""


@dataclass(slots=True)
class Report:
    """What a run has done: the horizon, the number of revisions, and the cells deleted, by kind.

    ``forgotten`` is the id up to which the run deletes marks of deletions.
    """

    horizon: int = 0
    forgotten: int = 0
    revisions: int = 0
    cells: Counter[str] = field(default_factory=Counter)
    blobs_done: bool = True
    """False if no blob could be deleted, because other processes deleted cells while the references were read."""
    hold: raising.Hold | None = None
    """The branch or checkpoint that held the horizon back at the beginning; None if there was none."""


class Collector:
    """Collects for one instance, from at most ``rows_per_second`` rows each second (None: there is no limit).

    ``progress`` is called with a word and the number of those that are done. The journal rows of ``searched_ms`` of id time below
    the horizon stay (None: :data:`SEARCHED_MS`).
    """

    def __init__(
        self,
        instance: Instance,
        rows_per_second: int | None = None,
        progress: Callable[[str, int], None] = lambda *_: None,
        searched_ms: int | None = None,
    ) -> None:
        self._instance = instance
        self._store = instance.store
        self._rows_per_second = rows_per_second
        self._writes = True
        self._progress = progress
        self._searched_ms = SEARCHED_MS if searched_ms is None else searched_ms

    # --- runs --------------------------------------------------------------------------------------------

    def run(self, retention_ms: int, *, wait: bool = True, blobs: bool = False, full: bool = False) -> Report:
        """Raise the horizon, and delete what is older; with ``blobs`` also blobs that nothing refers to.

        With ``full``, read all rows, and not only what has changed since the last run.
        With ``wait``, wait until all readers know the new horizon. Otherwise delete up to one that they know by now, so that
        a later run deletes the rest. Raises ClockSkewError and StoreError; what has been done stays done.
        """
        self.publish(retention_ms)
        if wait:
            self._wait_for_readers()
        wanted = raising.oldest_needed(self._instance, retention_ms)
        report = Report(hold=raising.first_hold(self._instance, self._instance.journal.fence.horizon, wanted))
        self.collect(retention_ms, report)
        if full:
            self._collect_everything(report)
        if blobs:
            report.blobs_done = unused_blobs.collect(self._run(report), retention_ms, self._wait_for_readers)
        while self._store.give_back_space():
            self._pause(ROWS)
        return report

    def _wait_for_readers(self) -> int:
        """Wait until all readers know the present horizon and trim level; return the highest horizon that they know.

        That is not the newest one if others have published one meanwhile.
        """
        runtime, fence = self._instance.runtime, self._instance.journal.fence
        horizon, trimmed = fence.refresh(), fence.trimmed
        while fence.known_horizon < horizon or fence.known_trim_level < trimmed:
            runtime.sleep(fence.grace / 4)
        return fence.known_horizon

    @property
    def grace(self) -> float:
        """Seconds between the publication of a horizon and the first deletion."""
        return self._instance.journal.fence.grace

    def publish(self, retention_ms: int) -> None:
        """Raise the horizon as far as the retention, branches and checkpoints allow; also the trim level on HBase."""
        instance = self._instance
        instance.poll()
        instance.recovery.advance()
        raising.raise_horizon(instance, retention_ms)
        instance.journal.fence.refresh()
        journal_rows.publish(instance)

    def collect(self, remembered_ms: int, report: Report, windows: int | None = None) -> bool:
        """Delete what no view needs, up to the horizon that all readers know; return whether nothing is left to do.

        ``windows``: do at most so many windows; one of a hot node counts as several. After the last window, read at most so many
        batches of journal rows in each pass over them. Marks of deletions are deleted when the horizon has passed them by
        ``remembered_ms``, or by ``searched_ms`` if that is longer.
        """
        horizon = report.horizon = self._instance.journal.fence.known_horizon
        if not horizon:
            return True
        cells = self._node_cells(report)
        forget = report.forgotten = self._forgotten_at(horizon, remembered_ms)
        done = 0
        while windows is None or done < windows:
            if (window := self._next(lambda progress: (progress.collected, horizon))) is not None:
                progress, data, end, rows = window
                done += max(1, len(rows) // WINDOW)
                cells.collect_window(rows, end)
                # If this fails, another collector has done the same.
                if self._save(progress._replace(collected=end), data):
                    report.revisions += len(rows)
                    self._progress("revisions", report.revisions)
            elif (
                window := self._next(lambda progress: (progress.forgotten, min(forget, progress.collected)))
            ) is not None:
                progress, data, end, rows = window
                done += max(1, len(rows) // WINDOW)
                cells.forget_window(rows, end)
                self._save(progress._replace(forgotten=end), data)
            else:
                return self._collect_others(report, windows)
        return False

    def estimate(self, retention_ms: int, *, blobs: bool = False, full: bool = False) -> Report:
        """Count what a run would delete, by kind. Writes nothing."""
        instance = self._instance
        instance.poll()
        current = self._instance.journal.fence.refresh()
        target, hold = raising.target(instance, retention_ms, current)
        horizon = target or current
        report = Report(horizon, self._forgotten_at(horizon, retention_ms), hold=hold)
        self._writes = False
        if full:
            self._collect_everything(report)
        else:
            self._estimate_windows(report.forgotten, report)
            self._collect_others(report)
        if blobs:
            report.blobs_done = unused_blobs.collect(self._run(report), retention_ms, lambda: horizon)
        return report

    def _estimate_windows(self, forget: int, report: Report) -> None:
        counted: set[int] = set()
        cells = self._node_cells(report)
        low, forgotten = read_progress(self._store)[0]
        while (window := self._window(low, report.horizon)) is not None:
            low, rows = window
            report.revisions += len(rows)
            self._progress("revisions", report.revisions)
            for path in dict.fromkeys(change.path for row in rows for change in row.changes):
                # Each row once: what a window does not delete would be counted again.
                if hash(path) not in counted:
                    counted.add(hash(path))
                    cells.collect_wide(paths.key(path), report.horizon)
        counted.clear()
        while (window := self._window(forgotten, forget)) is not None:
            forgotten, rows = window
            gone = [path for path in removed(rows) if hash(path) not in counted]
            counted.update(map(hash, gone))
            cells.forget([paths.key(path) for path in gone], forget)

    def _collect_everything(self, report: Report) -> None:
        """Do what a run does for all rows, as far as readers know the horizon. Chunks of lost uploads need no horizon."""
        run = self._run(report, full=True)
        lost_uploads.collect(run)
        if not report.horizon:
            return
        cells = self._node_cells(report)
        actions = every_row.Actions(
            lambda rows: cells.delete(rows, report.horizon, whole=True),
            lambda key: cells.collect_wide(key, report.horizon),
            lambda keys: cells.forget(keys, report.forgotten),
        )
        every_row.collect(run, actions)
        other_cells.collect(run)

    def _forgotten_at(self, horizon: int, remembered_ms: int) -> int:
        """Return the id up to which marks of deletions, and journal rows, are deleted: the horizon has passed them long ago."""
        old = max(0, revisions.ms_of(horizon) - max(remembered_ms, self._searched_ms))
        return min(revisions.pack(old, 0, 0) - 1 if old else 0, horizon)

    def _window(self, low: int, high: int) -> tuple[int, list[JournalRow]] | None:
        """Return the last id of the next window above ``low``, and its committed revisions; None if there is none."""
        if low >= high:
            return None
        end = low
        rows: list[JournalRow] = []
        touched: Counter[str] = Counter()
        while end < high:
            scan = Scan(schema.revision_key(end + 1), schema.revision_key(high + 1), WINDOW, columns=WHOLE)
            found = self._store.scan(schema.JOURNAL, scan)
            end = high if len(found) < WINDOW else min(high, int.from_bytes(found[-1].key[:8], "big"))
            committed = [row for row in journal_row.decode(found) if row.committed and not row.is_branch]
            more = list(whole_rows(self._store, committed))
            rows += more
            touched.update(change.path for row in more for change in row.changes)
            if not self._is_hot(touched, len(rows)):
                break
        return end, rows

    def _is_hot(self, touched: Counter[str], revisions: int) -> bool:
        """Return whether a window should go on, because many of its revisions changed the same node.

        HBase steps over all newer versions of a node when it reads older ones. So the fewer reads there are of a node with very
        many versions, the less work it has. SQLite seeks, and in small windows other writers wait less.
        """
        most = max(touched.values(), default=0)
        return not self._store.supports_transactions and 0 < revisions <= 4 * most and touched.total() < HOT_CHANGES

    def _next(
        self, limits: Callable[[Progress], tuple[int, int]]
    ) -> tuple[Progress, bytes | None, int, list[JournalRow]] | None:
        """Return the next window: the progress that it extends, its last id, and its committed revisions."""
        while True:
            progress, data = read_progress(self._store)
            try:
                window = self._window(*limits(progress))
            except RevisionCollectedError:
                # Another collector has done the window and deleted its rows, so the progress has moved.
                continue
            return None if window is None else (progress, data, *window)

    def _save(self, progress: Progress, data: bytes | None) -> bool:
        put = Put(schema.SETTINGS_ROW, [NewCell(*schema.COLLECTED, progress.encode())])
        return (
            self._store.check_and_write(schema.CLUSTER, schema.COLLECTED, data, put, durable=False)
            or read_progress(self._store)[0] == progress
        )

    def _node_cells(self, report: Report) -> NodeCells:
        """Return what deletes cells of nodes; call it after the horizon was published."""
        _, watermark = settings.read(self._store)
        # Every id up to the horizon is decided, and hidden if it must be.
        return NodeCells(self._run(report), frozenset() if watermark is None else watermark.hidden)

    def _collect_others(self, report: Report, batches: int | None = None) -> bool:
        """Delete what nothing needs besides the cells that the windows name; return whether nothing is left to do."""
        return other_cells.collect(self._run(report), batches)

    def _run(self, report: Report, *, full: bool = False) -> Run:
        return Run(
            self._instance,
            report.horizon,
            report.cells,
            self._writes,
            self._pause,
            full,
            report.forgotten,
            self._progress,
        )

    def _pause(self, rows: int) -> None:
        if self._rows_per_second is not None and rows:
            self._instance.runtime.sleep(rows / self._rows_per_second)
