"""The notice by which polls learn that something beside the revisions has changed."""

from __future__ import annotations

from typing import Final

from hbasemk.format import schema
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import Get, NewCell, Put

_NOTICE: Final = Get(schema.LOGS_TAIL, columns=(schema.CHECKPOINTS_NOTICE,))


def write(store: RetryingStore, runtime: Runtime, polled: bytes = b"") -> None:
    """Make every instance read the checkpoints again after its next poll. One round trip.

    In a store that orders all writes, this is a write to the journal. In others it replaces the notice. ``polled`` is the
    last one that this instance has read. If it has changed since, the call takes two round trips more.
    """
    value = runtime.random.getrandbits(64).to_bytes(8, "big")
    if store.supports_transactions:
        store.write(schema.JOURNAL, [Put(schema.NOTICE_FIRST, [NewCell(*schema.SWEPT, value)])])
        return
    put = Put(schema.LOGS_TAIL, [NewCell(*schema.CHECKPOINTS_NOTICE, value)])
    found = polled
    # Without the comparison, the earlier notice would hide this one if the server's clock has gone back since.
    while not store.check_and_write(schema.CLUSTER, schema.CHECKPOINTS_NOTICE, found or None, put):
        (row,) = store.read(schema.CLUSTER, [_NOTICE])
        found = row.cells[0].value if row.cells else b""
        if found == value:
            # The reply to an earlier attempt was lost.
            return
