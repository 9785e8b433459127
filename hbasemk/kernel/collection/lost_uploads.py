"""Chunks of uploads that have never ended. Nothing can refer to them, because the blob has no length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hbasemk.format import schema
from hbasemk.kernel import rollback
from hbasemk.kernel.blobs import DATA, KEY, LENGTH, UPLOAD_MS
from hbasemk.kernel.collection.run import Run
from hbasemk.store.abc import CellVersion, Delete, Scan, scan_all

KIND: Final = "chunks of unfinished uploads"
CHUNKS: Final = 4


def collect(run: Run) -> None:
    """Delete the chunks of uploads that ended a day ago or earlier. One round trip for each blob."""
    instance = run.instance
    limit = instance.lease.store_ms() - UPLOAD_MS - 2 * instance.settings.max_clock_skew_ms
    for key in _without_length(run):
        scan = Scan(key + b"\0", key + b"\xff" * 5, CHUNKS, columns=(DATA,))
        deletes = [
            Delete(row.key, [CellVersion(*DATA, cell.timestamp) for cell in row.cells])
            for row in scan_all(instance.store, schema.BLOBS, scan)
        ]
        if any(cell.timestamp >= limit for one in deletes for cell in one.cells) or not deletes:
            continue
        if not run.writes or rollback.delete_upload(instance, key.hex(), deletes):
            run.cells[KIND] += len(deletes)
            run.pause(len(deletes))


def _without_length(run: Run) -> Iterator[bytes]:
    """Yield the keys of blobs without a length. Steps over the chunks of the others."""
    start: bytes | None = None
    checked = 0
    while rows := run.instance.store.scan(schema.BLOBS, Scan(start, None, 1, columns=(LENGTH, DATA))):
        (row,) = rows
        key = row.key[:KEY]
        if len(row.key) == KEY + 4:
            yield key
        start = key + b"\xff" * 5
        checked += 1
        run.progress("blobs", checked)
