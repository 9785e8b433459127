"""The revisions that touched a subtree, from the versions of its own rows.

Every revision writes ``lastRevision`` into each row that it touches, with its id as the timestamp. So the versions of that
column name all revisions above the horizon that touched the node, in all its lives. A collector deletes older versions. A node
can exist only below a node, so a path without a row, and a level without rows, end the search.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from hbasemk.format import paths, revisions, schema
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Get, Row, Scan

ROWS: Final = 1000
"""The number of rows of a level that one call reads."""
VERSIONS: Final = 16
"""The number of versions that one call reads from each row of a level; rows with more are read one by one."""
PAGE: Final = 1000
"""The number of versions of one row that one call reads."""
MOST: Final = 100_000
"""The search ends without success when it has found more ids than this, so that memory stays bounded."""


class SubtreeRevisions:
    """The ids below ``before`` of the trunk revisions that touched the subtree at ``path``, collected by :meth:`step`.

    ``ids`` also contains revisions that did not commit. ``oldest`` is the lowest id that touched the node at ``path`` (None:
    not known yet); nothing in the subtree is older.
    """

    def __init__(self, store: RetryingStore, path: str, before: int) -> None:
        self._store = store
        self._path = path
        self._before = before
        self._calls = self._read()
        self.ids: set[int] = set()
        self.oldest: int | None = None
        self._complete = False
        next(self._calls)

    def step(self) -> bool:
        """Read the next rows; return whether the search is complete. At most one round trip; none after too many ids."""
        if len(self.ids) <= MOST and not self._complete:
            self._complete = next(self._calls, True)
        return self._complete

    def _read(self) -> Iterator[bool]:
        """Yield False before each round trip."""
        key = paths.key(self._path)
        found = yield from self._read_row(key, self._before)
        self.oldest = min(self.ids, default=None)
        level = 0
        while found:
            found = False
            level += 1
            start, stop = paths.level_range(self._path, level)
            more = True
            while more:
                yield False
                scan = Scan(start, stop, ROWS, columns=(schema.LAST_REVISION,), before=self._before, versions=VERSIONS)
                rows = self._store.scan(schema.NODES, scan)
                found |= bool(rows)
                more = len(rows) == ROWS
                for row in rows:
                    self._add(row)
                    start = row.key + b"\0"
                    if len(row.cells) == VERSIONS:
                        yield from self._read_row(row.key, row.cells[-1].timestamp)

    def _read_row(self, key: bytes, before: int) -> Generator[bool, None, bool]:
        """Read the versions of one row below ``before``; return whether there are any."""
        found = False
        while True:
            yield False
            get = Get(key, columns=(schema.LAST_REVISION,), before=before, versions=PAGE)
            (row,) = self._store.read(schema.NODES, [get])
            found |= bool(row.cells)
            self._add(row)
            if len(row.cells) < PAGE:
                return found
            before = row.cells[-1].timestamp

    def _add(self, row: Row) -> None:
        self.ids.update(cell.timestamp for cell in row.cells if not revisions.is_branch(cell.timestamp))
