"""Stored child counts that no reader uses any more.

A reader uses a memo only while the memo's view is readable, which the horizon has ended for these. The horizon only rises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.format import schema
from hbasemk.kernel.reading.child_count import Memo
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import CellVersion, Delete, Scan, scan_all

KIND: Final = "child counts"
ROWS: Final = 100
_FIRST: Final = schema.child_count_key(b"")
_END: Final = _FIRST[:-1] + bytes([_FIRST[-1] + 1])


def old_memos(store: RetryingStore, horizon: int) -> Iterator[Delete]:
    """Yield the exact versions of the memos below the horizon. The integrity check reports unreadable ones."""
    scan = Scan(_FIRST, _END, ROWS, columns=(schema.CHILD_COUNT,))
    for row in scan_all(store, schema.CLUSTER, scan):
        cell = row.cells[0]
        try:
            memo = Memo.decode(cell.value, "")
        except FormatError:
            continue
        if memo.extent.floor < horizon:
            yield Delete(row.key, [CellVersion(*schema.CHILD_COUNT, cell.timestamp)])
