"""The decided revisions that the log of a writer still lists, with their bytes in the log."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection

from hbasemk.format import revisions


class DecidedIds:
    """Ids, lowest first. Each is encoded once, although each write of the log has all of them. Not thread-safe."""

    __slots__ = ("_encoded", "_ids")

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._encoded = bytearray()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, revision: int) -> None:
        """Add an id, at its place."""
        at = bisect(self._ids, revision)
        self._ids.insert(at, revision)
        start = revisions.BYTES * at
        self._encoded[start:start] = revisions.to_bytes((revision,))

    def drop(self, count: int) -> int:
        """Remove the lowest ``count`` ids; return the highest of them, or 0."""
        highest = self._ids[count - 1] if count else 0
        del self._ids[:count]
        del self._encoded[: revisions.BYTES * count]
        return highest

    def encoded_with(self, others: Collection[int]) -> bytes:
        """Return the bytes of these ids and of others, lowest first."""
        if self._ids and others and min(others) < self._ids[-1]:
            return revisions.to_bytes(sorted([*self._ids, *others]))
        return bytes(self._encoded) + revisions.to_bytes(sorted(others))
