"""Which blobs the cells of nodes refer to, in bounded memory.

The set may contain blobs that nothing refers to, at random: a run then keeps them, and the next one uses other random bytes.
It contains every blob to which a cell refers that was stored while all rows were read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import schema, values
from hbasemk.kernel.collection import all_versions
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.read_sizes import FIRST_ROWS, next_limit
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Cell, Get, Scan
from hbasemk.store.sizes import size_of

BITS_PER_BLOB: Final = 10
HASHES: Final = 7
LEAST_BITS: Final = 1 << 20
MOST_BITS: Final = 1 << 29
"""64 MiB: enough for 50 million blobs."""
DEEPER: Final = 1000
"""The largest number of versions of one column in one read."""
ROWS: Final = 100
PROPERTY: Final = bytes([schema.PROPERTY])
"""How the qualifier of a property begins."""
VERSIONS: Final = 8
"""The versions of a column in the first read of its row; columns that have more are read on their own."""


class ReferenceSet:
    """A set of blob ids that may contain more than was added: a Bloom filter for about ``blobs`` of them."""

    def __init__(self, blobs: int, salt: bytes) -> None:
        self._bits = min(max(blobs * BITS_PER_BLOB, LEAST_BITS), MOST_BITS)
        self._salt = salt
        self._bytes = bytearray(self._bits // 8 + 1)

    def _places(self, blob: bytes) -> Iterable[int]:
        digest = hashlib.blake2b(blob, key=self._salt, digest_size=8 * HASHES).digest()
        return (int.from_bytes(digest[at : at + 8], "big") % self._bits for at in range(0, 8 * HASHES, 8))

    def add(self, blob: bytes) -> None:
        """Add the key of a blob."""
        for place in self._places(blob):
            self._bytes[place >> 3] |= 1 << (place & 7)

    def __contains__(self, blob: bytes) -> bool:
        """Return whether the key of a blob was added; sometimes also True if it was not."""
        return all(self._bytes[place >> 3] >> (place & 7) & 1 for place in self._places(blob))


def read_references(run: Run, blobs: int) -> ReferenceSet:
    """Return the blobs to which any version of any property refers, on trunk and on branches."""
    store = run.instance.store
    found = ReferenceSet(blobs, run.instance.runtime.random.getrandbits(64).to_bytes(8, "big"))
    scan = Scan(None, None, min(FIRST_ROWS, ROWS), families=(schema.DATA,), versions=VERSIONS)
    checked = 0
    while True:
        rows = store.scan(schema.NODES, scan)
        for row in rows:
            _add(found, row.key, row.cells)
            for qualifier, oldest in _deep(row.cells).items():
                _add_older(store, found, row.key, qualifier, oldest)
        run.pause(len(rows))
        checked += len(rows)
        run.progress("nodes read for references to blobs", checked)
        if len(rows) < scan.limit:
            return found
        size = sum(size_of(row.cells) for row in rows)
        limit = next_limit(scan.limit, size, ROWS, all_versions.LARGE)
        scan = scan._replace(start=rows[-1].key + b"\0", limit=limit)


def _deep(cells: Iterable[Cell]) -> dict[bytes, int]:
    """Return the columns that may have further versions, with the oldest version read."""
    counts: dict[bytes, int] = {}
    oldest: dict[bytes, int] = {}
    for cell in cells:
        counts[cell.qualifier] = counts.get(cell.qualifier, 0) + 1
        oldest[cell.qualifier] = cell.timestamp
    return {
        qualifier: oldest[qualifier]
        for qualifier, count in counts.items()
        if count == VERSIONS and qualifier[:1] == PROPERTY
    }


def _add_older(store: RetryingStore, found: ReferenceSet, key: bytes, qualifier: bytes, before: int) -> None:
    depth = min(VERSIONS, DEEPER)
    more = True
    while more:
        get = Get(key, columns=((schema.DATA, qualifier),), before=before, versions=depth)
        cells = store.read(schema.NODES, [get])[0].cells
        _add(found, key, cells)
        more = len(cells) == depth
        before = cells[-1].timestamp if cells else 0
        depth = next_limit(depth, size_of(cells), DEEPER, all_versions.LARGE, all_versions.FEWEST)


def _add(found: ReferenceSet, key: bytes, cells: Iterable[Cell]) -> None:
    for cell in cells:
        # Whatever its column: the name of a property may be damaged, and only the value shows the reference. A value that
        # cannot be decoded ends the run: what it refers to is unknown.
        try:
            blobs = values.blobs_of(cell.value)
        except FormatError as error:
            raise schema.damaged(error.message, schema.NODES, key, cell[:2]) from error
        for blob in blobs:
            with suppress(ValueError):
                found.add(bytes.fromhex(blob))
