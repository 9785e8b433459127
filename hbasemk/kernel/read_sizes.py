"""How many rows one read of a store may request, as its timeouts and successes show."""

from __future__ import annotations

from typing import Final

from hbasemk.errors import StoreError

GROW_AFTER: Final = 64
"""After so many successful reads of the largest allowed size, reads may be twice as large. A timeout takes long."""
FIRST_ROWS: Final = 4
"""The rows of the first answer to reads of many versions: how large they are is not known yet."""


def next_limit(limit: int, size: int, most: int, large: int, fewest: int = 1) -> int:
    """Return how many rows or versions to request, from ``fewest`` to ``most``, after ``limit`` ones had ``size`` bytes.

    Above ``large`` bytes of values they become fewer.
    """
    if size * 4 < large:
        return min(limit * 4, most)
    return max(limit // 4, fewest) if size > large else limit


class RowLimit:
    """How many rows the next answer may have, as the sizes of the answers before it suggest; at most ``most``."""

    def __init__(self, first: int, most: int, large: int) -> None:
        self.rows = first
        self._most = most
        self._large = large

    def answered(self, requested: int, size: int) -> None:
        """Record that the answer for so many rows had ``size`` bytes of values."""
        if requested == self.rows or size > self._large:
            self.rows = next_limit(requested, size, self._most, self._large)


class ReadSizes:
    """The largest numbers of rows, for each kind of read and table whose reads have timed out.

    They outlast a call: a poll that is repeated as a whole would otherwise begin with the same size, and time out again.
    """

    def __init__(self) -> None:
        self._most: dict[tuple[str, str], int] = {}
        self._successes: dict[tuple[str, str], int] = {}

    def limit(self, kind: str, table: str, wanted: int) -> int:
        """Return how many rows to request if ``wanted`` ones are needed."""
        return min(wanted, self._most.get((kind, table), wanted))

    def failed(self, kind: str, table: str, requested: int, error: StoreError) -> None:
        """Record an error; if it is a timeout, request half as many rows from now on."""
        if isinstance(error.__cause__, (TimeoutError, EOFError)):
            self._most[kind, table] = max(1, requested // 2)
            self._successes.pop((kind, table), None)

    def succeeded(self, kind: str, table: str, requested: int) -> None:
        """Record a success."""
        key = kind, table
        most = self._most.get(key)
        if most is None or requested < most:
            return
        count = self._successes.get(key, 0) + 1
        if count >= GROW_AFTER:
            self._most[key], count = most * 2, 0
        self._successes[key] = count
