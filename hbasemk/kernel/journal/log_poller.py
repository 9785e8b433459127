"""Polls of a store without a total order of writes (HBase): the logs of all writers, each read after a cursor.

No clock plays a part. What one poll lets in is causally closed: it waits for what was announced during the poll. See
``docs/protocol.md``, section 5.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from hbasemk.format import journal_row, recent_commits, revisions, schema, writer_log
from hbasemk.format.changes import RowChange
from hbasemk.format.horizon import Horizon
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.trim_level import NOTHING_TRIMMED, TrimLevel
from hbasemk.format.watermark import Watermark
from hbasemk.format.writer_log import WriterLog
from hbasemk.kernel.journal.news import FLAGS, FLAGS_AND_CHANGES, Contents, News
from hbasemk.kernel.journal.rows import first_parts, journal_rows, whole_rows
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Column, Row, Scan, scan_all

BATCH: Final = 1000
LOGS_AT_ONCE: Final = 2000
"""The rows in one reading of the logs, which are small. More logs take a further call for each such number."""
LOGS: Final = Scan(schema.LOGS_HEAD, schema.LOGS_END, LOGS_AT_ONCE)
"""The logs of all writers; before them the watermark, and after them the horizon, the trim level and the notice of
checkpoints."""
_COLUMNS: Final = (schema.LOG, schema.WATERMARK, schema.HORIZON, schema.TRIMMED, schema.CHECKPOINTS_NOTICE)
_WITH_COMMITS: Final = (*_COLUMNS, schema.RECENT_COMMITS)
_WITH_HOLDERS: Final = (*_COLUMNS, schema.LOG_HOLDER)


class Announced:
    """What one reading of the logs showed.

    ``new`` are the ids above the cursors. ``commits`` has the changes of revisions that have committed, if their logs show
    them: of most that are new or waiting, and perhaps of others. ``gaps`` are the ranges of ids, by machine id, that have
    left the logs.
    """

    __slots__ = ("bounds", "commits", "gaps", "horizon", "new", "notice", "trimmed", "watermark")

    def __init__(self) -> None:
        self.new: set[int] = set()
        self.commits: dict[int, bytes] = {}
        self.gaps: dict[int, tuple[int, int]] = {}
        self.bounds: dict[int, int] = {}
        self.watermark = 0
        self.horizon = 0
        self.trimmed = NOTHING_TRIMMED
        self.notice: bytes | None = None


class LogPoller:
    """Finds new revisions by the logs in which writers announce them."""

    def __init__(
        self, store: RetryingStore, runtime: Runtime, watermark: Watermark, wants_contents: Callable[[], bool]
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._wants_contents = wants_contents
        self._origin = watermark.revision
        self._cursors: dict[int, int] = {}
        self._waiting: frozenset[int] = frozenset()
        """The ids above the floor that were read, and whose revisions have neither joined nor been aborted."""
        self.held_back: Mapping[int, int] = {}
        """The committed revisions that the last poll let wait, because of ids that were announced during it. A lower id that a
        later poll shows only in its second reading matters to a revision if it is below the number here."""
        self._read_before: dict[int, Sequence[RowChange]] = {}
        """Changes of committed revisions that an earlier poll has read: one that failed, or one that lets them wait."""

    # --- logs --------------------------------------------------------------------------------------------

    def read_logs(self) -> dict[int, WriterLog]:
        """Return the logs of all machine ids as they are now. One round trip for each 2000."""
        logs: dict[int, WriterLog] = {}
        for row in self._rows(_WITH_HOLDERS):
            machine = schema.log_machine(row.key)
            if machine is not None:
                logs[machine] = writer_log.decode(row)
        return logs

    def _rows(self, columns: Sequence[Column]) -> Iterable[Row]:
        return scan_all(self._store, schema.CLUSTER, LOGS._replace(columns=columns))

    def _read(self, columns: Sequence[Column], cursors: Mapping[int, int]) -> Announced:
        """Read what all logs show after their cursors. One round trip for each 2000."""
        found = Announced()
        below_waiting = self.lowest_waiting - 1
        for row in self._rows(columns):
            machine = schema.log_machine(row.key)
            if machine is None:
                _read_mark(row, found)
                continue
            cursor = cursors.get(machine, self._origin)
            bound = next((cell.timestamp for cell in row.cells if cell.qualifier == schema.LOG[1]), 0)
            if bound > cursor:
                _read_log(machine, writer_log.decode(row, cursor), cursor, found)
                if machine in cursors:
                    # So its writer is at work. In a copy of the tables, the logs may show commits that the journal lacks.
                    found.commits.update(recent_commits.of_row(row, min(cursor, below_waiting)))
        return found

    # --- polls -------------------------------------------------------------------------------------------

    def read(self, sequence: RevisionSequence, read_contents: Callable[[Sequence[int]], Contents]) -> News:
        """Return what is new, in the order of ids. One round trip; two more, at the same time, if anything is new."""
        first = self._read(_WITH_COMMITS, self._cursors)
        news = News()
        news.watermark, news.horizon, news.notice = first.watermark, first.horizon, first.notice
        news.trimmed = first.trimmed
        news.bounds = first.bounds
        known = sequence.positions
        new = {one for one in first.new if one > sequence.floor and one not in known}
        waiting = {one for one in self._waiting if one > sequence.floor and one not in known} | new
        news.highest = max(new, default=0)
        if not waiting and not first.gaps:
            return news
        if not new and not first.gaps:
            # All of them were read by an earlier poll. What they were built on was announced before that.
            self._read_states(waiting, first, sequence, news)
        else:
            cursors = {**self._cursors, **first.bounds}
            second, _ = self._runtime.run_parallel(
                lambda: self._read(_COLUMNS, cursors), lambda: self._read_states(waiting, first, sequence, news)
            )
            self._exclude(second, cursors, news)
        news.committed.sort()
        unread = [revision for revision in news.committed if revision not in news.read]
        news.contents = {**news.read, **read_contents(unread)} if unread else news.read
        return news

    def _read_states(self, ids: Collection[int], logs: Announced, sequence: RevisionSequence, news: News) -> None:
        """Add the states of revisions to the news: of those listed, and of those that have left the logs."""
        wants_contents = self._wants_contents()
        before = {one: content for one, content in self._read_before.items() if one in ids}
        news.read.update(before)
        news.committed += before
        unread = sorted(set(ids).difference(before))
        shown = [one for one in unread if one in logs.commits]
        if shown:
            # The log shows what the journal row has: the revision has committed, with these changes.
            news.committed += shown
            if wants_contents:
                for one in shown:
                    news.read[one] = self._read_before[one] = recent_commits.changes_of(one, logs.commits[one])
            unread = [one for one in unread if one not in logs.commits]
        if wants_contents:
            # Committed revisions join, usually at once, so their further chunks are read, too. Those of pending ones are not.
            for row in first_parts(self._store, unread, FLAGS_AND_CHANGES):
                if row.committed:
                    (whole,) = whole_rows(self._store, [row])
                    news.read[row.revision] = self._read_before[row.revision] = whole.required_changes
                _add(row, news)
        else:
            for row in journal_rows(self._store, unread, columns=FLAGS):
                _add(row, news)
        gaps = logs.gaps
        low = min((cursor for cursor, _ in gaps.values()), default=0)
        if not gaps:
            return
        start, stop = max(low, sequence.floor) + 1, max(base for _, base in gaps.values()) + 1
        scan = Scan(schema.revision_key(start), schema.revision_key(max(start, stop)), BATCH, columns=FLAGS)
        for row in journal_row.decode(scan_all(self._store, schema.JOURNAL, scan) if start < stop else ()):
            cursor, base = gaps.get(revisions.machine_of(row.revision), (0, 0))
            if cursor < row.revision <= base and row.revision not in ids and row.revision not in sequence.positions:
                news.add(row)

    def _exclude(self, second: Announced, read_up_to: Mapping[int, int], news: News) -> None:
        """Let revisions wait that may have been built on an id which only the second reading shows.

        Everything else that they were built on was read before the states. A revision that waits for some ids waits in the next
        poll only if one of these may wait, too: for ids below the highest of them. ``read_up_to`` are the ids up to which each
        log has been read before, by machine id.
        """
        later = second.new
        limits = sorted(later)
        left = revisions.MAX_REVISION + 1
        for machine, bound in second.bounds.items():
            before = read_up_to.get(machine, self._origin)
            if machine in second.gaps:
                # Some have left the log already. The next poll reads the log again, and these in the journal.
                left = min(left, before + 1)
                later = {one for one in later if revisions.machine_of(one) != machine}
            else:
                news.bounds[machine] = bound
        # It is at least the horizon of the first reading, and covers the logs that were deleted meanwhile.
        news.horizon = max(news.horizon, second.horizon)
        news.trimmed = max(news.trimmed, second.trimmed)
        news.highest = max([news.highest, *second.new])
        for one in news.committed:
            below = self.held_back.get(one, one)
            lower = bisect_left(limits, below)
            if left <= below:
                news.held_back[one] = below
            elif lower:
                news.held_back[one] = limits[lower - 1]
        news.deferred = later.union(news.held_back)
        news.committed = [one for one in news.committed if one not in news.held_back]

    def scan(self, sequence: RevisionSequence, low: int, high: int) -> News:
        """Read the journal from one id to another, both included; all are decided."""
        news = News()
        scan = Scan(schema.revision_key(low), schema.revision_key(high + 1), BATCH, columns=FLAGS)
        for row in journal_row.decode(scan_all(self._store, schema.JOURNAL, scan)):
            if row.revision not in sequence.positions:
                news.add(row)
        return news

    def finish(self, news: News, pending: Collection[int], floor: int) -> None:
        """Move the cursors after what a read found has joined."""
        self._read_before = {one: news.read[one] for one in news.deferred if one in news.read}
        self.held_back = news.held_back
        # Before the cursors, which pass these ids: an interrupt between the two loses none.
        self._waiting = frozenset(one for one in {*pending, *news.deferred} if one > floor)
        self._cursors.update(news.bounds)

    @property
    def lowest_waiting(self) -> float:
        """The lowest id of a revision that may be committed and has not joined; infinity if there is none."""
        return min(self._waiting, default=float("inf"))


def _add(row: JournalRow, news: News) -> None:
    if row.cells:
        news.add(row)
    else:
        # The revision is announced, and its row does not exist yet.
        news.pending.add(row.revision)


def _read_log(machine: int, log: WriterLog, cursor: int, found: Announced) -> None:
    """Add the log of a machine id, decoded above the cursor."""
    found.bounds[machine] = log.bound
    found.new.update(log.ids)
    if log.base > cursor:
        found.gaps[machine] = cursor, log.base


def _read_mark(row: Row, found: Announced) -> None:
    """Read the row before or after the logs."""
    for cell in row.cells:
        column = cell[:2]
        if column == schema.WATERMARK:
            found.watermark = Watermark.decode_copy(cell)
        elif column == schema.HORIZON:
            found.horizon = Horizon.decode(cell.value, (schema.CLUSTER, row.key, schema.HORIZON)).revision
        elif column == schema.TRIMMED:
            found.trimmed = TrimLevel.decode(cell.value, (schema.CLUSTER, row.key, schema.TRIMMED))
        elif column == schema.CHECKPOINTS_NOTICE:
            found.notice = cell.value
