"""Columns for which this process has lost a conflict lately: a commit to one of them polls first.

On HBase a conflict costs a roll-back, a wait, a poll and a second attempt. While others commit to the same column all the
time, an attempt on a head that is some polls old is nearly always lost. So a poll before the first attempt is cheaper. In one
transaction of a store a conflict costs little, so there no column is hot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.format import schema
from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit.change_source import ChangeSource
from hbasemk.kernel.commit.read_back import Conflict
from hbasemk.kernel.commit.turns import columns_of
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime

HOT_FOR: Final = 2.0
"""Seconds after a conflict for which its column counts as hot."""
AT_ONCE: Final = 0.02
"""A commit that begins within so many seconds after another one of this process to the same column needs no poll: its head
contains that commit, and the process has its turn."""
MOST: Final = 1000
"""The maximum number of columns that are remembered."""
MOST_OPERATIONS: Final = 100
"""A commit with more operations than this does not poll first: compared with its duration, a second attempt is rare."""


class HotColumns:
    """The hot columns of one instance: properties and children, by path and name. Thread-safe."""

    def __init__(self, store: RetryingStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._until: dict[tuple[str, str], float] = {}
        self._own: set[tuple[str, str]] = set()
        self._committed_at = float("-inf")

    def committed(self, changes: Sequence[RowChange]) -> None:
        """Record what this process has just committed."""
        if self._until and len(changes) <= MOST_OPERATIONS:
            self._own, self._committed_at = columns_of(changes), self._runtime.monotonic()

    def record(self, conflict: Conflict) -> None:
        """Record that a commit has lost because of a column."""
        if self._store.supports_transactions:
            return
        family, qualifier = conflict.column
        if family == schema.DATA and qualifier[0] != schema.PROPERTY:
            # The life of a node, or a slot: another commit seldom meets the same conflict.
            return
        if len(self._until) >= MOST:
            self._until = {}
        self._until[conflict.path, schema.name_of(conflict.column)] = self._runtime.monotonic() + HOT_FOR

    def has(self, source: ChangeSource) -> bool:
        """Return whether a commit changes a hot column, as far as that shows without a read."""
        if not self._until:
            return False
        prediction = source.predict(MOST_OPERATIONS)
        if prediction is None:
            return False
        now = self._runtime.monotonic()
        self._until = {column: until for column, until in list(self._until.items()) if until > now}
        columns = columns_of(prediction.changes)
        if now - self._committed_at < AT_ONCE:
            columns -= self._own
        return not self._until.keys().isdisjoint(columns)
