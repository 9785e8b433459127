"""Polls of a store without a total order of writes (HBase): a scan from the newest journal row down to a bound.

Nothing that is undecided exists, or can appear, below the bound. The bound is an estimate by the store's clock: it decides
how soon an instance sees a revision, never whether a conflict is found. See ``docs/protocol.md``, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal.news import FLAGS, News, RowContent
from hbasemk.kernel.journal.sequence import RevisionSequence
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Scan, Store, scan_all

SCAN_BATCH: Final = 1000
CLOCK_DRIFT: Final = 0.001
"""The fraction by which the server's clock may run slower than the local clock between two readings of it."""


class ScanPoller:
    """Finds new revisions by scanning down to :attr:`low_bound`.

    It finds a revision whose row comes below the bound only later, when the watermark moves past it.
    """

    def __init__(self, store: Store, runtime: Runtime, settings: Settings, watermark: Watermark) -> None:
        self._store = store
        self._runtime = runtime
        self._settings = settings
        self.low_bound = watermark.revision + 1
        self._uncovered: set[int] = set()
        self._was_lowered = False
        self._server_offset: float | None = None
        self._latest_offset: float | None = None
        self._clock_measured_at = runtime.monotonic()

    @property
    def must_look_deeper(self) -> bool:
        """Whether the next poll may find rows that were there before: a read-back found one, or the clock went back."""
        return self._was_lowered or bool(self._uncovered)

    def read(
        self,
        sequence: RevisionSequence,
        verified: int,
        read_contents: Callable[[Sequence[int]], Mapping[int, RowContent]],
    ) -> News:
        """Return what is new, in the order of ids. One round trip, or two if anything is new."""
        began = self._runtime.monotonic()
        uncovered = frozenset(self._uncovered)
        low = max(min(self.low_bound, *uncovered) if uncovered else self.low_bound, sequence.floor + 1)
        while True:
            news = self.scan(sequence, low)
            news.began, news.covered = began, uncovered
            news.committed.sort()
            news.contents = read_contents(news.committed)
            deeper = _lowest_unknown_base(news.contents, sequence, verified, low)
            if deeper is None:
                return news
            # A revision joins only together with its base. Its writer knew a base that the polls here skipped.
            low = deeper

    def scan(self, sequence: RevisionSequence, low: int, high: int | None = None) -> News:
        """Scan the revisions from ``high`` (None: the newest) down to ``low``."""
        news = News()
        now = self._runtime.monotonic()
        latest = float("inf") if self._latest_offset is None else self._latest_offset + now * 1000 * (1 + CLOCK_DRIFT)
        scan = Scan(
            None if high is None else schema.revision_key(high),
            schema.revision_key(low - 1),
            SCAN_BATCH,
            reverse=True,
            columns=FLAGS,
        )
        known = sequence.positions
        for row in scan_all(self._store, schema.JOURNAL, scan):
            # Most rows are known, so only the others are worth checking and decoding.
            revision = int.from_bytes(row.key, "big")
            is_known = revision in known
            if not is_known and not journal_row.is_key(row.key):
                if row.key == schema.NOTICE_LAST:
                    news.read_last_row(row)
                continue
            for _, _, timestamp, _ in row.cells:
                if news.server_ms < timestamp <= latest:
                    news.server_ms = timestamp
            if is_known:
                news.highest = max(news.highest, revision)
            else:
                news.add(journal_row.JournalRow(row))
        return news

    def finish(self, news: News, pending: Collection[int], floor: int) -> None:
        """Raise the bound after what a read found has joined."""
        # A row that this poll did not find was created after the poll began. By then the server's clock had reached
        # every server time seen so far plus the elapsed time (less the drift). An id is at most the lag behind the
        # creation time of its row.
        self._uncovered -= news.covered
        self._was_lowered = False
        if news.server_ms:
            scanning = (self._runtime.monotonic() - news.began) * 1000 * (1 + CLOCK_DRIFT)
            measured = news.server_ms - scanning - news.began * 1000 * (1 - CLOCK_DRIFT)
            self._server_offset = measured if self._server_offset is None else max(self._server_offset, measured)
        low = self.low_bound
        if self._server_offset is not None:
            server = self._server_offset + news.began * 1000 * (1 - CLOCK_DRIFT)
            ms = int(server) - self._settings.epoch_ms - self._settings.lag_ms - 1
            if ms > 0:
                low = max(low, revisions.pack(min(ms, revisions.MAX_MS), 0, 0))
        self.low_bound = max(min([low, *pending]), floor + 1)

    def decided_bound(self, verified: int) -> int:
        """Return the id below which no revision can still commit, if server clocks differ by at most the allowed skew."""
        return max(revisions.earlier(self.low_bound, self._settings.max_clock_skew_ms), verified + 1)

    def cover(self, version: int, verified: int) -> None:
        """Make the next poll scan down to this revision, which a read-back found and no poll has seen."""
        if verified < version < self.low_bound:
            self._uncovered.add(version)

    def clock_was_measured(self, server_ms: float, floor: int) -> None:
        """Record an upper bound of the store's clock, in ms since 1970. If the clock went back, lower the bound too.

        The next poll then finds rows that were created since the previous measurement and seemed to lie below the bound.
        From now on polls ignore timestamps later than the store's clock can show: they are from before the step.
        """
        now = self._runtime.monotonic()
        previous, self._clock_measured_at = self._clock_measured_at, now
        self._latest_offset = server_ms - now * 1000 * (1 + CLOCK_DRIFT)
        if self._server_offset is None:
            return
        offset = server_ms - now * 1000 * (1 - CLOCK_DRIFT)
        if self._server_offset <= offset:
            return
        self._server_offset = offset
        self._was_lowered = True
        oldest = server_ms - (now - previous) * 1000 * (1 + CLOCK_DRIFT)
        ms = int(oldest) - self._settings.epoch_ms - self._settings.lag_ms - 1
        self.low_bound = max(min(self.low_bound, revisions.pack(max(ms, 0), 0, 0)), floor + 1)


def _lowest_unknown_base(
    contents: Mapping[int, RowContent], sequence: RevisionSequence, verified: int, low: int
) -> int | None:
    """Return the lowest base of the new revisions that is unknown here and lies below the scan."""
    known = sequence.positions
    unknown = [one.base for one in contents.values() if verified < one.base < low and one.base not in known]
    return min(unknown) if unknown else None
