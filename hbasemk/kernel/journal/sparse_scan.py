"""Reads of the few journal rows that have certain columns, such as those of branches, among very many that do not.

The limit of a scan counts rows that match. HBase visits every row of the range to find them. If few rows match, one call
visits millions of rows, and times out each time that it is made. So the scan reads *windows*, which are bounded ranges of id
time, in ascending order.

The number of rows in a window is not known beforehand. So its length follows from how long the calls take. At ten commits a
second the first window, of an hour, has 36,000 rows; HBase visits them in some 0.3 s. A call that fails may have timed out,
and would take as long again. So the next window is the shortest one, which is fast at any rate of commits. Later windows
grow by fast calls. Up to the end of the window that failed, they stay much shorter than it was: it contains many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hbasemk.errors import StoreNotAppliedError, StoreUnknownError
from hbasemk.format import revisions, schema
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Row, Scan, scan_all

FIRST_MS: Final = 3_600_000
"""The id time of the first window. So a journal of the last hour takes one call."""
SHORTEST_MS: Final = 1_000
"""The id time of the shortest window. A call that fails for this one meets an outage; it is retried as all others."""
GROWTH: Final = 4
"""How many times as long a window is as the one before it, after a fast call. Ten years are ten windows."""
FAST: Final = 0.2
"""Seconds below which a call is fast. The next one takes less than a second, if the rows are as dense."""
PART: Final = 64
"""Up to the end of a window that failed, windows are at most one part of so many."""
SLOW: Final = 2.0
"""Seconds above which a call is slow; the next window is half as long."""


def sparse_rows(
    store: RetryingStore, runtime: Runtime, settings: Settings, scan: Scan, between: Callable[[], object] | None = None
) -> Iterator[Row]:
    """Yield all rows of a forward scan of the journal that begins at a revision, in batches of ``scan.limit`` rows.

    The rows are not of one moment: a row that is written behind the present position of the scan is missing. ``between`` is
    called between two calls of the store.

    On a store with transactions one round trip for each batch; it runs in this process and has no timeout. On others one more
    for each window after the first: none for an hour of ids, 4 for a week, 9 for ten years, if the calls are fast. Raises
    StoreError only for a window of :data:`SHORTEST_MS`, after the retries of the store.
    """
    if not store.supports_transactions:
        return _Windows(store, runtime, settings, scan, between).rows()
    rows = scan_all(store, schema.JOURNAL, scan)
    return rows if between is None else _in_batches(rows, scan.limit, between)


def _in_batches(rows: Iterator[Row], size: int, between: Callable[[], object]) -> Iterator[Row]:
    for number, row in enumerate(rows):
        if number and number % size == 0:
            between()
        yield row


def _ms_of(key: bytes) -> int:
    """Return the id time at a row key."""
    # A damaged key may be shorter; windows must ascend in the order of the keys.
    return revisions.ms_of(int.from_bytes(key[:8].ljust(8, b"\0"), "big"))


class _Windows:
    """The windows of one scan, and how long the next one is.

    The last window ends where the scan ends. If the scan has no end, no row is missing even if a clock is wrong. This
    instance's clock shows about where the journal ends, without a call. If a call without an end fails, the last row of the
    journal shows it.
    """

    def __init__(
        self,
        store: RetryingStore,
        runtime: Runtime,
        settings: Settings,
        scan: Scan,
        between: Callable[[], object] | None,
    ) -> None:
        self._store = store
        self._between = between
        self._runtime = runtime
        self._scan = scan
        self._oldest_ms = revisions.ms_of(settings.root_revision)
        self._has_known_end = scan.stop is not None
        now_ms = min(runtime.now_ms() - settings.epoch_ms, revisions.MAX_MS)
        self._end_ms = now_ms if scan.stop is None else _ms_of(scan.stop)
        self._window_ms = FIRST_MS
        self._longest_ms = revisions.MAX_MS
        self._longest_until_ms = 0

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all windows."""
        start = self._scan.start or b""
        while True:
            stop = self._stop(start)
            rows = self._read(start, stop)
            if rows is None:
                continue
            yield from rows
            if len(rows) == self._scan.limit:
                start = rows[-1].key + b"\0"
            elif stop is None or stop == self._scan.stop:
                return
            else:
                start = stop
            if self._between is not None:
                self._between()

    def _stop(self, start: bytes) -> bytes | None:
        """Return the end of the window that begins at a key; that of the scan for the last window."""
        begin_ms = self._begin_ms(start)
        if begin_ms >= self._longest_until_ms:
            self._longest_ms = revisions.MAX_MS
        stop_ms = begin_ms + self._window_ms
        return self._scan.stop if stop_ms >= self._end_ms else schema.revision_key(stop_ms << 24)

    def _begin_ms(self, start: bytes) -> int:
        """Return the id time at which a window begins."""
        # Next to nothing is older than the first revision of the repository, so that time belongs to the first window.
        return max(_ms_of(start), self._oldest_ms)

    def _read(self, start: bytes, stop: bytes | None) -> list[Row] | None:
        """Read the first rows of a window; return None if the window must be shorter."""
        scan = self._scan._replace(start=start, stop=stop)
        is_shortest = self._window_ms <= SHORTEST_MS and (stop is not None or self._has_known_end)
        store = self._store if is_shortest else self._store.once
        began = self._runtime.monotonic()
        try:
            rows = store.scan(schema.JOURNAL, scan)
        except (StoreNotAppliedError, StoreUnknownError):
            if is_shortest:
                raise
            self._shorten(start, stop)
            return None
        self._adapt(self._runtime.monotonic() - began, is_whole=len(rows) < scan.limit)
        return rows

    def _adapt(self, seconds: float, *, is_whole: bool) -> None:
        """Choose the length of the next window after a call that took so long, for a whole window or for a part."""
        if seconds > SLOW:
            self._window_ms = max(self._window_ms // 2, SHORTEST_MS)
        elif seconds < FAST and is_whole:
            self._window_ms = min(self._window_ms * GROWTH, self._longest_ms)

    def _shorten(self, start: bytes, stop: bytes | None) -> None:
        """Choose the lengths of the next windows after a call that failed. One round trip if it had no end, else none."""
        if stop is None:
            self._read_end()
        self._longest_until_ms = self._end_ms if stop is None else _ms_of(stop)
        self._longest_ms = max((self._longest_until_ms - self._begin_ms(start)) // PART, SHORTEST_MS)
        self._window_ms = SHORTEST_MS

    def _read_end(self) -> None:
        """Read the id time of the last row. One round trip."""
        # Every row has this column.
        scan = Scan(None, None, 1, reverse=True, columns=(schema.COMMITTED,))
        rows = self._store.scan(schema.JOURNAL, scan)
        self._end_ms = min(_ms_of(rows[0].key), revisions.MAX_MS) if rows else 0
        self._has_known_end = True
