"""Polls of a store that orders all writes (SQLite, memory): read what arrived after a cursor.

The store numbers the writes of journal rows in the order in which it commits them. So a poll reads exactly what is new,
whatever any id or clock shows, and what joins is a prefix of one order that all instances share. See
``docs/protocol.md``, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal.news import FLAGS, FLAGS_AND_CHANGES, Contents, News
from hbasemk.kernel.journal.rows import JOURNAL_BATCH
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Store

BATCH: Final = 1000
"""Writes that one call reads, unless it also reads the changes of each row."""
ReadContents: TypeAlias = Callable[[Sequence[int], Mapping[int, JournalRow]], Contents]
"""Returns the changes of joining revisions; the rows that were read with :data:`FLAGS_AND_CHANGES` are known."""


class ArrivalPoller:
    """Finds new revisions by their arrival numbers. ``cursor`` is the number up to which all writes have been read."""

    def __init__(
        self, store: Store, settings: Settings, watermark: Watermark, wants_contents: Callable[[], bool]
    ) -> None:
        self._store = store
        self._wants_contents = wants_contents
        self._settings = settings
        self.cursor = watermark.first_cursor
        self._cursor_is_checked = self.cursor == 0
        self._trimmed = watermark.trimmed
        self.low_bound = watermark.revision + 1
        self._highest = watermark.revision
        self._pending: frozenset[int] = frozenset()
        self._before: dict[int, int] = {}
        """For each id above the watermark, an arrival number before its first write."""

    def read(self, sequence: RevisionSequence, read_contents: ReadContents) -> News:
        """Return what is new, in the order of arrival. One round trip for each 200 writes, and more for large changes.

        Raises RevisionCollectedError if a row with large changes is deleted before all of them are read.
        """
        whole = self._wants_contents()
        columns, limit = (FLAGS_AND_CHANGES, JOURNAL_BATCH) if whole else (FLAGS, BATCH)
        found: dict[int, JournalRow] = {}
        news = News()
        news.last = self.cursor
        news.trimmed = self._trimmed
        gone: list[int] = []
        committed: dict[int, None] = {}
        pending = set(self._pending)
        complete = False
        while not complete:
            before = news.last
            # The store never forgets the last number. So the first read finds the one at a right cursor, or a later one.
            after = before if self._cursor_is_checked else before - 1
            last, rows, complete = self._store.arrivals(schema.JOURNAL, after, limit, columns)
            if last < before:
                self._refuse_cursor()
            self._cursor_is_checked = True
            news.last = last
            if not rows and complete:
                break
            notices = (cell.value for row in rows if row.key == schema.NOTICE_FIRST for cell in row.cells)
            news.notice = next(notices, news.notice)
            part = News()
            for row in journal_row.decode(rows):
                if row.revision not in sequence.positions:
                    part.add(row)
                    if not row.cells and not row.is_branch and row.revision > sequence.floor:
                        gone.append(row.revision)
                if row.revision > sequence.floor and not row.is_branch:
                    news.before.setdefault(row.revision, before)
                    if whole and row.committed:
                        found[row.revision] = row
            for revision in part.committed:
                # The row shows its present state. It arrived with its last write, the decision; nothing writes it afterwards.
                committed.pop(revision, None)
                committed[revision] = None
            news.highest = max(news.highest, part.highest)
            news.horizon = max(news.horizon, part.horizon)
            news.trimmed = max(news.trimmed, part.trimmed)
            news.unswept |= part.unswept
            news.swept |= part.swept
            pending |= part.pending
            pending -= {*part.committed, *part.unswept, *part.swept}
        news.committed = [revision for revision in committed if revision > sequence.floor]
        news.pending = pending
        # The row by which polls learn the trim level is written later than what the level covers. So this read returned it.
        arrival, trimmed = news.trimmed
        news.is_complete = self.cursor >= arrival and not any(revision <= trimmed for revision in gone)
        if news.is_complete:
            # The watermark, which is never below the horizon, is a revision that arrived before the horizon was published.
            if news.horizon > max(news.highest, self._highest):
                self._refuse_horizon(news.horizon)
            news.contents = read_contents(news.committed, found) if news.committed else {}
        return news

    def _refuse_cursor(self) -> NoReturn:
        """Raise FormatError for the number after which this instance would read: it is above the last one."""
        column = schema.ARRIVAL if self.cursor > self._trimmed.arrival else schema.TRIMMED
        raise schema.damaged(
            f"the arrival number {self.cursor} is above the last one of table {schema.JOURNAL!r}, so new instances would miss "
            "commits",
            schema.CLUSTER,
            schema.SETTINGS_ROW,
            column,
        )

    def _refuse_horizon(self, horizon: int) -> NoReturn:
        """Raise FormatError for a horizon that is above all revisions."""
        raise schema.damaged(
            f"the horizon in the journal is {revisions.to_text(horizon)}, and the highest revision is lower",
            schema.JOURNAL,
            schema.revision_key(schema.NOTICE),
            schema.NOTICE_HORIZON,
        )

    def finish(self, news: News, pending: Collection[int], floor: int) -> None:
        """Move the cursor after what a read found has joined."""
        # Not during the read: another thread may forget meanwhile.
        for revision, number in news.before.items():
            self._before.setdefault(revision, number)
        self.cursor = max(self.cursor, news.last)
        self._trimmed = news.trimmed
        if news.highest > self._highest or floor >= self.low_bound or pending or self._pending:
            self._pending = frozenset(pending)
            self._rise(news.highest, floor)

    def _rise(self, highest: int, floor: int) -> None:
        self._highest = max(self._highest, highest)
        low = revisions.earlier(self._highest, self._settings.max_clock_skew_ms)
        self.low_bound = max(min([low, *self._pending]), floor + 1)

    def follows(self, created: int, committed: int) -> bool:
        """Return whether a revision with these arrival numbers comes directly after what has been read."""
        return self.cursor >= committed - 1 or (self.cursor == created - 1 and committed == created + 1)

    def joined(self, revision: int, created: int, committed: int, floor: int) -> None:
        """Record that a revision that :meth:`follows` has joined."""
        self._before.setdefault(revision, created - 1)
        self.cursor = max(self.cursor, committed)
        self._rise(revision, floor)

    def number_before(self, revision: int) -> int:
        """Return an arrival number before the first write of every id greater than ``revision``, known or not."""
        return min([self.cursor, *(number for one, number in self._before.items() if one > revision)])

    def forget(self, floor: int) -> None:
        """Drop what only a lower watermark needs."""
        self._before = {one: number for one, number in self._before.items() if one > floor}
