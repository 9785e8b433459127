"""A store whose scans take as long as HBase's: for every row of the range that they visit, whether it matches or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hbasemk.errors import StoreNotAppliedError
from hbasemk.format import schema
from hbasemk.store.abc import Row, Scan, Store
from hbasemk.testing.wrapped import Call, WrappedStore
from tests.support.runtime import World

T = TypeVar("T")
EVERY_ROW = 10**6


class SlowScans(WrappedStore):
    """A store in which a forward scan of the journal takes ``seconds`` for each row, and times out after ``timeout`` seconds.

    ``visited`` has the number of rows that each scan visited, and None for each scan that timed out.
    """

    def __init__(self, inner: Store, world: World, seconds: float, timeout: float = 20.0) -> None:
        super().__init__(inner)
        self._world = world
        self.seconds = seconds
        self._timeout = timeout
        self.visited: list[int | None] = []

    def around(self, call: Call, do: Callable[[], T]) -> T:
        """Make the call."""
        return do()

    def scan(self, table: str, scan: Scan) -> list[Row]:
        """Let time pass, then return the rows or raise StoreNotAppliedError."""
        rows = super().scan(table, scan)
        if table != schema.JOURNAL or scan.reverse:
            return rows
        stop = scan.stop if len(rows) < scan.limit else rows[-1].key + b"\0"
        visited = len(self.inner.scan(table, Scan(scan.start, stop, EVERY_ROW)))
        duration = visited * self.seconds
        self._world.advance(min(duration, self._timeout))
        if duration > self._timeout:
            self.visited.append(None)
            raise StoreNotAppliedError(f"no answer within {self._timeout:g} s") from TimeoutError()
        self.visited.append(visited)
        return rows
