"""The decided revisions that the log of a writer still lists, with their bytes in the log."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection

from hbasemk.format import revisions


class DecidedIds:
    """Ids, lowest first. Each is encoded once, although each write of the log has all of them. Not thread-safe.

    An interrupt leaves the ids and their bytes in agreement: between the changes of the two, nothing is called.
    """

    __slots__ = ("_encoded", "_ids")

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._encoded = b""

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, revision: int) -> None:
        """Add an id, at its place, unless it has been added before."""
        at = bisect(self._ids, revision)
        if at and self._ids[at - 1] == revision:
            return
        start = revisions.BYTES * at
        encoded = self._encoded[:start] + revisions.to_bytes((revision,)) + self._encoded[start:]
        self._ids, self._encoded = [*self._ids[:at], revision, *self._ids[at:]], encoded

    def highest_of(self, count: int) -> int:
        """Return the highest of the lowest ``count`` ids, or 0."""
        return self._ids[count - 1] if count else 0

    def drop(self, count: int) -> None:
        """Remove the lowest ``count`` ids."""
        self._ids, self._encoded = self._ids[count:], self._encoded[revisions.BYTES * count :]

    def encoded_with(self, others: Collection[int]) -> bytes:
        """Return the bytes of these ids and of others, lowest first, each once."""
        if self._ids and others and min(others) <= self._ids[-1]:
            return revisions.to_bytes(sorted({*self._ids, *others}))
        return self._encoded + revisions.to_bytes(sorted(others))
