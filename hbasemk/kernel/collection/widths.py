"""The numbers of columns of rows, read in calls of a bounded size: the store has no way to count without the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.format import schema
from hbasemk.kernel.collection.all_versions import row_limit
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Get, Page
from hbasemk.store.sizes import size_of_rows

FAMILIES: Final = (schema.DATA, schema.CHILDREN)


class WidthReader:
    """Counts columns; it remembers between its calls how many rows one answer may have."""

    def __init__(self, store: RetryingStore, most: int) -> None:
        self._store = store
        self._most = most
        self._limit = row_limit()

    def read(self, keys: Sequence[bytes], before: int) -> list[tuple[int, int]]:
        """Return how many columns of data and of children each row has, up to ``most``. One round trip for small rows."""
        found: list[tuple[int, int]] = []
        while len(found) < len(keys):
            part = keys[len(found) : len(found) + self._limit.rows]
            gets = [Get(key, page=Page(one, None, self._most), before=before) for key in part for one in FAMILIES]
            rows = self._store.read(schema.NODES, gets)
            counts = [len(row.cells) for row in rows]
            found += zip(counts[::2], counts[1::2], strict=True)
            self._limit.answered(len(part), size_of_rows(rows))
        return found
