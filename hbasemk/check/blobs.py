"""The check of the ``blobs`` table, which reads all contents: chunks, lengths, and the hash that is the blob's id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Final

from hbasemk.check import problem as kinds
from hbasemk.check.context import CheckContext
from hbasemk.check.problem import Problem
from hbasemk.format import blob_use, schema
from hbasemk.format.blob_use import USED
from hbasemk.format.plural import counted
from hbasemk.kernel.blobs import CHUNK, DATA, HEAD, LENGTH, Head
from hbasemk.store.abc import Cell, CellVersion, Delete, Get, Row, Scan

FEWEST: Final = 4
MOST: Final = 64
LARGE: Final = 8 * CHUNK
"""The bytes of one read above which later reads request fewer rows."""
DAY_MS: Final = 24 * 3600 * 1000
"""An upload without new chunks for this long, by the store's clock, has ended."""
KEY: Final = 32


class _Blob:
    """The chunks and the length of one blob that were read so far."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.length_cell: Cell | None = None
        self.length: int | None = None
        self.size = 0
        self.chunks = 0
        self.is_wrong = False
        """A problem of it was reported. Further ones may follow from that one."""
        self.is_doomed = False
        """A collector is deleting it, or was, or a writer has stored it again: then anything may be missing."""
        self.digest = hashlib.sha256()
        self.cells: list[tuple[bytes, int]] = []


class BlobsCheck:
    """Check the table once.

    ``now_ms`` returns a lower bound of the store's time in ms since 1970. ``progress`` is called with the number of blobs in each
    batch of rows; neither chunks nor unfinished uploads count.
    """

    def __init__(self, context: CheckContext, now_ms: Callable[[], float], progress: Callable[[int], None]) -> None:
        self._context = context
        self._now_ms = now_ms
        self._progress = progress

    def run(self) -> Iterator[Problem]:
        """Yield the problems of all blobs."""
        blob: _Blob | None = None
        for row in self._rows():
            if len(row.key) not in {KEY, KEY + 4}:
                yield Problem(kinds.BLOB_ROW, row.key[:60].hex(), "", "no blob and no chunk has this row key")
                continue
            if blob is None or row.key[:KEY] != blob.key:
                if blob is not None:
                    yield from self._end(blob)
                blob = _Blob(row.key[:KEY])
            cells = {(cell.family, cell.qualifier): cell for cell in row.cells}
            used = cells.get(USED) if len(row.key) == KEY else None
            if used is not None:
                blob.is_doomed = blob_use.is_doomed(used.value)
                if not blob_use.is_value(used.value):
                    yield Problem(
                        kinds.BLOB_ROW, blob.key.hex(), "", f"its last use {used.value[:40]!r} cannot be read"
                    )
                if LENGTH not in cells:
                    continue
            yield from self._add(blob, row.key, cells.get(LENGTH if len(row.key) == KEY else DATA))
        if blob is not None:
            yield from self._end(blob)

    def _rows(self) -> Iterator[Row]:
        scan = Scan(None, None, FEWEST, families=(schema.DATA,))
        while True:
            rows = self._context.page(schema.BLOBS, scan)
            yield from rows
            self._progress(sum(_is_head(row) for row in rows))
            if len(rows) < scan.limit:
                return
            size = sum(len(cell.value) for row in rows for cell in row.cells)
            limit = min(scan.limit * 2, MOST) if size < LARGE // 4 else max(scan.limit // 2, FEWEST)
            scan = scan._replace(start=rows[-1].key + b"\0", limit=limit)

    def _add(self, blob: _Blob, key: bytes, cell: Cell | None) -> Iterator[Problem]:
        name = blob.key.hex()
        if cell is None:
            yield Problem(kinds.BLOB_ROW, name, "", f"the row {key.hex()} holds cells other than those of a blob")
        elif len(key) == KEY:
            blob.length_cell = cell
            if len(cell.value) != 8:
                yield _damage(kinds.BLOB_LENGTH, name, f"its length {cell.value[:40].hex()!r} cannot be read")
                blob.is_wrong = True
            blob.length = int.from_bytes(cell.value[:8], "big")
        else:
            number = int.from_bytes(key[KEY:], "big")
            if blob.length is None:
                blob.cells.append((key, cell.timestamp))
                return
            if number != blob.chunks:
                yield from self._confirm(blob, _missing(name, blob.chunks))
            blob.chunks = number + 1
            blob.size += len(cell.value)
            blob.digest.update(cell.value)
            expected = max(min(CHUNK, blob.length - number * CHUNK), 0)
            if len(cell.value) != expected:
                detail = (
                    f"chunk {number} has {counted(len(cell.value), 'byte')}, expected {expected} in a blob of "
                    f"{counted(blob.length, 'byte')}"
                )
                yield from self._confirm(blob, _damage(kinds.BLOB_LENGTH, name, detail))

    def _end(self, blob: _Blob) -> Iterator[Problem]:
        name = blob.key.hex()
        if blob.length is None:
            if not blob.cells:
                return
            newest = max(timestamp for _, timestamp in blob.cells)
            old = newest + DAY_MS < self._now_ms()
            age = "a day ago or earlier" if old else "less than a day ago, and may still continue"
            stored = f"{counted(len(blob.cells), 'chunk')} {'is' if len(blob.cells) == 1 else 'are'} stored"
            detail = f"{stored}, the last one {age}; no property can refer to it"
            deletes = tuple(Delete(key, [CellVersion(*DATA, timestamp)]) for key, timestamp in blob.cells)
            yield Problem(kinds.UPLOAD, name, "", detail, kinds.NOTE, old, deletes if old else ())
            return
        if blob.size < blob.length:
            yield from self._confirm(blob, _missing(name, blob.chunks))
        elif blob.digest.digest() != blob.key:
            detail = f"its content, {counted(blob.length, 'byte')}, has the SHA-256 {blob.digest.hexdigest()}"
            yield from self._confirm(blob, _damage(kinds.BLOB_CONTENT, name, detail))

    def _confirm(self, blob: _Blob, problem: Problem) -> Iterator[Problem]:
        """Yield a problem if it is the first one of its blob, and nobody has deleted or stored the blob since its head was read.

        One round trip: a collector dooms a blob before it deletes a chunk, and each upload writes the length again.
        """
        if blob.is_wrong or blob.is_doomed:
            return
        head = Head.of(self._context.read(schema.BLOBS, [Get(blob.key, columns=HEAD)])[0])
        if head.is_doomed or head.length != blob.length_cell:
            blob.is_doomed = True
            return
        blob.is_wrong = True
        yield problem


def _is_head(row: Row) -> bool:
    """Return whether a row has the length of a blob: each blob has one such row, and one for each chunk."""
    return len(row.key) == KEY and any((cell.family, cell.qualifier) == LENGTH for cell in row.cells)


def _missing(name: str, number: int) -> Problem:
    return _damage(kinds.BLOB_CHUNK, name, f"chunk {number} is missing")


def _damage(kind: str, name: str, detail: str) -> Problem:
    """Return the problem of a blob that only its content can repair."""
    return Problem(kind, name, "", f"{detail}; to repair it, write its content again with `hbasemk blob put --replace`")
