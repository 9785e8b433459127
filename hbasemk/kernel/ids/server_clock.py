"""The clock of one of the store's servers, known by occasional measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbasemk.errors import StoreNotAppliedError
from hbasemk.format import schema
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import CellVersion, Column, Delete, Get, NewCell, Put, Row

MEASUREMENT_VALID: Final = 30.0
"""Seconds for which a measurement of the store's clock may be used to decide that another process's lease has expired."""


class ServerClock:
    """A lower and an upper bound of one server's clock, from occasional measurements and the monotonic clock.

    If reading the store's clock takes no round trip, each call reads it instead.
    """

    def __init__(self, store: RetryingStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._low = self._high = 0.0
        self.measured_at = float("-inf")
        """When the clock was last measured, by the monotonic clock."""

    def measure(self, row: bytes, also: Sequence[Get] = ()) -> list[Row]:
        """Measure the clock: write a cell with the server's time and read it back. Two round trips.

        It takes five if another cell comes back: another process measured in the same row, or the store's clock has
        gone back since then (a store returns a column's highest timestamp). No round trip if the store shows its clock.
        A failed measurement is repeated as a whole, because a retry of one call would make it less exact. The read also
        returns the rows of ``also``.
        """
        return run_with_retries(self._runtime, lambda: self._measure(row, also))

    def _measure(self, row: bytes, also: Sequence[Get]) -> list[Row]:
        if self._store.clock_ms() is not None:
            self.measured_at = self._runtime.monotonic()
            return self._store.read(schema.CLUSTER, also)
        token = self._runtime.random.getrandbits(64).to_bytes(8, "big")
        measured, others, rest = self._probe(row, schema.CLOCK, token, also)
        if measured:
            return rest
        # On HBase each earlier measurement may still be there, below the one that hides this one. So use a column that
        # no other measurement uses, and remove both cells.
        once = (schema.DATA, schema.CLOCK_ONCE + token)
        measured, own, rest = self._probe(row, once, token, also)
        if not measured:
            raise StoreNotAppliedError(
                f"the clock cell written to {self._store.location} could not be read back: the store's clock went back to a "
                "time before this row was deleted; retry when that time has come again"
            )
        versions = [
            CellVersion(*column, stamp) for column, stamps in ((once, own), (schema.CLOCK, others)) for stamp in stamps
        ]
        self._store.delete(schema.CLUSTER, [Delete(row, versions)])
        return rest

    def _probe(
        self, row: bytes, column: Column, token: bytes, also: Sequence[Get]
    ) -> tuple[bool, list[int], list[Row]]:
        """Write a cell and read its column; return whether it came back, the times of the column, and the other rows."""
        before = self._runtime.monotonic()
        self._store.write(schema.CLUSTER, [Put(row, [NewCell(*column, token)])], durable=False)
        answer, *rest = self._store.read(schema.CLUSTER, [Get(row, columns=(column,)), *also])
        after = self._runtime.monotonic()
        measured = any(cell.value == token for cell in answer.cells)
        if measured:
            self.record(answer.cells[0].timestamp, before, after)
        return measured, [cell.timestamp for cell in answer.cells], rest

    def record(self, server_ms: int, before: float, after: float) -> None:
        """Record a timestamp that the server gave a cell between two moments of the monotonic clock."""
        self._low = server_ms - after * 1000
        self._high = server_ms + 1 - before * 1000
        self.measured_at = after

    def is_recent(self, seconds: float) -> bool:
        """Return whether the clock was measured within the last ``seconds``."""
        return self._runtime.monotonic() - self.measured_at < seconds

    def at_least(self, monotonic: float) -> float:
        """Return the lowest time, in ms since 1970, that the server's clock can have shown at ``monotonic``."""
        known = self._store.clock_ms()
        return self._low + monotonic * 1000 if known is None else known

    def at_most(self, monotonic: float) -> float:
        """Return the highest time, in ms since 1970, that the server's clock can have shown at ``monotonic``."""
        known = self._store.clock_ms()
        return self._high + monotonic * 1000 if known is None else known + 1

    def latest_ms(self) -> float | None:
        """Return the highest time that the clock can show now; None if it was not measured recently. No round trip."""
        known = self._store.clock_ms() is not None or self.is_recent(MEASUREMENT_VALID)
        return self.at_most(self._runtime.monotonic()) if known else None
