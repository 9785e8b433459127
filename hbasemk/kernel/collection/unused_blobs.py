"""Blobs to which no cell refers and which nobody has used for longer than the retention.

The collector reads all references while the horizon stays and no branch is swept. Then it dooms each blob by compare-and-set
of ``used``, and deletes the versions that it had read before, and earlier ones. A writer that wants the blob renews ``used``
first, so the compare-and-set fails; or it finds the blob doomed, and uploads newer versions. See ``docs/protocol.md``,
section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from hbasemk.errors import CheckpointError, RevisionCollectedError, StoreError
from hbasemk.format import journal_row, schema
from hbasemk.format.blob_use import USED
from hbasemk.format.extent import Extent
from hbasemk.kernel import checkpoints
from hbasemk.kernel.batches import batched
from hbasemk.kernel.blobs import DATA, HEAD, KEY, LENGTH, RENEW_MS, UPLOAD_MS, Head
from hbasemk.kernel.collection.blob_references import read_references
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.checkpoint_cells import BLOB_HOLD, BLOB_HOLD_MS
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.journal.sparse_scan import sparse_rows
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import CellVersion, Column, DeleteBelow, Scan, scan_all

KIND: Final = "unused blobs"
HEADS: Final = 1000
BRANCH_ROWS: Final = 1000
OPEN: Final = 8
"""Bytes of the head of a branch that has not ended."""
CHUNKS: Final = 4
"""The number of chunks that one call reads."""
AT_ONCE: Final = 50
"""The number of blobs that are doomed before they are deleted together."""
ATTEMPTS: Final = 3


def collect(run: Run, retention_ms: int, wait_for_readers: Callable[[], int]) -> bool:
    """Delete the blobs that nothing needs; return False if no blob could be deleted.

    Then other processes have raised the horizon, or swept branches, during each of :data:`ATTEMPTS` reads of the references.

    ``wait_for_readers`` waits until all readers know the present horizon, and returns the highest that they know. If others have
    published another one meanwhile, the attempt fails. Nothing happens before old revisions are collected. Raises FormatError if
    a reference cannot be decoded.
    """
    for _ in range(ATTEMPTS):
        horizon = wait_for_readers()
        if not horizon or _try(run, retention_ms, horizon):
            return True
    return False


def _try(run: Run, retention_ms: int, horizon: int) -> bool:
    instance = run.instance
    began_ms = instance.lease.store_ms()
    skew = 2 * instance.settings.max_clock_skew_ms
    try:
        hold = _hold(instance, horizon) if run.writes else None
    except RevisionCollectedError:
        # Another collector has just raised the horizon.
        return False
    try:
        on_branches = _branch_revisions(instance, horizon) if run.writes else []
        blobs = sum(1 for _ in _heads(instance))
        references = read_references(run, blobs)
    finally:
        if hold is not None:
            _release(instance, hold)
    # While the horizon stays, no collector deletes what a readable snapshot shows. So a writer that copied a reference to a row
    # that had been read left it in its source.
    if run.writes and fence.read_horizon(instance.store).revision != horizon:
        return False
    # The same holds for a source on a branch that no sweep has begun to delete.
    if _has_swept(instance, on_branches):
        return False
    unused = (found for found in _heads(instance) if found[0] not in references)
    before = began_ms - retention_ms - RENEW_MS - skew
    limits = _Limits(before, began_ms - RENEW_MS - skew, began_ms - UPLOAD_MS - skew)
    for part in batched(unused, AT_ONCE):
        _collect(run, part, limits)
    return True


def _hold(instance: Instance, horizon: int) -> checkpoints.Checkpoint | None:
    """Keep the horizon from rising, and the hourly work from sweeping branches, as far as possible, during the mark."""
    until_ms = instance.checkpoint_cells.latest_ms() + BLOB_HOLD_MS
    view = View.of(horizon, Extent(horizon), horizon)
    try:
        return checkpoints.keep(instance, view, until_ms, BLOB_HOLD, or_more=True)
    except CheckpointError:
        # Another checkpoint of this revision keeps less; the horizon is compared afterwards anyway.
        return None


def _release(instance: Instance, hold: checkpoints.Checkpoint) -> None:
    # If the store is out of reach, the entry expires.
    with suppress(StoreError, CheckpointError):
        checkpoints.release(instance, hold.revision, hold.number)


def _branch_revisions(instance: Instance, horizon: int) -> list[int]:
    """Return the revisions of branches, also of ended ones, that no sweep had begun to delete.

    Lists them twice. A row that is written behind the position of the first scan is in the second list. A revision that is
    swept between the two is in the first list, so the collector notices it.
    """
    scan = Scan(schema.revision_key(horizon + 1), None, BRANCH_ROWS, columns=(schema.BRANCH,))
    found: set[int] = set()
    for _ in range(2):
        rows = sparse_rows(instance.store, instance.runtime, instance.settings, scan)
        found.update(_unswept(instance, [row.revision for row in journal_row.decode(rows) if row.is_branch]))
    return sorted(found)


def _unswept(instance: Instance, branch_revisions: Sequence[int]) -> list[int]:
    """Return those of some branch revisions that no sweep has begun to delete, in their order."""
    # A sweep aborts a revision before it deletes the cells. It marks the revision as swept afterwards, or dies before it does.
    rows = journal_rows(instance.store, branch_revisions, (schema.ABORT,))
    return [row.revision for row in rows if row.value(schema.ABORT) == schema.NO]


def _has_swept(instance: Instance, branch_revisions: Sequence[int]) -> bool:
    """Return whether a sweep has begun to delete one of some branch revisions.

    One round trip for each batch of rows; two more if a revision is aborted.
    """
    unswept = set(_unswept(instance, branch_revisions))
    aborted = [revision for revision in branch_revisions if revision not in unswept]
    roots = {row.branch_root for row in journal_rows(instance.store, aborted, (schema.BRANCH,))}
    first = journal_rows(instance.store, [root for root in roots if root is not None], (schema.BRANCH_HEAD,))
    # A sweep ends a branch before it aborts a revision. On an open branch, a commit has failed, and no snapshot shows it.
    return None in roots or any(len(row.value(schema.BRANCH_HEAD) or b"") != OPEN for row in first)


def _heads(instance: Instance) -> Iterator[tuple[bytes, Head]]:
    scan = Scan(None, None, HEADS, columns=HEAD)
    for row in scan_all(instance.store, schema.BLOBS, scan):
        if len(row.key) == KEY:
            yield row.key, Head.of(row)


class _Limits(NamedTuple):
    """Times in ms since 1970 before which a blob was used last, or doomed, to be deleted; or its doomed cell was written."""

    used: int
    doomed: int
    cell: int


def _collect(run: Run, found: Sequence[tuple[bytes, Head]], limits: _Limits) -> None:
    """Delete blobs that nothing refers to, unless they were used or doomed too recently."""
    chunks: list[DeleteBelow] = []
    heads: list[DeleteBelow] = []
    for key, head in found:
        if head.used is None:
            # An older version of the library wrote it. When it was used last is unknown, so this counts as a use.
            if run.writes:
                run.instance.blobs.use(key, head)
        elif head.used.timestamp < (limits.doomed if head.is_doomed else limits.used):
            own = _doomed(run, key, head, limits.doomed)
            if own is None:
                continue
            chunks += own
            if head.length is not None:
                heads.append(_up_to(key, LENGTH, head.length.timestamp))
            elif not own and run.instance.store.supports_transactions and head.used.timestamp < limits.cell:
                # What a deletion has left. Without the cell, an upload that began before the deletion would rely on what was
                # deleted; by now all have ended. HBase would show earlier versions of the cell, or hide later ones.
                heads.append(_up_to(key, USED, head.used.timestamp))
    _delete(run, chunks)
    _delete(run, heads)


def _up_to(key: bytes, column: Column, timestamp: int) -> DeleteBelow:
    return DeleteBelow(key, [CellVersion(*column, timestamp + 1)])


def _doomed(run: Run, key: bytes, head: Head, old: int) -> Sequence[DeleteBelow] | None:
    """Doom a blob and return its chunks; None if a writer uses it. Without anything to delete, it stays as it is."""
    # The versions are read before the blob is doomed: a writer that finds it doomed writes newer ones.
    chunks = _chunks(run, key)
    newest = max((cell.timestamp - 1 for chunk in chunks for cell in chunk.cells), default=0)
    if newest >= old:
        # A writer is uploading it again. Its next attempt could write versions with the same timestamps.
        return None
    if head.length is None and not chunks:
        return chunks
    if run.writes and not run.instance.blobs.doom(key, head, run.instance.lease.store_ms(), newest):
        return None
    run.cells[KIND] += 1
    return chunks


def _delete(run: Run, deletes: Sequence[DeleteBelow]) -> None:
    if run.writes and deletes:
        run.instance.store.delete_below(schema.BLOBS, deletes)
        run.pause(len(deletes))


def _chunks(run: Run, key: bytes) -> Sequence[DeleteBelow]:
    scan = Scan(key + b"\0", key + b"\xff" * 5, CHUNKS, columns=(DATA,))
    return [_up_to(row.key, DATA, row.cells[0].timestamp) for row in scan_all(run.instance.store, schema.BLOBS, scan)]
